"""Layouts of constant operands of a contraction, packed once for the schedule that reads them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Protocol

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim
from kernelmill.core.dtype import DType
from kernelmill.core.target.dot_units import MULTIPLY_ADD, DotUnit
from kernelmill.graph.builder import GraphBuilder
from kernelmill.lower.elements.emitter import Location
from kernelmill.lower.emit.access import Matrix
from kernelmill.lower.emit.packed import PackedWeights
from kernelmill.lower.emit.pieces import Pieces
from kernelmill.lower.schedule.template import GroupContext
from kernelmill.lower.templates.matmul.spec import Contraction, Roles
from kernelmill.lower.weights.panel_views import panel_view


@dataclass(frozen=True)
class ProductSizes:
    """The sizes that register tiles are chosen by.

    m         rows; of a product that finds them, those that one is expected to have
    n, depth  columns, and products in each sum
    packed_a  A is constant, in panels
    shared_b  panels of B have one width whatever m is
    """

    m: Dim
    n: Dim
    depth: Dim
    accumulate: DType
    packed_a: bool = False
    shared_b: bool = False

    @staticmethod
    def of(spec: Contraction) -> ProductSizes:
        """Return the sizes of a contraction of one batch index."""
        shared = spec.b.packed is not None or spec.b.panelled
        packed = spec.a.packed is not None
        return ProductSizes(spec.m, spec.n, spec.depth, spec.accumulate, packed, shared)


@dataclass(frozen=True)
class Packable:
    """A product whose constant operands are to be packed.

    context, origin  its group, and where it is in the user's code
    each             each batch index has a matrix B of its own
    computes_b       B is made of smaller numbers as it is read
    unit             what multiplies neighbours along k at a time
    pieces           how products of f32 are made of pieces, if they are
    roles            its operands; rows of a group are counted from 0
    sizes            nothing packed
    pack_leaves      has what B is computed from packed in panels of a width
    """

    context: GroupContext
    origin: str
    each: bool
    computes_b: bool
    unit: DotUnit
    pieces: Pieces | None
    roles: Roles
    sizes: ProductSizes
    pack_leaves: Callable[[int], PackedWeights]


class Layout(Hashable, Protocol):
    """The layout that a schedule wants for constant operands, equal for equal groups."""

    def pack(self, product: Packable) -> PackedWeights:
        """Pack the constant operands."""
        ...


def pack_panels(
    context: GroupContext, matrix: Matrix, width: int, unit: DotUnit = MULTIPLY_ADD,
    each: bool = False, dtype: DType | None = None,
) -> Location | None:  # fmt: skip
    """Have an operand packed into panels, of `each` batch index its own, in another `dtype` if one
    is given; None where it is not constant, or not of known sizes, or not the same for every batch
    index."""
    if not are_known(matrix.outer, *matrix.k, *(matrix.batch if each else ())):
        return None
    seed, value = context.group.seed, matrix.value
    assert seed is not None
    if dtype is not None and dtype != value.dtype:
        value = GraphBuilder("widened").emit("cast", value, dtype=dtype)
    found = panel_view(replace(matrix, value=value), width, unit.group, seed.origin, each)
    if found is None:
        return None
    view, rows = found
    return context.pack(view, rows if dtype is None else None)


def are_known(*sizes: Dim) -> bool:
    """Return whether none of these sizes is symbolic."""
    return all(isinstance(size, int) for size in sizes)
