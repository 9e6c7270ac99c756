"""Coordinates of the shapes in a report's drawings; the page's template draws them.

They are SVG's, in units of which a drawing is `width` wide.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernelmill.core.dataclass import dataclass
from kernelmill.report.facts import Bar, CallFacts, ProgramFacts, Step

_ROW = 26
_NODE_X = 130
_BAR_X = 560
_BAR_WIDTH = 320
_WIDTH = 900
_CALL_BAND = 34


@dataclass(frozen=True)
class Node:
    """A step: its circle, and a bar in proportion to its time."""

    step: Step
    y: float
    bar: float
    super_number: int


@dataclass(frozen=True)
class Edge:
    """A dependence of a step on an earlier one, as an SVG path."""

    path: str
    first: int
    last: int


@dataclass(frozen=True)
class Band:
    """A super kernel's range."""

    name: str
    y: float
    height: float
    number: int


@dataclass(frozen=True)
class GraphDrawing:
    """The steps of a program. All circles are at `node_x`, all bars begin at `bar_x`."""

    width: float
    height: float
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    bands: tuple[Band, ...]
    node_x: float = _NODE_X
    bar_x: float = _BAR_X


def graph_drawing(facts: ProgramFacts) -> GraphDrawing:
    """Return the drawing of steps from top to bottom, with their reads as curves on the left."""
    longest = max((step.time or 0.0 for step in facts.steps), default=0.0) or 1.0
    numbers = {whole.name: number for number, whole in enumerate(facts.supers)}
    nodes = tuple(
        Node(
            step,
            _row(step.number),
            _BAR_WIDTH * (step.time or 0.0) / longest,
            numbers.get(step.scope, -1),
        )
        for step in facts.steps
    )
    edges = tuple(
        Edge(_curve(first, step.number), first, step.number)
        for step in facts.steps
        for first in step.after
    )
    bands = tuple(
        Band(whole.name, _ROW * whole.first, _ROW * (whole.last - whole.first), number)
        for number, whole in enumerate(facts.supers)
    )
    return GraphDrawing(_WIDTH, _ROW * len(facts.steps), nodes, edges, bands)


def _row(number: int) -> float:
    return _ROW * number + _ROW / 2


def _curve(first: int, last: int) -> str:
    start, end = _row(first), _row(last)
    if last - first == 1:
        return f"M{_NODE_X} {start:g}V{end:g}"
    out = _NODE_X - min(110, 14 + 9 * (last - first))
    return f"M{_NODE_X} {start:g}C{out:g} {start:g} {out:g} {end:g} {_NODE_X} {end:g}"


@dataclass(frozen=True)
class Block:
    """A rectangle with its text, and a number for its colour."""

    x: float
    y: float
    width: float
    height: float
    text: str
    number: int = 0
    under: bool = False


@dataclass(frozen=True)
class Tick:
    """A mark of an axis: its place, and the step or the nanoseconds that it stands for."""

    place: float
    value: float


@dataclass(frozen=True)
class BlockDrawing:
    """Rectangles with an axis: of steps, or of time."""

    width: float
    height: float
    blocks: tuple[Block, ...]
    ticks: tuple[Tick, ...]
    line: str = ""


_MEMORY_HEIGHT = 220


def memory_drawing(facts: ProgramFacts) -> BlockDrawing | None:
    """Return the drawing of tensors in the arena: steps from left to right, addresses upwards.
    `line` is the live size. None where sizes are unknown."""
    memory, count = facts.memory, len(facts.steps)
    if not memory.placed or not memory.arena:
        return None
    wide, high = _WIDTH / count, _MEMORY_HEIGHT / memory.arena
    blocks = tuple(
        Block(
            wide * each.first,
            _MEMORY_HEIGHT - high * (each.offset + each.bytes),
            wide * (each.last - each.first + 1),
            high * each.bytes,
            f"{each.tensor} of {each.what}, {each.bytes} bytes at {each.offset}, until step "
            f"{each.last}",
            number % 6,
        )
        for number, each in enumerate(memory.placed)
    )
    points = [
        f"{wide * (n + side):g} {_MEMORY_HEIGHT - high * live:g}"
        for n, live in enumerate(memory.live)
        for side in (0, 1)
    ]
    every = max(1, round(count / 10))
    ticks = tuple(Tick(wide * (n + 0.5), n) for n in range(0, count, every))
    return BlockDrawing(_WIDTH, _MEMORY_HEIGHT, blocks, ticks, "M" + "L".join(points))


def timeline_drawing(call: CallFacts, programs: Sequence[ProgramFacts]) -> BlockDrawing | None:
    """Return the timeline: a row for each thread, time from left to right; None if unrecorded."""
    if not call.timeline or not call.recorded:
        return None
    end = max(call.recorded, *(bar.end for bar in call.timeline))
    scale = _WIDTH / end
    blocks = [_bar(bar, programs, scale) for bar in call.timeline]
    blocks.sort(key=lambda block: not block.under)
    ticks = tuple(Tick(_WIDTH * n / 5, end * n / 5) for n in range(6))
    return BlockDrawing(_WIDTH, _CALL_BAND * len(call.threads), tuple(blocks), ticks)


def _bar(bar: Bar, programs: Sequence[ProgramFacts], scale: float) -> Block:
    facts = programs[bar.program]
    if bar.step < 0:
        text, number = "pack weights", 5
    elif bar.whole:
        text = next(whole.name for whole in facts.supers if whole.first == bar.step)
        number = next(n for n, whole in enumerate(facts.supers) if whole.first == bar.step) % 6
    else:
        step = facts.steps[bar.step]
        text, number = f"step {step.number}: {step.title}", bar.step % 6
    y, height = _CALL_BAND * bar.thread + 3, _CALL_BAND - 6
    inset = 0 if bar.whole else 5
    return Block(
        bar.begin * scale, y + inset, max(0.6, (bar.end - bar.begin) * scale), height - 2 * inset,
        f"{text}, {(bar.end - bar.begin) / 1000:.1f} us", number, bar.whole,
    )  # fmt: skip
