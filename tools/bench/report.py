"""The measurements as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tools.bench.cold import FirstCalls
from tools.bench.contestants import CONTESTANTS
from tools.bench.fixed import FixedCost
from tools.bench.steady import Standing
from tools.machine import description

OURS = "kernelmill"
UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; every column but the first is right-aligned."""
    lines = [" | ".join(head), " | ".join(["---", *["---:"] * (len(head) - 1)])]
    lines += [" | ".join(row) for row in rows]
    return "\n".join(f"| {line} |" for line in lines)


def duration(seconds: float | None) -> str:
    """Three digits with a unit; a dash for None."""
    if seconds is None:
        return "-"
    factor, unit = next(((f, u) for f, u in UNITS if seconds >= f), UNITS[-1])
    return f"{seconds / factor:.3g} {unit}"


def _ratio(standing: Standing, other: str) -> str:
    ours, theirs = standing.seconds.get(OURS), standing.seconds.get(other)
    return "-" if ours is None or theirs is None else f"{theirs / ours:.2f}x"


def steady(standings: Sequence[Standing]) -> str:
    """Median time of a call by model and contestant, and how many times faster ours is."""
    names = [name for name in CONTESTANTS if any(name in s.seconds for s in standings)]
    head = ["model", "arguments", *names, "over eager", "over Inductor"]
    rows = [
        [
            standing.model,
            standing.shape,
            *(duration(standing.seconds.get(name)) for name in names),
            _ratio(standing, "eager"),
            _ratio(standing, "Inductor"),
        ]
        for standing in standings
    ]
    return table(head, rows)


FLOOR = "Dynamo alone"


def floors(standings: Sequence[Standing]) -> str:
    """What part of a short call is the price of torch.compile, which no backend can lower."""
    lines: list[str] = []
    for standing in standings:
        ours, floor = standing.seconds.get(OURS), standing.seconds.get(FLOOR)
        inductor = standing.seconds.get("Inductor")
        if ours is None or floor is None or inductor is None or floor < 0.1 * ours:
            continue
        lines.append(
            f"- {standing.model}: of {duration(ours)} a call, {duration(floor)} is Dynamo's own: "
            "guards, the module's call, the gathering of parameters. A program that costs nothing "
            f"would be {inductor / floor:.2f}x as fast as Inductor here; without that part ours is "
            f"{(inductor - floor) / max(ours - floor, 1e-9):.1f}x as fast."
        )
    if not lines:
        return ""
    head = (
        f"*{FLOOR}* is a backend that returns ready results. What was tried to pay less of it: "
        "handing Dynamo our function without AOTAutograd's wrapper, checking parameters natively "
        "in place of passing them, one closure in place of a call object."
    )
    return "\n".join([head, "", *lines])


def refusals(standings: Sequence[Standing]) -> str:
    """A line for every contestant that did not run."""
    return "\n".join(
        f"- {standing.model}, {name}: {reason}"
        for standing in standings
        for name, reason in standing.refused.items()
    )


def accuracy(standings: Sequence[Standing]) -> str:
    """Largest and mean error against float64, relative to the largest element of that."""
    head = ["model", "kernelmill largest", "eager largest", "kernelmill mean", "eager mean"]
    rows: list[list[str]] = []
    for standing in standings:
        if OURS in standing.errors and "eager" in standing.errors:
            ours, eager = standing.errors[OURS], standing.errors["eager"]
            figures = (ours.largest, eager.largest, ours.mean, eager.mean)
            rows.append([standing.model, *(f"{figure:.1e}" for figure in figures)])
    return table(head, rows)


def first(starts: Sequence[FirstCalls]) -> str:
    """First call by model, capture taken off."""
    head = ["model", "capture", "kernelmill, empty store", "kernelmill, full store"]
    head += ["Inductor, empty caches", "Inductor, full caches"]
    rows = [
        [
            start.model,
            duration(start.capture),
            *(
                duration(max(0.0, times[backend] - start.capture))
                for backend in (OURS, "inductor")
                for times in (start.cold, start.warm)
            ),
        ]
        for start in starts
    ]
    return table(head, rows)


def fixed(cost: FixedCost) -> str:
    """The cost of calls that do next to nothing."""
    rows = [(name, duration(seconds)) for name, seconds in cost.seconds.items()]
    return table(["a call of two inputs and one output (4 floats)", "time"], rows)


def document(
    standings: Sequence[Standing],
    starts: Sequence[FirstCalls],
    cost: FixedCost | None,
    threads: int,
) -> str:
    """The whole of docs/performance.md."""
    parts = [
        "# Performance",
        "Written by `make bench`. " + description(),
        "## Steady calls",
        f"Median time of a call, {threads} threads, float32. The contestants take turns within one "
        "process. The last two columns say how many times faster kernelmill is.",
        steady(standings),
        refusals(standings),
        floors(standings),
        "## First calls",
        "Time of the first call in a fresh process less capture (Dynamo and AOTAutograd alone, "
        "measured with `aot_eager`). The full store or cache is the one an earlier process left.",
        first(starts),
        "## Accuracy",
        "Distance from the float64 result, as a part of its largest element.",
        accuracy(standings),
    ]
    if cost is not None:
        parts += ["## Fixed cost of a call", fixed(cost)]
    return "\n\n".join(part for part in parts if part) + "\n"
