"""Schedules settled by whoever measures, in place of the cost model.

Lowering measures nothing itself. It hands over each contraction and attention of known sizes as a
`Tunable`, and emits the kernel under the schedule whose label comes back. Nothing of the program
changes meanwhile: constants are packed only once it is known how.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

from kernelmill.core.dim import Dim, symbols
from kernelmill.core.machine import Machine
from kernelmill.graph.ir import Value
from kernelmill.kernel.ir import Kernel
from kernelmill.lower.elements.emitter import Emitter, Location
from kernelmill.lower.elements.strided import span
from kernelmill.lower.elements.symbols import used_symbols
from kernelmill.lower.fusion.groups import Group
from kernelmill.lower.templates.convolution.bind import ConvolutionEmitter, convolves_last
from kernelmill.lower.templates.matmul.bind import AnyTiling, ContractionEmitter, Pack
from kernelmill.lower.weights.panel_views import Rows

STATUS_BUFFER = -1
"""Stands for the status word among a launch's buffers."""

BY_MODEL = "cost model"
"""The label of the schedule that the cost model chooses."""

_PRETENDED = 1 << 30
"""Number of the first buffer that a trial pretends to have packed."""

Begin = Callable[[Group, Mapping[Value, Location]], Emitter]


@dataclass(frozen=True)
class Tunable:
    """A kernel that can be cut in several ways.

    kernel    as the cost model has it, without a name
    status    positions among its buffers of the status word
    work      estimated nanoseconds of all tasks on one core
    labels    the schedules to choose from, the cost model's first
    make      the kernel under the schedule of that label
    """

    kernel: Kernel
    status: tuple[int, ...]
    work: Dim
    labels: tuple[str, ...]
    make: Callable[[str], Kernel]


Pick = Callable[[Tunable], str]
"""The label of the schedule to use."""


class Trials:
    """The schedules of one graph's contractions and attentions; equal groups share one.

    `constant` says whether a value depends on parameters alone, so that packing it would be for
    once.
    """

    def __init__(self, machine: Machine, pick: Pick, constant: Callable[[Value], bool]) -> None:
        self.machine = machine
        self.pick = pick
        self.constant = constant
        self._settled: dict[Hashable, AnyTiling | None] = {}

    def settle(
        self, key: Hashable, group: Group, targets: Mapping[Value, Location], begin: Begin
    ) -> AnyTiling | None:
        """What is to be given to the group's emitter; None leaves all to the cost model.

        `begin` makes an emitter of an empty kernel for the group, `key` tells groups apart.
        """
        if key not in self._settled:
            trial = _Trial(self, group, targets, begin)
            self._settled[key] = trial.settle()
        return self._settled[key]


class _Trial:
    """One group."""

    def __init__(
        self, trials: Trials, group: Group, targets: Mapping[Value, Location], begin: Begin
    ) -> None:
        self.trials = trials
        self.group = group
        self.targets = targets
        self.begin = begin

    def settle(self) -> AnyTiling | None:
        contraction, work = self._emit(None)
        emitter, kernel = contraction.e, contraction.e.builder.kernel
        sizes = [buffer.elements for buffer in kernel.buffers]
        known = not used_symbols(kernel) & self._free(sizes) and kernel.tasks != 0
        if not contraction.others or not known or 0 in sizes:
            return None
        others = {str(tiling): tiling for tiling in contraction.others}
        status = tuple(n for n, b in enumerate(emitter.buffers) if b == STATUS_BUFFER)

        def make(label: str) -> Kernel:
            return self._emit(others.get(label))[0].e.builder.kernel

        labels = (BY_MODEL, *others)
        return others.get(self.trials.pick(Tunable(kernel, status, work, labels, make)))

    def _free(self, sizes: list[Dim]) -> set[str]:
        """Symbols of the graph in the group's sizes."""
        dims = (*sizes, *self.group.extents.values())
        return {name for dim in dims for name in symbols(dim)}

    def _emit(self, tiling: AnyTiling | None) -> tuple[ContractionEmitter, Dim]:
        emitter = self.begin(self.group, self.targets)
        emits = ContractionEmitter
        if self.group.kind == "contract" and convolves_last(self.group, self.targets):
            emits = ConvolutionEmitter
        contraction = emits(
            emitter, self.group, self.targets, self.trials.machine, self._pretend(), tiling
        )
        if self.group.kind == "contract":
            contraction.pack_constants(contraction.panel_widths())
        work = contraction.emit()
        return contraction, work

    def _pretend(self) -> Pack:
        """Packing that leaves no trace in the program."""
        made: list[Value] = []

        def pack(view: Value, rows: Rows | None = None) -> Location | None:
            if not self.trials.constant(view):
                return None
            made.append(view)
            strides = view.type.memory_strides
            number = _PRETENDED + len(made)
            return Location(number, view.type.dtype, strides, span(view.shape, strides))

        return pack
