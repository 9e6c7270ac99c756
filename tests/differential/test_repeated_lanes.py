"""Vectors of which neighbouring lanes read one element: it is loaded once, not gathered."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kernelmill.core.dim import Dim
from kernelmill.core.dtype import BF16, BOOL, F32, F64, I64, U8, DType
from kernelmill.core.target.machine import committed, host
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Value
from kernelmill.kernel.ir import Gather, Kernel, statements_of
from kernelmill.lower.driver.lowered import Lowered
from tests.compiled import check, graph, whole
from tests.unit.codegen.native import TARGETS as LEVELS

TARGETS = [committed(isa) for isa in LEVELS.values()]


def repeated(times: int, length: int) -> Callable[[GraphBuilder, Value, Value], Value]:
    """The elements of one operand so often, plus another one."""

    def build(b: GraphBuilder, x: Value, y: Value) -> Value:
        rows, groups = x.shape
        shape: tuple[Dim, ...] = (rows, groups, times)
        wide = b.emit("expand", b.emit("reshape", x, shape=(rows, groups, 1)), shape=shape)
        flat = b.emit("reshape", wide, shape=(rows, length))
        return b.emit("add" if y.dtype != BOOL else "or", flat, y)

    return build


def gathers(made: Lowered) -> int:
    kernels: list[Kernel] = list(made.kernels.values())
    return sum(isinstance(s, Gather) for kernel in kernels for s in statements_of(kernel.body))


@pytest.mark.parametrize("dtype", [F32, F64, BF16, I64, U8], ids=str)
@pytest.mark.parametrize("times", [2, 3, 4, 8, 16, 64])
@pytest.mark.parametrize("groups", [1, 2, 7, 32])
def test_repeated(dtype: DType, times: int, groups: int) -> None:
    torch.manual_seed(0)
    length = times * groups
    g = graph(repeated(times, length), (dtype, (3, groups)), (dtype, (3, length)))
    made = check(g, whole(dtype, 3, groups), whole(dtype, 3, length), interpret=True)
    even = length % host().isa.lanes(F32) == 0 and times in (2, 4, 8, 16, 64)
    if even and dtype in (F32, F64):
        assert not gathers(made)


def test_on_every_processor() -> None:
    g = graph(repeated(4, 128), (F32, (3, 32)), (F32, (3, 128)))
    check(g, whole(F32, 3, 32), whole(F32, 3, 128), targets=TARGETS)
