"""Odd input through torch.compile: eager's result, or one clear exception; never a crash."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.testing._internal.two_tensor import TwoTensor

from tests.tolerances import mismatch, tensors


class Plain(torch.Tensor):
    """A subclass that changes nothing."""


def huge_stride() -> Tensor:
    """(2, 2) uint8 with a stride of more than 2**31 elements; pages in between stay untouched."""
    return torch.empty(2**31 + 16, dtype=torch.uint8).as_strided((2, 2), (2**31 + 8, 1)).fill_(7)


def frozen_array() -> Tensor:
    """A tensor over memory that numpy calls read-only."""
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    return torch.from_numpy(array)


base = torch.arange(48.0).reshape(6, 8)[:3, :4] / 10 - 2

INPUTS: dict[str, Callable[[], Any]] = {
    "float64": lambda: base.double(),
    "bfloat16": lambda: base.bfloat16(),
    "float8": lambda: base.to(torch.float8_e4m3fn),
    "int64": lambda: base.long(),
    "uint8": lambda: base.abs().byte(),
    "uint16": lambda: base.abs().to(torch.uint16),
    "bool": lambda: base > 0,
    "complex": lambda: base.to(torch.complex64) * (1 + 2j),
    "rank 0": lambda: torch.tensor(3.0),
    "rank 1": lambda: torch.arange(4.0),
    "rank 5": lambda: torch.ones(2, 1, 3, 3, 4),
    "does not broadcast": lambda: torch.ones(3, 5),
    "zero rows": lambda: torch.empty(0, 4),
    "zero columns": lambda: torch.empty(3, 0),
    "meta device": lambda: torch.empty(3, 4, device="meta"),
    "transposed": lambda: base.contiguous().reshape(4, 3).t(),
    "strided": lambda: torch.arange(48.0).reshape(6, 8)[::2, ::2],
    "negative step": lambda: torch.flip(base, (0,))[1:],
    "stride 0": lambda: torch.tensor([[2.0]]).expand(3, 4),
    "overlapping": lambda: torch.arange(8.0).as_strided((3, 4), (1, 1)),
    "huge stride": huge_stride,
    "storage offset": lambda: torch.arange(13.0)[1:].reshape(3, 4),
    "misaligned": lambda: torch.frombuffer(bytearray(49), dtype=torch.float32, offset=1, count=12),
    "conjugated": lambda: (base.to(torch.complex64) * 1j).conj(),
    "negated view": lambda: torch._neg_view(base),
    "imaginary part of conjugate": lambda: (base * (1 + 2j)).conj().imag,
    "sparse": lambda: base.to_sparse(),
    "sparse csr": lambda: base.to_sparse_csr(),
    "mkldnn": lambda: base.to_mkldnn(),
    "quantised": lambda: torch.quantize_per_tensor(base, 0.1, 0, torch.qint8),
    "nested": lambda: torch.nested.nested_tensor([base, base[:2]], layout=torch.jagged),
    "subclass": lambda: base.as_subclass(Plain),
    "wrapper subclass": lambda: TwoTensor(base, base + 1),
    "parameter": lambda: nn.Parameter(base.clone()),
    "from numpy": frozen_array,
    "nan and infinity": lambda: torch.tensor([[float("nan"), float("inf"), -float("inf"), -0.0]]),
    "python number": lambda: 3,
    "none": lambda: None,
    "text": lambda: "3",
    "list": lambda: [1.0, 2.0],
}

NEED_NOT_WORK = {"nested", "mkldnn", "quantised", "sparse csr", "subclass"}
"""What Dynamo itself does not always take, and subclasses: a clear exception is enough."""


def pointwise(x: Tensor) -> Tensor:
    return x * 2 + 1


def reduction(x: Tensor) -> Tensor:
    return (x + x).sum(-1)


def product(x: Tensor) -> Tensor:
    return x @ x.mT


def against(x: Tensor) -> Tensor:
    return torch.ones(3, 4) + x


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    """The result, or the exception."""
    try:
        with torch.no_grad():
            return function(*args)
    except Exception as error:
        return error


def plain(result: Any) -> list[Tensor]:
    """Tensors that can be compared: wrappers opened, layouts and lazy bits resolved."""
    found: list[Tensor] = []
    for each in tensors(result):
        parts = [each.a, each.b] if isinstance(each, TwoTensor) else [each]
        for part in parts:
            if part.is_quantized:
                part = part.dequantize()
            if part.layout == torch.jagged:
                part = part.values()
            elif part.layout != torch.strided:
                part = part.to_dense()
            found.append(part.as_subclass(torch.Tensor).resolve_conj().resolve_neg())
    return found


def check(actual: Any, expected: Any, may_refuse: bool) -> None:
    """`actual` is as good an outcome as eager's `expected`."""
    if isinstance(actual, Exception):
        assert str(actual).strip(), f"{type(actual).__name__} without a message"
        assert may_refuse or isinstance(expected, Exception), f"refused: {actual!r}"
        return
    assert not isinstance(expected, Exception), f"eager raises {expected!r}, compiled does not"
    ours, eager = plain(actual), plain(expected)
    assert len(ours) == len(eager)
    for mine, theirs in zip(ours, eager, strict=True):
        assert mine.device == theirs.device
        if mine.device.type == "meta":
            assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
        elif mine.dtype == torch.float8_e4m3fn:
            assert torch.equal(mine.float(), theirs.float())
        else:
            assert mismatch(mine, theirs) is None, mismatch(mine, theirs)
    if isinstance(expected, Tensor):
        assert type(actual) is type(expected)
        assert actual.layout == expected.layout


@pytest.mark.parametrize("function", [pointwise, reduction, product, against])
@pytest.mark.parametrize("name", INPUTS)
def test_odd_input(name: str, function: Callable[[Tensor], Tensor], backend: str) -> None:
    expected = outcome(function, INPUTS[name]())
    compiled = torch.compile(function, backend=backend)
    check(outcome(compiled, INPUTS[name]()), expected, name in NEED_NOT_WORK)


@pytest.mark.parametrize("dynamic", [False, True])
def test_odd_input_after_an_ordinary_one(dynamic: bool, backend: str) -> None:
    """The guards send each to a program of its own, and the first program goes on working."""
    compiled = torch.compile(pointwise, backend=backend, dynamic=dynamic)
    ordinary = torch.randn(3, 4)
    with torch._dynamo.config.patch(recompile_limit=len(INPUTS) + 1):
        for name in INPUTS:
            expected = outcome(pointwise, INPUTS[name]())
            check(outcome(compiled, INPUTS[name]()), expected, name in NEED_NOT_WORK)
            assert torch.equal(compiled(ordinary), pointwise(ordinary))


def add_twice(a: Tensor, b: Tensor) -> Tensor:
    a.add_(1)
    return a * b


ALIASES: dict[str, Callable[[Tensor], tuple[Tensor, Tensor]]] = {
    "the same tensor": lambda x: (x, x),
    "a view of it": lambda x: (x, x.view(4, 4)),
    "its transpose": lambda x: (x, x.t()),
    "overlapping rows": lambda x: (x[:3], x[1:]),
    "disjoint rows": lambda x: (x[:2], x[2:]),
    "written through an expanded view": lambda x: (x[:1].expand(4, 4), x),
    "detached": lambda x: (x, x.detach()),
}


@pytest.mark.parametrize("name", ALIASES)
def test_aliasing_arguments(name: str, backend: str) -> None:
    outcomes: list[Any] = []
    for run in (torch.compile(add_twice, backend=backend), add_twice):
        storage = torch.arange(16.0).reshape(4, 4)
        outcomes.append((outcome(run, *ALIASES[name](storage)), storage))
    (actual, ours), (expected, theirs) = outcomes
    check(actual, expected, may_refuse=name == "detached")  # AOTAutograd refuses this one itself
    if not isinstance(actual, Exception):
        assert torch.equal(ours, theirs)


def test_index_out_of_range_is_an_exception(backend: str) -> None:
    table = torch.randn(5, 3)
    compiled = torch.compile(lambda i: table[i] * 2, backend=backend)
    assert torch.equal(compiled(torch.tensor([0, -1, 4])), table[[0, -1, 4]] * 2)
    with pytest.raises(IndexError, match="out of"):
        compiled(torch.tensor([0, 5, 1]))
    assert torch.equal(compiled(torch.tensor([1, 1, 2])), table[[1, 1, 2]] * 2)


def test_integer_division_by_zero_is_an_exception(backend: str) -> None:
    compiled = torch.compile(lambda a, b: a // b, backend=backend)
    with pytest.raises(RuntimeError, match=r"(?i)zero"):
        compiled(torch.tensor([3, 4]), torch.tensor([1, 0]))
    lowest = torch.tensor([torch.iinfo(torch.int64).min])
    assert torch.equal(compiled(lowest, torch.tensor([3])), lowest // 3)


def test_a_view_that_leaves_the_memory_is_refused_as_by_eager() -> None:
    def behind(x: torch.Tensor) -> torch.Tensor:
        return torch.as_strided(x + 1, (2,), (1,), 5)

    compiled = torch.compile(behind, backend="kernelmill", dynamic=True)
    assert torch.equal(compiled(torch.arange(9.0)), torch.tensor([6.0, 7.0]))
    with pytest.raises(RuntimeError, match="out of bounds"):
        compiled(torch.arange(4.0))
