"""docs/libraries.md and the figures that it shows, docs/libraries.json."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tools.bench.harness import duration, table
from tools.libraries import rows

_DATA, _PAGE = Path("docs/libraries.json"), Path("docs/libraries.md")
Known = dict[str, Mapping[str, Any]]
"""What was found, by the names of rows."""

_HEAD = """\
# Libraries

Written by `python -m tools.libraries`, in the environment that `make libraries` makes. Models of \
each library, small and with random weights where no package brings real ones, are called as the \
library calls them: in eager, by its own way to compile with `backend="kernelmill"`, and by \
[`kernelmill.compile`](compile.md) where it takes the model. To have a library that names no \
backend compile with kernelmill, see \
[libraries that call `torch.compile`](inductor.md#libraries-that-call-torchcompile).

- **difference**: the largest from eager, as a part of the largest number of a result. Tokens, \
shapes and other whole numbers are equal.
- **traces**: for the calls of the warm-up; **later**: for the calls after it, of other sizes too.
- **graphs**: those compiled. **fallbacks**: operators in them that run in ATen.
"""


def read() -> Known:
    """What earlier runs have found; nothing where there were none."""
    return json.loads(_DATA.read_text()) if _DATA.exists() else {}


def write(known: Known) -> None:
    """The figures and the page. Rows that there are no more are left out."""
    found = {row.name: known[row.name] for row in rows.all_rows() if row.name in known}
    _DATA.write_text(json.dumps(found, indent=1) + "\n")
    _PAGE.write_text("\n".join(_page(found)) + "\n")


def in_a_line(found: Mapping[str, Any]) -> str:
    """What a run prints of a row."""
    if "error" in found:
        return found["error"]
    parts = [f"{found['way']} {_cells(found['torch.compile'])}"]
    if "kernelmill.compile" in found:
        parts.append(f"kernelmill.compile {_cells(found['kernelmill.compile'])}")
    return "; ".join(parts)


def _cells(outcome: Mapping[str, Any]) -> str:
    names = "worst", "traces", "later", "graphs", "fallbacks", "breaks", "in_torch"
    return ", ".join(f"{name} {outcome[name]}" for name in names if outcome[name])


def _page(known: Known) -> Iterator[str]:
    yield _HEAD
    yield "## Results\n"
    head = ("model", "way", "difference", "traces", "later", "graphs", "fallbacks", "graph breaks")
    yield table(head, (row for name, found in known.items() for row in _rows_of(name, found)))
    if timed := {name: found for name, found in known.items() if "seconds" in found}:
        yield "\n## Times\n"
        yield (
            "Medians over the calls of a row, contestants in turns in one process. A ratio is the "
            "time of the faster of eager and Inductor over the faster one of ours.\n"
        )
        head = "model", "eager", "Inductor", "torch.compile", "kernelmill.compile", "ratio"
        yield table(head, (_times(name, found["seconds"]) for name, found in timed.items()))
    yield "\n## Versions\n"
    yield from sorted({_version(name, found) for name, found in known.items() if "way" in found})


def _rows_of(name: str, found: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    if "error" in found:
        yield name, "-", f"error: {found['error']}", "-", "-", "-", "-", "-"
        return
    yield name, *_row(found["way"], found["torch.compile"])
    if ours := found.get("kernelmill.compile"):
        yield "", *_row("`kernelmill.compile`", ours)


def _row(way: str, outcome: Mapping[str, Any]) -> tuple[str, ...]:
    fallbacks = ", ".join(f"{n} `{o}`" for o, n in outcome["fallbacks"].items())
    if outcome["in_torch"] and way != "`kernelmill.compile`":
        fallbacks = f"{fallbacks}; whole graphs: {', '.join(outcome['in_torch'])}".lstrip("; ")
    elif outcome["in_torch"]:
        fallbacks = f"by torch.compile: {'; '.join(outcome['in_torch'])}"
    return (
        way, f"{outcome['worst']:.1e}", str(outcome["traces"]), str(outcome["later"]),
        str(outcome["graphs"]), _plain(fallbacks) or "none",
        str(sum(outcome["breaks"].values())),
    )  # fmt: skip


def _plain(text: str) -> str:
    """As a cell: without what ends one, and short."""
    text = " ".join(text.replace("|", "/").split())
    return text if len(text) < 160 else f"{text[:157]}..."


def _times(name: str, seconds: Mapping[str, float]) -> tuple[str, ...]:
    ours = [seconds[each] for each in ("kernelmill", "kernelmill.compile") if each in seconds]
    ratio = min(seconds["eager"], seconds["Inductor"]) / min(ours)
    cells = [
        duration(seconds.get(each))
        for each in ("eager", "Inductor", "kernelmill", "kernelmill.compile")
    ]
    return name, *cells, f"{ratio:.2f}"


def _version(name: str, found: Mapping[str, Any]) -> str:
    library = name.partition(":")[0]
    return (
        f"- {library} {found['version']}: {found['date']}, {found['machine']}, "
        f"{found['threads']} threads"
    )
