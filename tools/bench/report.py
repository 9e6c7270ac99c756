"""The measurements as Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tools.bench.by_machine import demoted, slug
from tools.bench.by_machine import document as sectioned
from tools.bench.cold import FirstCalls
from tools.bench.contestants import CONTESTANTS, FLOOR
from tools.bench.fixed import FixedCost
from tools.bench.limits import BYTES, FLOATS, HALVES, Limits
from tools.bench.rows import FIRST, FIRST_SECONDS, FIRST_TIMES, STEADY, TITLES, Row
from tools.bench.steady import Standing
from tools.bench.tables import duration, table

if TYPE_CHECKING:
    from tools.bench.record import Record, Records

OURS = "kernelmill"

_INTRODUCTION = (
    "Written by `make bench`; figures in [performance.json](performance.json). Each kind of "
    "processor that was measured has a section and a plot, and a run on one replaces its own. The "
    "contestants take turns within one process; a time is the median of the turns, a ratio one of "
    "medians."
)

TILES_COMMAND = ".venv/bin/python -m tools.bench --rows tiles"
"""What measures the rows that a tile unit is for."""


def ours(standing: Standing) -> str | None:
    """Our fastest way to run the model; None when there is none."""
    own = [name for name in standing.seconds if name.startswith(OURS)]
    return min(own, key=standing.seconds.__getitem__, default=None)


def best_other(standing: Standing) -> str | None:
    """The fastest contestant that is not ours."""
    others = [n for n in standing.seconds if not n.startswith(OURS) and n != FLOOR]
    return min(others, key=standing.seconds.__getitem__, default=None)


def limit(standing: Standing) -> float:
    """The seconds below which this machine cannot do it."""
    limits = standing.limits
    if standing.copies:
        return limits.copy_seconds
    rate = limits.operations.get(standing.kind, limits.operations[FLOATS])
    return max(standing.operations / rate, standing.bytes / limits.read)


def standing(row: Row, found: Standing, tiles: bool) -> str:
    """One row as it is printed when it has been measured on a processor with tiles or without."""
    least, seconds, other = limit(found), found.seconds.get(ours(found) or ""), best_other(found)
    lines = [f"{row.title} ({found.shape}), limit {duration(least)}"]
    for contestant, taken in found.seconds.items():
        error = found.errors.get(contestant)
        errors = f"errors {error.largest:.1e}, {error.mean:.1e}" if error else ""
        lines.append(f"  {contestant:<16} {duration(taken):>9}  {errors}")
    lines += [f"  {contestant:<16} {reason}" for contestant, reason in found.refused.items()]
    if seconds:
        reached = f"{found.seconds[other] / seconds:.2f}" if other else "-"
        times, share = _goals(row, tiles)
        lines.append(
            f"  times faster than the best other: {reached}, goal {times}; of the limit: "
            f"{least / seconds:.0%}, goal {share}"
        )
    return "\n".join(lines)


def _goal(reached: float, wanted: float, text: str) -> str:
    if not wanted:
        return text
    return f"**{text}**" if reached >= wanted else text


def against(rows: Sequence[tuple[Row, Standing]], tiles: bool) -> str:
    """The goals, and what was reached: bold where it is the goal. `tiles`: on a processor with
    them."""
    head = ["model", OURS, "fastest other", "which", "times faster", "goal"]
    lines: list[list[str]] = []
    for row, found in rows:
        own, other, least = ours(found), best_other(found), limit(found)
        seconds = found.seconds.get(own or "")
        times = found.seconds[other] / seconds if seconds and other else 0.0
        share = least / seconds if seconds else 0.0
        (wanted_times, wanted_share), goals = row.goal(tiles), _goals(row, tiles)
        lines.append(
            [
                row.title,
                duration(seconds),
                duration(found.seconds.get(other or "")),
                other or "-",
                _goal(times, wanted_times, f"{times:.2f}"),
                goals[0],
                duration(least),
                _goal(share, wanted_share, f"{share:.0%}"),
                goals[1],
            ]
        )
    return table([*head, "limit of the machine", "share of it", "goal"], lines)


def times(rows: Sequence[tuple[Row, Standing]]) -> str:
    """Median time of a call by model and contestant."""
    names = [name for name in CONTESTANTS if any(name in found.seconds for _, found in rows)]
    return table(
        ["model", "arguments", *names],
        [
            [row.title, found.shape, *(duration(found.seconds.get(name)) for name in names)]
            for row, found in rows
        ],
    )


def floors(rows: Sequence[tuple[Row, Standing]]) -> str:
    """What part of a short call is the price of torch.compile, which no backend can lower."""
    lines: list[str] = []
    for row, found in rows:
        own, floor = found.seconds.get(OURS), found.seconds.get(FLOOR)
        inductor = found.seconds.get("Inductor")
        if own is None or floor is None or inductor is None or floor < 0.1 * own:
            continue
        lines.append(
            f"- {row.title}: of {duration(own)} a call, {duration(floor)} is Dynamo's own: "
            "guards, the module's call, the gathering of parameters. A program that costs nothing "
            f"would be {inductor / floor:.2f}x as fast as Inductor here; without that part ours is "
            f"{(inductor - floor) / max(own - floor, 1e-9):.1f}x as fast."
        )
    if not lines:
        return ""
    head = (
        f"*{FLOOR}* is a backend that returns ready results. What was tried to pay less of it: "
        "handing Dynamo our function without AOTAutograd's wrapper, checking parameters natively "
        "in place of passing them, one closure in place of a call object."
    )
    return "\n".join([head, "", *lines])


def refusals(rows: Sequence[tuple[Row, Standing]]) -> str:
    """A line for every contestant that did not run."""
    return "\n".join(
        f"- {row.title}, {name}: {reason}"
        for row, found in rows
        for name, reason in found.refused.items()
    )


def accuracy(rows: Sequence[tuple[Row, Standing]]) -> str:
    """Largest and mean error against float64, relative to the largest element of that."""
    head = ["model", f"{OURS} largest", "eager largest", f"{OURS} mean", "eager mean"]
    lines: list[list[str]] = []
    for row, found in rows:
        if OURS in found.errors and "eager" in found.errors:
            own, eager = found.errors[OURS], found.errors["eager"]
            figures = (own.largest, eager.largest, own.mean, eager.mean)
            lines.append([row.title, *(f"{figure:.1e}" for figure in figures)])
    return table(head, lines)


def first(starts: Sequence[FirstCalls]) -> str:
    """First call by model, capture taken off."""
    head = ["model", "capture", f"{OURS}, empty store", "goal", "full store"]
    head += ["Inductor, empty caches", "full caches", "times quicker", "goal"]
    lines: list[list[str]] = []
    for start in starts:
        goal = FIRST.index(start.model) < 3 if start.model in FIRST else False
        own = {k: max(0.0, t[OURS] - start.capture) for k, t in start.by_state.items()}
        their = {k: max(0.0, t["inductor"] - start.capture) for k, t in start.by_state.items()}
        quicker = their["cold"] / max(own["cold"], 1e-9)
        lines.append(
            [
                TITLES[start.model],
                duration(start.capture),
                _goal(-own["cold"], -FIRST_SECONDS if goal else 0, duration(own["cold"])),
                duration(FIRST_SECONDS) if goal else "-",
                duration(own["warm"]),
                duration(their["cold"]),
                duration(their["warm"]),
                _goal(quicker, FIRST_TIMES if goal else 0, f"{quicker:.0f}"),
                f"{FIRST_TIMES:.0f}" if goal else "-",
            ]
        )
    return table(head, lines)


def fixed(cost: FixedCost) -> str:
    """The cost of calls that do next to nothing."""
    rows = [(name, duration(seconds)) for name, seconds in cost.seconds.items()]
    return table(["a call of two inputs, or four, and one output (4 floats each)", "time"], rows)


def _limits(rows: Sequence[tuple[Row, Standing]]) -> str:
    """The best figures of all rows."""
    every = [found.limits for _, found in rows]
    if not every:
        return ""
    parts: list[str] = []
    for kind, unit in ((FLOATS, "FLOP/s"), (HALVES, "FLOP/s"), (BYTES, "OP/s")):
        rates = [one.operations[kind] for one in every if kind in one.operations]
        if rates:
            parts.append(f"{max(rates) / 1e9:.0f} G{unit} in {kind}")
    copies = _copies(every)
    parts.append(f"{max(one.read for one in every) / 1e9:.1f} GB/s read from memory")
    parts += [f"{rate / 1e9:.1f} GB/s copying {size} MB" for size, rate in copies.items()]
    return (
        f"Peaks of the machine: {', '.join(parts)}. They are measured before and after each row,"
        " the better figure counts. The limit of a row is what its multiply-adds take at the "
        "peak of their type, or what reading its weights, arguments and buffers once takes, "
        "whichever is longer; where nothing but memory is moved, a copy of that size."
    )


def _copies(every: Sequence[Limits]) -> dict[int, float]:
    """Bytes read and written in a second, by megabytes: the best of those of one size."""
    found: dict[int, float] = {}
    for one in sorted(every, key=lambda one: one.copied):
        if one.copied:
            size, rate = one.copied >> 20, 2 * one.copied / one.copy_seconds
            found[size] = max(rate, found.get(size, 0.0))
    return found


def document(records: Records) -> str:
    """The whole of docs/performance.md."""
    title = "\n\n".join(["# Performance", _INTRODUCTION])
    sections = {kind: demoted(section(kind, record)) for kind, record in records.items()}
    if not any(record.tiles for record in records.values()):
        sections["Processors with a tile unit"] = _unmeasured()
    return sectioned(title, sections)


def _unmeasured() -> str:
    """What is to be reached where nothing was measured yet."""
    head = ["model", "row", "goal: times faster than the fastest other"]
    head += ["goal: share of the limit"]
    lines = [[row.title, f"`{row.name}`", *_goals(row, True)] for row in STEADY if row.tiles]
    text = (
        f"Not measured yet. On one `{TILES_COMMAND}` measures these rows, and writes a section of "
        "its own; with names of the second column in the place of `tiles` it measures these, and "
        "`make bench` all. Each is against eager, Inductor (also with max-autotune and freezing), "
        "AOTInductor, ONNX Runtime and OpenVINO. Errors are not to be above eager's, and decoder "
        "steps not to be slower than before."
    )
    return f"{text}\n\n{table(head, lines)}"


def _goals(row: Row, tiles: bool) -> list[str]:
    """What is to be reached, `times` and `share`."""
    times, share = row.goal(tiles)
    return [f"{times:.1f}" if times else "-", f"{share:.0%}" if share else "-"]


def section(kind: str, record: Record) -> str:
    """What was measured on one kind of processor."""
    rows = [(row, record.steady[row.name]) for row in STEADY if row.name in record.steady]
    starts = [record.first[name] for name in FIRST if name in record.first]
    parts = [
        _occasions(record),
        _limits(rows),
        f"![Time of each contestant over ours]({plot_name(kind)})",
        "## Against the fastest other and against the machine",
        "kernelmill's time is the shorter one of `torch.compile` and `kernelmill.aot`; the fastest "
        "other may be a program compiled ahead of time, too. A figure in bold has reached its "
        "goal; a share above 100 % means that the peaks were measured too low.",
        against(rows, record.tiles),
        "## All times",
        times(rows),
        refusals(rows),
        floors(rows),
        "## Accuracy",
        "Distance from the float64 result on fresh random data, as a part of its largest element. "
        "The memory of results holds NaN before the call.",
        accuracy(rows),
        "## First calls",
        "Time of the first call in a fresh process without *capture* (Dynamo and AOTAutograd "
        "alone, measured with the backend `aot_eager`). A full store or cache is what an "
        "earlier process has left. Times of kernelmill and of capture are medians of three "
        "processes, Inductor's are of one. *Times quicker* compares the two with empty caches.",
        first(starts),
    ]
    if record.fixed is not None:
        parts += ["## Fixed cost of a call", fixed(record.fixed)]
    parts += ["## When and where", _measured(record)]
    return "\n\n".join(part for part in parts if part)


def plot_name(kind: str) -> str:
    """The file of the plot beside the document."""
    return f"performance-{slug(kind)}.svg"


def _occasions(record: Record) -> str:
    """Days and threads of all rows, in a line."""
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
    """The rows by the occasion they were measured on."""
    by_occasion: dict[str, list[str]] = {}
    for name, occasion in record.measured.items():
        by_occasion.setdefault(occasion, []).append(name)
    return "\n".join(f"- {', '.join(names)}: {text}" for text, names in by_occasion.items())
