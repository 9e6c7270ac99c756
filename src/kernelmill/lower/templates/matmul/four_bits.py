"""The schedule for few rows of A and a four-bit B, at the rate of memory."""

from __future__ import annotations

from math import ceil

from kernelmill.core.dim import Dim
from kernelmill.core.dtype import BF16, F32
from kernelmill.core.target.dot_units import MULTIPLY_ADD, WORDS_OF_16, DotUnit
from kernelmill.core.target.machine import Machine
from kernelmill.lower.schedule.candidate import OPEN, Candidate
from kernelmill.lower.templates.matmul.context import ContractionContext
from kernelmill.lower.templates.matmul.four_bits_integers import IntegerTask
from kernelmill.lower.templates.matmul.four_bits_task import FourBitTask, FourBitTiles, Scratch
from kernelmill.lower.templates.matmul.spec import Contraction, FourBitB
from kernelmill.lower.templates.matmul.tile_schedule import TaskPlace
from kernelmill.lower.weights.four_bits import WORD

MOST_ROWS = 8
"""More are worth computing B's elements once, for many products each."""

_INTEGER_ROWS = 2
"""Most rows with which multiplying integers takes fewer instructions than floats."""

_LONGEST_RUN, _LONGEST_INTEGER_RUN = 128, 64
"""Products that are added one after another."""

_MAKING, _READING = 40.0, 12.0
"""Vector operations for each vector of A, which every task makes into integers, or reads."""


_TAKING, _MULTIPLYING = 1.5, 0.5
"""Vector operations for each vector of B's numbers, and for its products with each row."""


class FourBits(FourBitTiles):
    """The products of few rows."""

    @classmethod
    def plan(
        cls, spec: Contraction, machine: Machine, candidate: Candidate = OPEN
    ) -> FourBits | None:
        """Plan the schedule where B is such a weight and A has few rows, else None."""
        b, rows = spec.four_bits, spec.m
        if b is None or not isinstance(rows, int) or not 0 < rows <= MOST_ROWS:
            return None
        lanes = machine.isa.lanes(F32)
        unit = _unit(b, rows, machine)
        integers = unit == WORDS_OF_16
        run = _run(b.group, lanes, _LONGEST_INTEGER_RUN if integers else _LONGEST_RUN)
        if not run:
            return None
        depth = spec.depth
        assert isinstance(depth, int) and isinstance(spec.n, int)
        panel_ns = _products_ns(rows, b.width, depth, machine)
        made = _MAKING if integers else _READING
        begin_ns = machine.task_ns + machine.time(made * rows * depth / lanes, {})

        def task_ns(_: int, panels: int) -> float:
            return panels * panel_ns + begin_ns

        schedule = cls(
            lanes=lanes, rows=rows, vectors=b.width // lanes, run=run, unit=unit,
            use_fma=machine.isa.has_fma, work=ceil(_products_ns(rows, spec.n, depth, machine)),
        )  # fmt: skip
        return schedule.cut(spec, task_ns, candidate)

    def scratch_bytes(self, spec: Contraction) -> Dim:
        """Return the bytes of a thread's scratch: sums of a tile, then of A over runs, then A."""
        return Scratch.of(self, spec).end * F32.bytes

    def emit(self, place: TaskPlace) -> None:
        """Emit all of a task's panels."""
        task = IntegerTask if self.in_integers else FourBitTask
        task(ContractionContext.at(place, self)).emit()


def _unit(b: FourBitB, rows: int, machine: Machine) -> DotUnit:
    """Return the unit that multiplies: that for integers where bf16 has none of its own."""
    if not b.bf16:
        return MULTIPLY_ADD
    unit = machine.dot_unit(BF16)
    few = rows <= _INTEGER_ROWS and unit.group == 1
    return machine.isa.word_unit if few and machine.isa.word_unit else unit


def _products_ns(rows: int, columns: int, depth: int, machine: Machine) -> float:
    """Return the nanoseconds of these columns of products, with B from beyond the caches."""
    vectors = columns * depth / machine.isa.lanes(F32)
    operations = (_TAKING + _MULTIPLYING * rows) * vectors
    return machine.streaming(columns * depth / 2) + machine.time(operations, {})


def _run(group: int, lanes: int, longest: int) -> int:
    """Return the longest part of a group that is whole vectors and words; 0 without one."""
    parts = range(min(group, longest), 0, -1)
    return next((n for n in parts if group % n == 0 and n % lanes == 0 and n % WORD == 0), 0)
