"""Kernels cut where conditions change: concatenations, stacks, padded images and windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from kernelmill.core.dtype import BF16, F32, I64, U8, DType, to_torch
from kernelmill.core.target.machine import committed
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Value
from kernelmill.kernel.ir import Instr, statements_of
from kernelmill.lower.driver.lowered import Lowered
from tests.compiled import check, graph, reported, whole
from tests.unit.codegen.native import TARGETS as LEVELS

TARGETS = [committed(isa) for isa in LEVELS.values()]

WIDTHS = [(1, 1), (3, 8, 5), (16, 8, 24), (40, 1, 7), tuple([8] * 16), (0, 9, 3)]


def selects(made: Lowered) -> int:
    """Instructions that choose by lane."""
    return sum(
        isinstance(each, Instr) and each.op == "select"
        for kernel in made.kernels.values()
        for each in statements_of(kernel.body)
    )


def joined(b: GraphBuilder, *pieces: Value) -> Value:
    doubled = [b.emit("add", piece, piece) for piece in pieces]
    return b.emit("concat", *doubled, dim=len(pieces[0].shape) - 1)


@pytest.mark.parametrize("dtype", [F32, BF16, I64, U8], ids=str)
@pytest.mark.parametrize("rows", [(), (1,), (5,), (2, 3)])
@pytest.mark.parametrize("widths", WIDTHS, ids=str)
def test_pieces_of_a_row(dtype: DType, rows: Sequence[int], widths: Sequence[int]) -> None:
    shapes = [(*rows, width) for width in widths]
    made = check(
        graph(joined, *((dtype, shape) for shape in shapes)),
        *(whole(dtype, *shape) for shape in shapes),
        interpret=True,
    )
    assert not selects(made)


def test_on_every_processor() -> None:
    shapes = [(3, width) for width in (3, 20, 9)]
    g = graph(joined, *((F32, shape) for shape in shapes))
    check(g, *(whole(F32, *shape) for shape in shapes), targets=TARGETS)


@pytest.mark.parametrize("number", [2, 5, 40, 70])
def test_stacked_rows(number: int) -> None:
    def stacked(b: GraphBuilder, *pieces: Value) -> Value:
        return b.emit("concat", *pieces, dim=1)

    shapes = [(3, 1, 9)] * number
    g = graph(stacked, *((F32, shape) for shape in shapes))
    made = check(g, *(whole(F32, *shape) for shape in shapes))
    assert not selects(made)


def test_a_reduction_and_the_concatenation_that_it_reads() -> None:
    def normal(b: GraphBuilder, x: Value, y: Value) -> Sequence[Value]:
        both = b.emit("concat", x, y, dim=1)
        total = b.emit("reshape", b.emit("reduce_sum", both, dims=(1,)), shape=(4, 1))
        return [b.emit("sub", both, b.emit("expand", total, shape=both.shape))]

    check(graph(normal, (F32, (4, 11)), (F32, (4, 30))), whole(F32, 4, 11), whole(F32, 4, 30))


POOLS: list[tuple[str, Callable[[Tensor], Tensor]]] = [
    ("max 3/2/1", lambda x: F.max_pool2d(x, 3, 2, 1)),
    ("max 2/2", lambda x: F.max_pool2d(x, 2)),
    ("max 5/1/2", lambda x: F.max_pool2d(x, 5, 1, 2)),
    ("max 3/3/1 ceil", lambda x: F.max_pool2d(x, 3, 3, 1, ceil_mode=True)),
    ("max dilated", lambda x: F.max_pool2d(x, 3, 1, 1, dilation=2)),
    ("avg 3/2/1", lambda x: F.avg_pool2d(x, 3, 2, 1)),
    ("avg 3/2/1 counted", lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)),
    ("avg 7/3/3", lambda x: F.avg_pool2d(x, 7, 3, 3)),
    ("pad", lambda x: F.pad(x, (2, 1, 0, 3), value=1.5) * 2),
    ("reflect", lambda x: F.pad(x, (2, 1, 1, 2), mode="reflect") + 1),
    ("circular", lambda x: F.pad(x, (1, 2, 2, 1), mode="circular") + 1),
    ("crop", lambda x: F.pad(x, (-1, 2, 1, -2)) + 1),
    ("unfold", lambda x: F.unfold(x, 3, padding=1, stride=2) + 1),
]


@pytest.mark.parametrize("pool", [f for _, f in POOLS], ids=[name for name, _ in POOLS])
@pytest.mark.parametrize("size", [(7, 7), (9, 16), (20, 35), (6, 70)], ids=str)
@torch.no_grad()
def test_windows(pool: Callable[[Tensor], Tensor], size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    for dtype in (F32, BF16):
        x = torch.randn(2, 3, *size).to(to_torch(dtype))
        x[0, 0, 0, 0] = x[1, 2, -1, -1] = float("nan")
        for image in (x, x.to(memory_format=torch.channels_last)):
            torch._dynamo.reset()
            backend, reports = reported()
            found, expected = torch.compile(pool, backend=backend)(image), pool(image)
            tolerance = 1e-5 if dtype == F32 else 1e-2
            torch.testing.assert_close(
                found, expected, atol=tolerance, rtol=tolerance, equal_nan=True
            )
            assert found.stride() == expected.stride() and not reports[0].fallbacks
