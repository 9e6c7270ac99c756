"""One kernel copies weights of every shape into panels."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from kernelmill.core.dtype import BF16, F32
from kernelmill.core.target.machine import host
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Value, row_major
from kernelmill.lower.elements.emitter import Location
from kernelmill.lower.weights.panel_views import PanelCopy, Rows, panel_copy
from tests.unit.lower.launched import Launched, assert_margins_untouched, interpret, surrounded

LANES = host().isa.lanes(F32)

SHAPES = [
    # groups, outs, channels, taps, vectors of a panel, block of channels
    (1, 2 * LANES, 3 * LANES, 1, 2, 1),
    (1, 3 * LANES - 5, LANES + 3, 1, 2, 1),
    (1, 5, 7, 1, 4, 1),
    (1, LANES, 700, 1, 1, 1),
    (2, LANES + 1, 8, 1, 1, 1),
    (1, 2 * LANES, 8, 9, 1, 8),
    (1, 2 * LANES - 3, 12, 9, 3, 4),
    (3, LANES, 6, 4, 1, 2),
    (1, LANES, 130, 5, 1, 130),
]


def copied(shape: tuple[int, ...], vectors: int, block: int) -> PanelCopy | None:
    """What copies a weight of this shape that lies in buffer 7, row-major."""
    value = GraphBuilder("rows").input("w", F32, shape)
    return panel_copy(Rows(value, vectors * LANES, block), at(value), host())


def at(value: Value, offset: int = 0) -> Callable[[Value], Location | None]:
    elements = 1
    for size in value.shape:
        assert isinstance(size, int)
        elements *= size
    place = Location(7, value.dtype, row_major(value.shape), elements, offset)
    return lambda asked: place if asked is value else None


def panels(weight: Tensor, width: int, block: int) -> Tensor:
    """[group][panel][block][tap][channel][out], outs that are not there being zeros."""
    groups, outs, channels, taps = weight.shape
    full = torch.nn.functional.pad(weight, (0, 0, 0, 0, 0, -outs % width))
    parts = full.reshape(groups, -1, width, channels // block, block, taps)
    return parts.permute(0, 1, 3, 5, 4, 2).contiguous()


@pytest.mark.parametrize("case", SHAPES, ids=str)
@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "interpreted"])
def test_copies_rows_into_panels(case: tuple[int, ...], compiled: bool) -> None:
    *shape, vectors, block = case
    copy = copied(tuple(shape), vectors, block)
    assert copy is not None and copy.source == 7
    weight = torch.randn(shape)
    expected = panels(weight, vectors * LANES, block)
    made = surrounded(torch.full_like(expected, float("nan")))
    sizes = dict(zip((s.name for s in copy.kernel.dims), copy.dims, strict=True))
    tensors = {"b0": weight, "b1": made}
    if compiled:
        Launched(copy.kernel)(tensors, sizes)
    else:
        interpret(copy.kernel, tensors, sizes)
    torch.testing.assert_close(made, expected, rtol=0, atol=0)
    assert_margins_untouched(made)


def test_one_kernel_is_for_all_sizes() -> None:
    plain = [copied((1, 64, depth, 1), 2, 1) for depth in (3, 64, 1000)]
    tapped = [copied((1, outs, 16, 9), 2, 16) for outs in (5, 64, 256)]
    assert len({copy.kernel.name for copy in plain if copy is not None}) == 1
    assert len({copy.kernel.name for copy in (*plain, *tapped) if copy is not None}) == 2


@pytest.mark.parametrize("width", [LANES + 1, LANES - 1])
def test_panels_of_broken_vectors_are_left_to_others(width: int) -> None:
    value = GraphBuilder("rows").input("w", F32, (1, 64, 64, 1))
    assert panel_copy(Rows(value, width), at(value), host()) is None


def test_rows_that_do_not_follow_each_other_are_left_to_others() -> None:
    builder = GraphBuilder("rows")
    weight = builder.input("w", F32, (64, 32))
    turned = builder.emit("permute", weight, dims=(1, 0))
    rows = builder.emit("reshape", turned, shape=(1, 32, 64, 1))
    assert panel_copy(Rows(rows, LANES), at(weight), host()) is None


def test_a_place_inside_of_a_buffer_and_half_types_are_left_to_others() -> None:
    value = GraphBuilder("rows").input("w", F32, (1, 64, 64, 1))
    assert panel_copy(Rows(value, LANES), at(value, offset=64), host()) is None
    half = GraphBuilder("rows").input("w", BF16, (1, 64, 64, 1))
    assert panel_copy(Rows(half, 2 * LANES), at(half), host()) is None
