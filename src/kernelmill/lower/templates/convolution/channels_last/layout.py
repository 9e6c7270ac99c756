"""The layout with vectors of channels: constant weights, results stored channels last, and the
choice of a schedule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import cast, get_args

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, product
from kernelmill.core.dtype import I8
from kernelmill.core.target.machine import Machine
from kernelmill.graph.ir import Node, Value
from kernelmill.kernel.ir import Value as Register
from kernelmill.lower.elements.axes import fresh_axes, part_count
from kernelmill.lower.elements.domain import AccessKind, IndexAccess, collect
from kernelmill.lower.elements.emitter import Emitter
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.elements.views import Index
from kernelmill.lower.emit.access import computes, steps_by_one
from kernelmill.lower.emit.context import accumulator, task_index
from kernelmill.lower.emit.packed import PackedWeights, widens_vectors
from kernelmill.lower.fusion.costs import has_chains
from kernelmill.lower.schedule.candidate import OPEN, Candidate, first_of, other_cuts
from kernelmill.lower.schedule.template import Binding, Epilogue, GroupContext, Template
from kernelmill.lower.templates.convolution.channels_last.dense import Dense
from kernelmill.lower.templates.convolution.channels_last.depthwise import Depthwise
from kernelmill.lower.templates.convolution.channels_last.spec import (
    Convolution,
    Geometry,
    Place,
    Sizes,
)

Schedule = Depthwise | Dense
"""In order of preference; the last one accepts every convolution."""

_KINDS: tuple[type[Schedule], ...] = get_args(Schedule)


def plan_convolution(geometry: Geometry, machine: Machine, candidate: Candidate = OPEN) -> Schedule:
    """Plan the schedule for this processor, with the sizes that the candidate fixes."""
    plans = (kind.plan(geometry, machine, candidate) for kind in _KINDS)
    return next(plan for plan in plans if plan is not None)


def convolution_candidates(geometry: Geometry, schedule: Schedule) -> list[Candidate]:
    """Return candidates to try in place of the cost model's schedule, the likelier first; none for
    a symbolic number of images."""
    if not isinstance(geometry.images, int):
        return []
    return first_of(schedule.candidates(geometry), _tasks(geometry, schedule))


def _tasks(geometry: Geometry, schedule: Schedule) -> Iterator[Candidate]:
    rows, panels = schedule.rows, schedule.panels
    most_rows, most_panels = schedule.outputs[1], schedule.most_panels(geometry)
    for down, across in (*other_cuts(rows, panels), (rows, most_panels), (most_rows, panels)):
        down = min(part_count(down, schedule.down) * schedule.down, most_rows)
        across = min(across, most_panels)
        if (down, across) != (rows, panels):
            yield Candidate(rows=down, panels=across)


def convolves_last(context: GroupContext) -> bool:
    """Return whether the group is a convolution with constant weights, all of whose results are
    stored channels last."""
    node, targets = context.group.seed, context.targets
    if node is None or not blockable(node) or product(node.result.shape) == 0:
        return False
    shape = node.result.shape
    last = all(v.shape == shape and location.strides[1] == 1 for v, location in targets.items())
    return last and context.is_constant(node.operands[1])


def blockable(node: Node) -> bool:
    """Return whether the template can compute this node: a convolution of known sizes (but for the
    number of images) whose groups are single channels or hold some vectors of them."""
    if node.op != "conv" or len(node.result.shape) > 5:
        return False
    x, weight = node.operands
    known = (*x.shape[1:], *weight.shape, *node.result.shape[1:])
    groups = node.attrs["groups"]
    if not all(isinstance(size, int) for size in known) or not isinstance(groups, int):
        return False
    if product(known) == 0 or not (x.dtype.is_float or x.dtype == I8):
        return False
    outs, channels = weight.shape[0], weight.shape[1]
    assert isinstance(outs, int)
    single = groups == 1 or (outs == groups and channels == 1)
    return single or outs // groups >= FEW_OUTS


FEW_OUTS = 12
"""Fewer output channels than these fill a vector badly."""


class ChannelsLastBinding(Binding["Convolution[Schedule]"]):
    """A group around a convolution, with vectors of channels."""

    def packing(self, candidate: Candidate) -> Schedule:
        """Return the schedule, in whose order weights are packed."""
        return plan_convolution(self.geometry, self.context.machine, candidate)

    def pack(self, packing: Schedule) -> PackedWeights:
        """Pack the weights in panels."""
        location = self.context.pack(*packing.packed(self.seed, self.geometry))
        assert location is not None, "the weights are constant"
        return PackedWeights(b=location, packing=packing)

    def spec(self, emitter: Emitter, packed: PackedWeights) -> Convolution[Schedule]:
        """Return the spec of the convolution."""
        assert packed.b is not None
        schedule = cast("Schedule", packed.packing)
        elements = _Elements(
            emitter, self.seed, Epilogue(emitter, self.context.group, self.context.targets)
        )
        return Convolution(
            self.geometry, elements.pixel, emitter.param(packed.b, "in"), elements.keep,
            elements.prefetch, schedule,
            has_chains(self.context.group.nodes, self.context.machine.isa),
        )  # fmt: skip

    @cached_property
    def geometry(self) -> Geometry:
        """Sizes of the convolution, and the way its image is read."""
        node = self.seed
        x, weight = node.operands
        groups, channels = node.attrs["groups"], weight.shape[1]
        outs = weight.shape[0]
        assert isinstance(groups, int) and isinstance(channels, int) and isinstance(outs, int)
        planar, direct = self._reading(x)
        depthwise = groups > 1 and channels == 1 and outs == groups
        return Geometry(
            x.shape[0], groups, channels, outs // groups,
            _three(x.shape[2:], 1), _three(node.result.shape[2:], 1), _three(weight.shape[2:], 1),
            _three(node.attrs["stride"], 1), _three(node.attrs["dilation"], 1),
            _three(node.attrs["padding"], 0), planar and not depthwise,
            direct and x.dtype == accumulator(x.dtype), accumulator(x.dtype),
            bool(self._images_read()), widens_vectors(weight.dtype, self.context.machine),
        )  # fmt: skip

    def _images_read(self) -> list[IndexAccess]:
        epilogue = Epilogue(
            self.context.emitter(PackedWeights()), self.context.group, self.context.targets
        )
        return epilogue.images_read((0,) * len(self.seed.result.shape))

    def _reading(self, x: Value) -> tuple[bool, bool]:
        """Return whether columns of the image rather than channels are contiguous, and whether an
        element is read by a plain load along channels."""
        _, index = fresh_axes(x.shape, "x", {})
        stored = self.context.stored
        accesses = collect([(x, index)], stored, set())
        loads = [access.expression for access in accesses if access.kind is AccessKind.LOAD]
        direct = len(loads) == len(accesses) == 1 and not computes(x, stored)
        last = index[1] != 0 and all(steps_by_one(load, index[1]) for load in loads)
        line = index[-1] != 0 and all(steps_by_one(load, index[-1]) for load in loads)
        return line and not last, direct and last


@dataclass(frozen=True)
class _Elements:
    emitter: Emitter
    seed: Node
    epilogue: Epilogue

    def pixel(self, image: Dim, channel: Dim, place: Place, lane: Lane | None) -> Register:
        x = self.seed.operands[0]
        index = self._at(image, channel, place)
        index = tuple(0 if size == 1 else i for size, i in zip(x.shape, index, strict=True))
        return self.emitter.read(x, index, lane, accumulator(x.dtype))

    def keep(self, image: Dim, channel: Dim, place: Place, lane: Lane, sums: Register) -> None:
        self.epilogue.store(self._at(image, channel, place), lane, sums)

    def prefetch(self, image: Dim, channel: Dim, place: Place) -> None:
        for access in self.epilogue.images_read(self._at(image, channel, place)):
            assert access.value is not None
            location = self.emitter.stored(access.value)
            assert location is not None
            self.emitter.builder.prefetch(self.emitter.param(location, "in"), access.expression)

    def _at(self, image: Dim, channel: Dim, place: Place) -> Index:
        return (image, channel, *place[2 - len(self.seed.result.shape) :])


def _three(values: object, missing: int) -> Sizes:
    """Return three sizes: the last ones are these, with the missing one before them."""
    assert isinstance(values, tuple)
    *_, planes, rows, columns = (missing, missing, *values)
    return planes, rows, columns


class ChannelsLast(Template[Convolution[Schedule], Schedule]):
    """Convolutions of one to three axes, depthwise ones too."""

    name, layout = "convolution", "channels last"

    def matches(self, context: GroupContext) -> bool:
        """Return whether weights are constant and results are stored channels last."""
        return convolves_last(context)

    def bind(self, context: GroupContext) -> ChannelsLastBinding:
        """Bind the node's sizes, and the way its image is read."""
        return ChannelsLastBinding(context)

    def schedule(
        self, spec: Convolution[Schedule], machine: Machine, candidate: Candidate
    ) -> Schedule:
        """Return the schedule that the weights are packed for."""
        return spec.schedule

    def candidates(self, spec: Convolution[Schedule], schedule: Schedule) -> Sequence[Candidate]:
        """Return other register tiles, blocks of channels and tasks."""
        return convolution_candidates(spec.geometry, schedule)

    def cost(self, schedule: Schedule) -> Dim:
        return schedule.work

    def emit(self, emitter: Emitter, spec: Convolution[Schedule], schedule: Schedule) -> None:
        builder, geometry = emitter.builder, spec.geometry
        grid = (
            geometry.images, schedule.outputs[0], schedule.groups(geometry),
            schedule.row_blocks(), schedule.panel_blocks(geometry),
        )  # fmt: skip
        builder.set_tasks(product(grid))
        task = task_index(builder, grid)
        lane = Lane(builder.fresh_symbol("lane", 0, schedule.lanes - 1), schedule.lanes)
        schedule.emit(builder, lane, spec, task)
