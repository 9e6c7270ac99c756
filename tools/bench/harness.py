"""What all pages of measurements share: turns, fresh processes, and tables in documents.

A page has tables, and a table has subjects. Each kind of processor has a section of its own in the
document. A run replaces the tables of its section and says when it was made; what is written around
the tables stays.
"""

from __future__ import annotations

import compileall
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tools.machine import description, kind

Call = Callable[[], Any]
Rows = Iterable[Sequence[str]]

UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
LEAST_TURNS = 5
PAUSE_SECONDS = 0.05
"""Before each turn. Threads of the last contestant spin, those of ONNX Runtime for 33 ms."""

_SECTION = re.compile(r"^## (.+)\n", re.MULTILINE)


# ---- pages --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """A table under a heading of the document; the only one of a page has none. `subjects` return
    the rows of what is measured together, names first."""

    heading: str
    head: Sequence[str]
    subjects: Mapping[str, Callable[[], Rows]]


@dataclass(frozen=True)
class Page:
    """A document, and the name by which `python -m tools.bench` measures it."""

    name: str
    path: str
    title: str
    tables: Sequence[Table]

    def run(self, only: Sequence[str] = ()) -> None:
        """Measure and print all subjects, and write them; only these are printed alone."""
        have_bytecode()
        made: dict[str, str] = {}
        for each in self.tables:
            rows: list[Sequence[str]] = []
            for name, measure in each.subjects.items():
                if not only or name in only:
                    with torch.no_grad():
                        rows += measure()
                    print(name, *rows[-1:], flush=True)
            made[each.heading] = table(each.head, rows)
        stamp = f"`python -m tools.bench {self.name}`. {description()}"
        print(stamp, *(f"{heading}\n\n{text}" for heading, text in made.items()), sep="\n\n")
        if not only:
            publish(Path(self.path), self.title, stamp, made)


def publish(path: Path, title: str, stamp: str, tables: Mapping[str, str]) -> None:
    """Put tables, by their headings, into this machine's section of a document, and the stamp in
    place of the paragraph that said when it was measured."""
    _, *found = _SECTION.split(path.read_text()) if path.exists() else [""]
    sections = dict(zip(found[::2], found[1::2], strict=True))
    parts = [part for part in sections.get(kind(), "").strip().split("\n\n") if part]
    old = [part for part in parts if "Measured on " in part][:1]
    place = parts.index(old[0]) if old else 0
    parts[place : place + len(old)] = [stamp]
    for heading, text in tables.items():
        _put(parts, heading, text)
    path.write_text(document(f"# {title}", {**sections, kind(): "\n\n".join(parts)}))


def _put(parts: list[str], heading: str, text: str) -> None:
    """Put this table in place of the first one below the heading."""
    title = f"### {heading}"
    if heading and title not in parts:
        parts.append(title)
    start = parts.index(title) + 1 if heading else 0
    end = next((n for n in range(start, len(parts)) if parts[n].startswith("### ")), len(parts))
    place = next((n for n in range(start, end) if parts[n].startswith("|")), end)
    parts[place : min(place + 1, end)] = [text]


def document(title: str, sections: Mapping[str, str]) -> str:
    """Return the title, and each kind's section under its name."""
    parts = [title, *(f"## {name}\n\n{text.strip()}" for name, text in sorted(sections.items()))]
    return "\n\n".join(parts) + "\n"


def slug(name: str) -> str:
    """Return a name as a part of a file's."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def table(head: Sequence[str], rows: Rows) -> str:
    """Return a Markdown table; every column but the first is right-aligned."""
    lines = [" | ".join(head), " | ".join(["---", *["---:"] * (len(head) - 1)])]
    lines += [" | ".join(row) for row in rows]
    return "\n".join(f"| {line} |" for line in lines)


def duration(seconds: float | None) -> str:
    """Return three digits with a unit; a dash for None."""
    if seconds is None:
        return "-"
    factor, unit = next(((f, u) for f, u in UNITS if seconds >= f), UNITS[-1])
    return f"{seconds / factor:.3g} {unit}"


# ---- turns --------------------------------------------------------------------------------------


def made(makers: Mapping[str, Call]) -> dict[str, Any]:
    """Return what those make that can; of the others the reason is printed."""
    found: dict[str, Any] = {}
    for name, make in makers.items():
        try:
            found[name] = make()
        except Exception as reason:
            print(f"{name}: {in_a_line(reason)}", flush=True)
    return found


def in_a_line(reason: Exception) -> str:
    """Return the first line of an error, with its kind."""
    return f"{type(reason).__name__}: {reason}".split("\n")[0][:200]


def in_turns(
    calls: Mapping[str, Call], turns: int = 15, seconds: float = 0.0, budget: float = float("inf"),
) -> dict[str, list[float]]:  # fmt: skip
    """Return the seconds of a call in each turn. Calls take turns, so that noise hits all alike.

    seconds  a turn lasts at least so long: short calls are repeated within it
    budget   of all turns; `LEAST_TURNS` are made in any case
    """
    least = {name: min(spent(call) for _ in range(3)) for name, call in calls.items()}
    repeats = {name: max(1, int(seconds / once)) for name, once in least.items()}
    found: dict[str, list[float]] = {name: [] for name in calls}
    end = time.monotonic() + budget
    for number in range(turns):
        if number >= LEAST_TURNS and time.monotonic() > end:
            break
        for name, call in calls.items():
            time.sleep(PAUSE_SECONDS)
            found[name].append(spent(call, repeats[name]))
    return found


def race(calls: Mapping[str, Call], turns: int = 15, seconds: float = 0.0) -> dict[str, float]:
    """Return the median seconds of a call of each, in turns."""
    return {
        name: statistics.median(times) for name, times in in_turns(calls, turns, seconds).items()
    }


def beside_eager(
    names: Iterable[str], turns: Mapping[str, list[float]], eager: str, notes: Mapping[str, str]
) -> list[str]:
    """Return a cell for each contestant: how many times faster than eager it was, the median over
    the turns, with a note. Eager has a cell of its own, and those that did not run a dash."""
    cells = dict.fromkeys(names, "-") | {"eager": eager}
    for name in turns.keys() - {"eager"}:
        ratios = (a / b for a, b in zip(turns["eager"], turns[name], strict=True))
        cells[name] = f"{statistics.median(ratios):.2f}{notes.get(name, '')}"
    return list(cells.values())


def spent(call: Call, repeats: int = 1) -> float:
    """Return the seconds of a call, the mean of so many."""
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def medians(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the median of each figure over the runs."""
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


# ---- fresh processes ----------------------------------------------------------------------------


def child(
    call: str, module: str, folder: str = "", most_seconds: float = 900.0, **environment: str
) -> Any:
    """Return what `{module}.{call}` returns in a fresh process, whose kernels and caches are in
    `folder`, or in one that is empty. RuntimeError with its last words if it fails, caused by a
    CalledProcessError; subprocess.TimeoutExpired if it takes longer: both have what it printed."""
    if not folder:
        with tempfile.TemporaryDirectory(prefix="kernelmill-bench-") as own:
            return child(call, module, f"{own}/kernel_meta", most_seconds, **environment)
    own = {
        "KERNELMILL_KERNEL_META": folder,
        "TORCHINDUCTOR_CACHE_DIR": f"{folder}-inductor",
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
        **environment,
    }
    script = f"import json, {module} as m; print(json.dumps(m.{call}))"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], env={**os.environ, **own},
        capture_output=True, text=True, timeout=most_seconds,
    )  # fmt: skip
    try:
        done.check_returncode()
    except subprocess.CalledProcessError as failure:
        words = done.stderr.strip()[-2000:] or f"ended with status {done.returncode}"
        raise RuntimeError(f"{call}: {words}") from failure
    return json.loads(done.stdout.splitlines()[-1])


def have_bytecode(tree: Path = Path(__file__).parents[2]) -> None:
    """Compile the package's modules, as those of an installed package are. Else each fresh process
    would compile what was changed, up to 0.5 s of a first call: PYTHONDONTWRITEBYTECODE may be set,
    and a checkout that was just made has none."""
    compileall.compile_dir(tree / "src", quiet=1)
