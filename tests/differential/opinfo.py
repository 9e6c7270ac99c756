"""PyTorch's operator database as a test: one sample compiled by a backend, compared with eager.

The sample goes through AOTAutograd and the backend's compiler without Dynamo: the same graph, some
ten times quicker. What AOTAutograd itself cannot trace (data-dependent shapes, sparse results) runs
in eager under torch.compile too, and counts as "uncaptured".
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, fx, nn
from torch._dynamo.backends.registry import lookup_backend
from torch._dynamo.source import ConstantSource
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from kernelmill.core.errors import UnsupportedError
from tests.compiled import reported
from tests.tolerances import mismatch

if TYPE_CHECKING:
    from torch.testing._internal.opinfo.core import OpInfo, SampleInput

DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool)

SEED = 42
"""Before each run. The database's random operators set this one themselves, but only in eager."""

Status = Literal["passed", "fell back", "failed", "uncaptured"]

UNDEFINED_VALUES = frozenset(
    "empty empty_like empty_permuted empty_strided new_empty new_empty_strided".split()
)
"""Operators whose result's contents mean nothing."""


@dataclass(frozen=True)
class Verdict:
    """What became of one sample; `detail` says what is wrong, or what fell back."""

    status: Status
    detail: str = ""


class Flat(nn.Module):
    """A function of tensors alone that returns a flat list of tensors."""

    def __init__(self, function: Callable[..., Any], args: Any) -> None:
        super().__init__()
        self.function = function
        leaves, self.structure = pytree.tree_flatten(args)
        self.leaves = leaves
        self.places = [at for at, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

    @property
    def inputs(self) -> list[Tensor]:
        return [self.leaves[place] for place in self.places]

    def forward(self, *tensors: Tensor) -> tuple[Any, ...]:
        leaves = list(self.leaves)
        for place, tensor in zip(self.places, tensors, strict=True):
            leaves[place] = tensor
        args, kwargs = pytree.tree_unflatten(leaves, self.structure)
        return tuple(pytree.tree_leaves(self.function(*args, **kwargs)))


@cache
def operators() -> dict[str, OpInfo]:
    """The database by full name ("nn.functional.pad.constant"), in its own order."""
    # Here, since it takes four seconds to import.
    from torch.testing._internal.common_methods_invocations import op_db

    assert len({op.full_name for op in op_db}) == len(op_db)
    return {op.full_name: op for op in op_db}


def samples(op: OpInfo, dtype: torch.dtype) -> Iterator[SampleInput]:
    """The samples of one dtype, the same ones at every call."""
    torch.manual_seed(0)
    yield from op.sample_inputs("cpu", dtype, requires_grad=False)


def supports(op: OpInfo, dtype: torch.dtype) -> bool:
    return dtype in op.supported_dtypes("cpu")


def _clone(tensors: list[Tensor]) -> list[Tensor]:
    """Copies with the layout of the originals, strides included."""
    return [_clone_one(tensor) for tensor in tensors]


def _clone_one(tensor: Tensor) -> Tensor:
    if tensor.layout != torch.strided or tensor.is_conj() or tensor.is_neg():
        return tensor.clone()
    copy = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    return copy.copy_(tensor) if all(_strides(tensor)) else tensor.clone()


def _double(leaf: Any) -> Any:
    if isinstance(leaf, Tensor) and leaf.is_floating_point():
        return leaf.double()
    return torch.float64 if leaf in (torch.float32, torch.bfloat16) else leaf


def _exact(flat: Flat, inputs: list[Tensor]) -> tuple[Any, ...] | None:
    """The result in float64, where the operator has one."""
    try:
        leaves = [_double(leaf) for leaf in flat.leaves]
        wide = Flat(flat.function, pytree.tree_unflatten(leaves, flat.structure))
        torch.manual_seed(SEED)
        return wide(*map(_double, inputs))
    except Exception:  # many an operator refuses float64 together with its other arguments
        return None


def compile_flat(flat: Flat, backend: Any, dynamic: bool = False) -> Callable[..., Any]:
    """`flat` through AOTAutograd and a backend, or the one of this name; `dynamic` makes every size
    a symbol."""
    static = not dynamic
    mode = FakeTensorMode(shape_env=ShapeEnv(), static_shapes=static)
    with torch.no_grad(), tracing(TracingContext(mode)):
        fakes = [
            mode.from_tensor(tensor, static_shapes=static, source=ConstantSource(f"arg{place}"))
            for place, tensor in enumerate(_clone(flat.inputs))
        ]
        return lookup_backend(backend)(_graph_module(flat, len(fakes)), fakes)


def _graph_module(flat: Flat, count: int) -> fx.GraphModule:
    """One call of `flat`: backends expect a graph, and AOTAutograd traces through it."""
    graph = fx.Graph()
    inputs = tuple(graph.placeholder(f"arg{place}") for place in range(count))
    graph.output(graph.call_module("flat", inputs))
    return fx.GraphModule({"flat": flat}, graph)


def check(op: OpInfo, sample: SampleInput, backend: str, dynamic: bool = False) -> Verdict:
    """Compiles one sample and compares values, dtypes, shapes and strides with eager's."""
    flat = Flat(op.op, ((sample.input, *sample.args), sample.kwargs))
    return check_flat(flat, backend, dynamic, values=op.name not in UNDEFINED_VALUES)


def check_flat(flat: Flat, backend: str, dynamic: bool = False, values: bool = True) -> Verdict:
    """As `check`, for any function of tensors."""
    theirs = _clone(flat.inputs)
    expected = _outcome(flat, theirs)
    try:
        compiled, fallbacks = _compile(flat, backend, dynamic)
    except Exception as error:
        return _compile_error(error, flat, dynamic, expected)
    ours = _clone(flat.inputs)
    actual = _outcome(compiled, ours)
    if isinstance(expected, Exception) or isinstance(actual, Exception):
        return _compare_errors(actual, expected)
    wrong = _differences(actual, expected, flat, values) or _differences(ours, theirs, None, True)
    if wrong:
        return Verdict("failed", wrong)
    return Verdict("fell back", fallbacks[0]) if fallbacks else Verdict("passed")


def _compile(flat: Flat, backend: str, dynamic: bool) -> tuple[Callable[..., Any], list[str]]:
    """The compiled function, and why parts of it run in torch.

    Only UnsupportedError may send a whole graph to torch: with KERNELMILL_STRICT all other errors
    of the compiler come out.
    """
    observed, reports = reported(backend)
    try:
        os.environ["KERNELMILL_STRICT"] = "1"
        compiled = compile_flat(flat, observed, dynamic)
    except UnsupportedError as error:
        del os.environ["KERNELMILL_STRICT"]
        return compile_flat(flat, backend, dynamic), [f"whole graph: {error}"]
    finally:
        os.environ.pop("KERNELMILL_STRICT", None)
    calls = [call for report in reports for call in report.fallbacks]
    return compiled, [f"{operator}: {reason}" for operator, reason, _ in calls]


def _outcome(function: Callable[..., Any], tensors: list[Tensor]) -> Any:
    torch.manual_seed(SEED)
    try:
        with torch.no_grad():
            return function(*tensors)
    except Exception as error:
        return error


def _compile_error(error: Exception, flat: Flat, dynamic: bool, expected: Any) -> Verdict:
    if isinstance(expected, Exception):
        return Verdict("passed")
    detail = f"{type(error).__name__}: {error}"[:500]
    try:
        compile_flat(flat, "aot_eager", dynamic)
    except Exception:
        return Verdict("uncaptured", detail)
    return Verdict("failed", f"does not compile: {detail}")


def _compare_errors(actual: Any, expected: Any) -> Verdict:
    if not isinstance(expected, Exception):
        return Verdict("failed", f"raises {type(actual).__name__}: {actual}"[:500])
    if not isinstance(actual, Exception):
        return Verdict("failed", f"eager raises {expected!r}, compiled code does not"[:500])
    if not isinstance(actual, type(expected)):
        return Verdict("failed", f"eager raises {expected!r}, compiled code {actual!r}"[:500])
    return Verdict("passed")


def _differences(actual: Any, expected: Any, flat: Flat | None, values: bool) -> str:
    if len(actual) != len(expected):
        return f"{len(actual)} results instead of {len(expected)}"
    exact: Any = None
    for number, (mine, eager) in enumerate(zip(actual, expected, strict=True)):
        if not isinstance(eager, Tensor):
            if mine != eager and not (mine != mine and eager != eager):
                return f"result {number}: {mine!r} instead of {eager!r}"
            continue
        wrong = _difference(mine, eager, None, values)
        if wrong and flat is not None and eager.is_floating_point():
            exact = exact or _exact(flat, _clone(flat.inputs))
            answer = exact[number] if exact is not None else None
            wrong = _difference(mine, eager, answer, values)
        if wrong:
            return f"result {number}: {wrong}"[:500]
    return ""


def _difference(mine: Any, eager: Tensor, answer: Tensor | None, values: bool) -> str:
    if not isinstance(mine, Tensor):
        return f"{mine!r} instead of a tensor"
    if eager.layout != torch.strided:
        return "" if mine.layout == eager.layout else f"layout {mine.layout}"
    if not values and (mine.shape, mine.dtype) == (eager.shape, eager.dtype):
        return ""
    wrong = mismatch(mine, eager, answer)
    if wrong:
        return wrong
    dense = torch._prims_common.is_non_overlapping_and_dense_or_false(eager)
    if dense and _strides(mine) != _strides(eager):
        return f"strides {mine.stride()} instead of {eager.stride()} for {tuple(eager.shape)}"
    return ""


def _strides(tensor: Tensor) -> list[int]:
    """Those that decide where an element lies."""
    if tensor.numel() == 0:
        return []
    return [step for step, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1]
