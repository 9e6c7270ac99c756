"""The figures of the models at rest, docs/performance.json, as Markdown and as a drawing.

Kinds of processors have their figures side by side: a run on one replaces its own alone. Each row
has the date, revision, instruction set and versions it was measured with, so that one can be
measured anew without the others.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kernelmill.core.target.isa import host_isa
from tools.bench.contestants import CONTESTANTS, FLOOR
from tools.bench.harness import document as sectioned
from tools.bench.harness import duration, slug, table
from tools.bench.limits import BYTES, FLOATS, HALVES, Limits
from tools.bench.measure import Error, FirstCalls, FixedCost, Standing
from tools.bench.models import FIRST, ROWS, STEADY, Row
from tools.drawing import Line, drawing
from tools.machine import description

DATA = Path("docs/performance.json")
OURS = "kernelmill"
FIRST_SECONDS = 0.7
"""Longest first call, less capture, that is to be reached with an empty store."""

FIRST_TIMES = 10.0
"""How many times quicker than Inductor's that is to be."""

_INTRODUCTION = (
    "Written by `make bench`; figures in [performance.json](performance.json). Each kind of "
    "processor that was measured has a section and a plot, and a run on one replaces its own. The "
    "contestants take turns within one process; a time is the median of the turns, a ratio one of "
    "medians. [Where the time goes](lab/limits.md). `python -m tools.bench --only tiles` measures "
    "what a tile unit is for, on a processor that has one."
)

Found = Sequence[tuple[Row, Standing]]


# ---- at rest ------------------------------------------------------------------------------------


@dataclass
class Record:
    """Everything measured on one kind of processor, by row; `measured` says when and with what, by
    row too. `tiles`: it has a tile unit, and code was compiled for it."""

    steady: dict[str, Standing] = field(default_factory=dict[str, Standing])
    first: dict[str, FirstCalls] = field(default_factory=dict[str, FirstCalls])
    fixed: FixedCost | None = None
    measured: dict[str, str] = field(default_factory=dict[str, str])
    tiles: bool = False

    def note(self, name: str) -> None:
        """This row was measured now, here."""
        self.measured[name] = description()
        self.tiles = host_isa().has_tiles


Records = dict[str, Record]
"""By kind of processor (tools/machine.py)."""


def load(path: Path = DATA) -> Records:
    """Return what was measured so far; nothing when there is no such file."""
    if not path.exists():
        return {}
    return {kind: _record(data) for kind, data in json.loads(path.read_text()).items()}


def _record(data: dict[str, Any]) -> Record:
    return Record(
        {name: _standing(value) for name, value in data["steady"].items()},
        {name: FirstCalls(**value) for name, value in data["first"].items()},
        FixedCost(**data["fixed"]) if data["fixed"] else None,
        data["measured"],
        data["tiles"],
    )


def _standing(value: dict[str, Any]) -> Standing:
    errors = {name: Error(**error) for name, error in value["errors"].items()}
    return Standing(**{**value, "limits": Limits(**value["limits"]), "errors": errors})


def save(records: Records, path: Path = DATA) -> None:
    """Write it all, in one step."""
    scratch = path.with_suffix(".new")
    data = {kind: asdict(record) for kind, record in records.items()}
    scratch.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n")
    os.replace(scratch, path)


# ---- tables -------------------------------------------------------------------------------------


def ours(standing: Standing) -> str | None:
    """Return our fastest way to run the model; None when there is none."""
    own = [name for name in standing.seconds if name.startswith(OURS)]
    return min(own, key=standing.seconds.__getitem__, default=None)


def best_other(standing: Standing) -> str | None:
    """Return the fastest contestant that is not ours."""
    others = [n for n in standing.seconds if not n.startswith(OURS) and n != FLOOR]
    return min(others, key=standing.seconds.__getitem__, default=None)


def limit(standing: Standing) -> float:
    """Return the seconds below which this machine cannot do it."""
    limits = standing.limits
    if standing.copies:
        return limits.copy_seconds
    rate = limits.operations.get(standing.kind, limits.operations[FLOATS])
    return max(standing.operations / rate, standing.bytes / limits.read)


def standing(row: Row, found: Standing, tiles: bool) -> str:
    """Return the tables of one row, and who did not run."""
    rows = [(row, found)]
    return "\n\n".join([against(rows, tiles), times(rows), accuracy(rows), refusals(rows)])


def _goal(reached: float, wanted: float, text: str) -> str:
    return f"**{text}**" if wanted and reached >= wanted else text


def against(rows: Found, tiles: bool) -> str:
    """Return the goals, and what was reached: bold where it is the goal. `tiles`: on a processor
    with them."""
    head = ["model", OURS, "fastest other", "which", "times faster", "goal"]
    lines: list[list[str]] = []
    for row, found in rows:
        own, other, least = ours(found), best_other(found), limit(found)
        seconds = found.seconds.get(own or "")
        times = found.seconds[other] / seconds if seconds and other else 0.0
        share = least / seconds if seconds else 0.0
        wanted_times, wanted_share = row.goal(tiles)
        lines.append([
            row.title, duration(seconds), duration(found.seconds.get(other or "")), other or "-",
            _goal(times, wanted_times, f"{times:.2f}"),
            f"{wanted_times:.1f}" if wanted_times else "-", duration(least),
            _goal(share, wanted_share, f"{share:.0%}"),
            f"{wanted_share:.0%}" if wanted_share else "-",
        ])  # fmt: skip
    return table([*head, "limit of the machine", "share of it", "goal"], lines)


def times(rows: Found) -> str:
    """Return the median time of a call by model and contestant."""
    names = [name for name in CONTESTANTS if any(name in found.seconds for _, found in rows)]
    return table(
        ["model", "arguments", *names],
        [
            [row.title, found.shape, *(duration(found.seconds.get(name)) for name in names)]
            for row, found in rows
        ],
    )


def refusals(rows: Found) -> str:
    """Return a line for every contestant that did not run."""
    return "\n".join(
        f"- {row.title}, {name}: {reason}"
        for row, found in rows
        for name, reason in found.refused.items()
    )


def accuracy(rows: Found) -> str:
    """Return largest and mean error against float64, relative to the largest element of that."""
    head = ["model", f"{OURS} largest", "eager largest", f"{OURS} mean", "eager mean"]
    lines: list[list[str]] = []
    for row, found in rows:
        if OURS in found.errors and "eager" in found.errors:
            own, eager = found.errors[OURS], found.errors["eager"]
            figures = (own.largest, eager.largest, own.mean, eager.mean)
            lines.append([row.title, *(f"{figure:.1e}" for figure in figures)])
    return table(head, lines)


def first(starts: Sequence[FirstCalls]) -> str:
    """Return first calls by model, capture taken off."""
    head = ["model", "capture", f"{OURS}, empty store", "goal", "full store"]
    head += ["Inductor, empty caches", "full caches", "times quicker", "goal"]
    lines: list[list[str]] = []
    for start in starts:
        goal = start.model in FIRST[:3]
        (own, own_warm), (their, their_warm) = (
            [max(0.0, times[name] - start.capture) for times in (start.cold, start.warm)]
            for name in (OURS, "inductor")
        )
        quicker = their / max(own, 1e-9)
        lines.append([
            ROWS[start.model].title, duration(start.capture),
            _goal(-own, -FIRST_SECONDS if goal else 0, duration(own)),
            duration(FIRST_SECONDS) if goal else "-", duration(own_warm),
            duration(their), duration(their_warm),
            _goal(quicker, FIRST_TIMES if goal else 0, f"{quicker:.0f}"),
            f"{FIRST_TIMES:.0f}" if goal else "-",
        ])  # fmt: skip
    return table(head, lines)


def _limits(rows: Found) -> str:
    """Return the best figures of all rows."""
    every = [found.limits for _, found in rows]
    if not every:
        return ""
    parts: list[str] = []
    for kind, unit in ((FLOATS, "FLOP/s"), (HALVES, "FLOP/s"), (BYTES, "OP/s")):
        rates = [one.operations[kind] for one in every if kind in one.operations]
        if rates:
            parts.append(f"{max(rates) / 1e9:.0f} G{unit} in {kind}")
    parts.append(f"{max(one.read for one in every) / 1e9:.1f} GB/s read from memory")
    copies: dict[int, float] = {}
    for one in sorted(every, key=lambda one: one.copied):
        if one.copied:
            size, rate = one.copied >> 20, 2 * one.copied / one.copy_seconds
            copies[size] = max(rate, copies.get(size, 0.0))
    parts += [f"{rate / 1e9:.1f} GB/s copying {size} MB" for size, rate in copies.items()]
    return (
        f"Peaks of the machine: {', '.join(parts)}. They are measured before and after each row,"
        " the better figure counts. The limit of a row is what its multiply-adds take at the "
        "peak of their type, or what reading its weights, arguments and buffers once takes, "
        "whichever is longer; where nothing but memory is moved, a copy of that size."
    )


# ---- the page -----------------------------------------------------------------------------------


def document(records: Records) -> str:
    """Return the whole of docs/performance.md."""
    sections = {kind: section(kind, record) for kind, record in records.items()}
    return sectioned(f"# Performance\n\n{_INTRODUCTION}", sections)


def section(kind: str, record: Record) -> str:
    """Return what was measured on one kind of processor."""
    rows = [(row, record.steady[row.name]) for row in STEADY if row.name in record.steady]
    starts = [record.first[name] for name in FIRST if name in record.first]
    parts = [
        _occasions(record),
        _limits(rows),
        f"![Time of each contestant over ours]({plot_name(kind)})",
        "### Against the fastest other and against the machine",
        "kernelmill's time is the shorter one of `torch.compile` and `kernelmill.aot`; the fastest "
        "other may be a program compiled ahead of time, too. A figure in bold has reached its "
        "goal; a share above 100 % means that the peaks were measured too low.",
        against(rows, record.tiles),
        "### All times",
        f"*{FLOOR}* is a backend that returns ready results: what any call through `torch.compile` "
        "costs.",
        times(rows),
        refusals(rows),
        "### Accuracy",
        "Distance from the float64 result on fresh random data, as a part of its largest element. "
        "The memory of results holds NaN before the call.",
        accuracy(rows),
        "### First calls",
        "Time of the first call in a fresh process without *capture* (Dynamo and AOTAutograd "
        "alone, measured with the backend `aot_eager`). A full store or cache is what an "
        "earlier process has left. Times of kernelmill and of capture are medians of three "
        "processes, Inductor's are of one. *Times quicker* compares the two with empty caches.",
        first(starts),
    ]
    if record.fixed is not None:
        head = "a call of two inputs, or four, and one output (4 floats each)", "time"
        costs = [(name, duration(seconds)) for name, seconds in record.fixed.seconds.items()]
        parts += ["### Fixed cost of a call", table(head, costs)]
    parts += ["### When and where", _measured(record)]
    return "\n\n".join(part for part in parts if part)


def plot(found: Mapping[str, Standing]) -> str:
    """Return a drawing of each contestant's time over ours; a bar marks the machine's limit."""
    names = [n for n in CONTESTANTS if n != FLOOR and not n.startswith(OURS)]
    lines: list[Line] = []
    for row in STEADY:
        if row.name in found and (own := ours(found[row.name])):
            seconds = found[row.name].seconds
            ratios = {name: each / seconds[own] for name, each in seconds.items()}
            lines.append(Line(row.title, ratios, limit(found[row.name]) / seconds[own]))
    return drawing(lines, names, f"time over {OURS}'s", "limit of the machine")


def plot_name(kind: str) -> str:
    """Return the file of the plot beside the document."""
    return f"performance-{slug(kind)}.svg"


def _occasions(record: Record) -> str:
    """Return days and threads of all rows, in a line."""
    text = " ".join(record.measured.values())
    days = sorted(set(re.findall(r"Measured on (\d{4}-\d\d-\d\d)", text)))
    threads = sorted(set(re.findall(r"(\d+ threads?)", text)))
    if not days:
        return ""
    when = f"on {days[0]}" if len(days) == 1 else f"from {days[0]} to {days[-1]}"
    return (
        f"Measured {when} with {' and '.join(threads)}; what on which day, and versions, is below."
    )


def _measured(record: Record) -> str:
    """Return the rows by the occasion they were measured on."""
    by_occasion: dict[str, list[str]] = {}
    for name, occasion in record.measured.items():
        by_occasion.setdefault(occasion, []).append(name)
    return "\n".join(f"- {', '.join(names)}: {text}" for text, names in by_occasion.items())
