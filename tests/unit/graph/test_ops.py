"""The facts of operators hold, on numbers: what the table says is not only said."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from kernelmill.core.dtype import BOOL, F32, I32, DType, to_torch
from kernelmill.graph.eager import EAGER
from kernelmill.graph.ir import Combine, Image, OpDef, OpKind, TensorType, ZeroSign
from kernelmill.graph.ops import COMBINED_BY, OPS, infer
from kernelmill.graph.typing import TypingError
from kernelmill.kernel.ir import ALL

NUMBERS = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, -2.5, 3.0, 7.0, -8.0, 0.1, -0.3, 11.0, -13.5]
HALVES = torch.tensor([*NUMBERS, 1e-7, -6e-8, 6.1e-5, 2049.0, -65504.0, 333.3], dtype=torch.float16)


def pointwise(types: tuple[DType, ...]) -> list[str]:
    """The operators that take operands of these types (cast and bitcast need an attribute)."""
    found: list[str] = []
    for name, op in OPS.items():
        if op.kind is not OpKind.POINTWISE or op.attrs or op.arity != len(types):
            continue
        try:
            infer(name, [TensorType(dtype, (2,)) for dtype in types], {})
        except TypingError:
            continue
        found.append(name)
    return found


def operands(op: OpDef, dtype: DType, values: Tensor) -> list[Tensor]:
    """Every combination of these values."""
    count = op.arity or 0
    pairs = torch.tensor(list(itertools.product(values.tolist(), repeat=count)))
    return [pairs[:, n].to(to_torch(dtype)) for n in range(count)]


FLOATS = [name for count in (1, 2) for name in pointwise((F32,) * count)]


@pytest.mark.parametrize("name", OPS)
def test_operators_have_a_meaning_and_a_kernel_operation(name: str) -> None:
    op = OPS[name]
    assert name in EAGER or name in ("layout", "aten")
    assert {op.kernel_op, op.kernel_op_bool} <= {None, *ALL}
    assert op.title and op.title == op.title.strip()


@pytest.mark.parametrize("name", [name for name in FLOATS if OPS[name].exact])
def test_exact_operators_need_no_rounding(name: str) -> None:
    """Computed on halves in f32, the result is a half."""
    args = operands(OPS[name], F32, HALVES.float())
    found = EAGER[name](args, {})
    assert torch.equal(found.half().float().nan_to_num(), found.nan_to_num())


def test_operators_that_round_are_not_called_exact() -> None:
    """Those that are not called exact do give more digits than a half has, where they give floats:
    the flag is not left out for nothing."""
    for name in FLOATS:
        found = EAGER[name](operands(OPS[name], F32, HALVES.float()), {})
        if not OPS[name].exact and found.dtype == torch.float32:
            finite = found[found.isfinite() & (found.abs() < 65504)]
            assert not torch.equal(finite.half().float(), finite), name


@pytest.mark.parametrize("name", [name for name in OPS if OPS[name].commutative])
def test_commutative_operators(name: str) -> None:
    op = OPS[name]
    for dtype in (F32, I32, BOOL):
        if name in pointwise((dtype, dtype)):
            a, b = operands(op, dtype, torch.tensor(NUMBERS))
            assert torch.equal(EAGER[name]([a, b], {}), EAGER[name]([b, a], {})), dtype


@pytest.mark.parametrize("name", [name for name in FLOATS if OPS[name].image is not Image.ANY])
def test_images(name: str) -> None:
    found = EAGER[name](operands(OPS[name], F32, torch.tensor(NUMBERS)), {})
    assert found.isfinite().all()
    if OPS[name].image is Image.NONNEGATIVE:
        assert (found >= 0).all()


@pytest.mark.parametrize("name", FLOATS)
def test_signs_of_zeros_decide_nothing_unless_it_is_said(name: str) -> None:
    op = OPS[name]
    args = operands(op, F32, torch.tensor(NUMBERS))
    spared = {ZeroSign.NONE: op.arity, ZeroSign.DIVISOR: (op.arity or 0) - 1, ZeroSign.ALL: 0}
    for place in range(spared[op.zero_sign] or 0):
        turned = [torch.where(x == 0, -x, x) if n == place else x for n, x in enumerate(args)]
        a, b = EAGER[name](args, {}), EAGER[name](turned, {})
        assert torch.equal(a.nan_to_num(1e30, 1e31, -1e31), b.nan_to_num(1e30, 1e31, -1e31))


def test_modes_combine_as_their_operators() -> None:
    x, new = torch.tensor(NUMBERS), torch.tensor(NUMBERS[::-1])
    index = torch.arange(len(NUMBERS))
    for mode, op in COMBINED_BY.items():
        written = EAGER["scatter"]([x, index, new], {"dim": 0, "mode": mode})
        assert torch.equal(written, EAGER[op.name]([x, new], {})), mode
    assert {*COMBINED_BY} == {*Combine} - {Combine.SET}


@pytest.mark.parametrize("name", [name for name in OPS if OPS[name].rearranges])
def test_rearranging_views_have_each_element_once(name: str) -> None:
    x = torch.arange(24.0).reshape(2, 3, 4)
    attrs = {"dims": (2, 0, 1), "shape": (4, 6), "strides": (12, 4, 1)}
    found = x if name == "layout" else EAGER[name]([x], attrs)
    assert math.prod(found.shape) == 24 and sorted(found.flatten().tolist()) == list(range(24))
