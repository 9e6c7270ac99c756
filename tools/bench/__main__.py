"""Measures the pages of the benchmark, and writes them.

python -m tools.bench                        models: docs/performance.md, each row in a process
python -m tools.bench --only bert first-bert these rows; the others stay as they were measured
python -m tools.bench --only tiles           those that a tile unit (AMX) is for
python -m tools.bench gears cache            other pages: a name is the file in tools/bench
python -m tools.bench gears --only padding   a part of one, which is printed and not written

Figures of other kinds of processors stay as they are.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
from pathlib import Path

from kernelmill.core.target.isa import host_isa
from tools.bench import report
from tools.bench.contestants import CONTESTANTS, FLOOR
from tools.bench.harness import have_bytecode
from tools.bench.measure import first_calls, fixed_cost, race
from tools.bench.models import FIRST, ROWS, STEADY, TILES
from tools.bench.report import Record
from tools.machine import kind

DOCUMENT = Path("docs/performance.md")
NAMES = (*(row.name for row in STEADY), *(f"first-{name}" for name in FIRST), "fixed")
PAGES = ("gears", "cache", "tokens", "sentences", "trained", "images")
"""Of `make bench` all but the last four, whose peers may not be installed."""


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("pages", nargs="*", choices=["models", *PAGES], default="models")
    parser.add_argument("--only", nargs="+", default=[], metavar="ROW", help=", ".join(NAMES))
    parser.add_argument("--seconds", type=float, default=20.0, help="of steady calls a row")
    options = parser.parse_args()
    for page in [options.pages] if isinstance(options.pages, str) else options.pages:
        if page != "models":
            importlib.import_module(f"tools.bench.{page}").PAGE.run(options.only)
            continue
        rows = [
            row for one in options.only or NAMES for row in (TILES if one == "tiles" else [one])
        ]
        if unknown := set(rows) - set(NAMES):
            parser.error(f"no rows: {', '.join(unknown)}")
        if len(rows) == 1:
            measure_row(rows[0], options.seconds)
        else:
            _each(rows, ["--seconds", str(options.seconds)])


def _each(rows: list[str], arguments: list[str]) -> None:
    """Measure each row in a process of its own."""
    have_bytecode()
    command = [sys.executable, "-W", "ignore", "-m", "tools.bench", *arguments, "--only"]
    failed = [name for name in rows if subprocess.run([*command, name]).returncode]
    if failed:
        sys.exit(f"not measured: {', '.join(failed)}")


def measure_row(name: str, seconds: float) -> None:
    """Measure a row of the models, and write it."""
    records = report.load()
    known = records.setdefault(kind(), Record())
    if name == "fixed":
        known.fixed = fixed_cost()
    elif name.startswith("first-"):
        model = name.removeprefix("first-")
        known.first[model] = first_calls(model)
    else:
        row = ROWS[name]
        names = [each for each in CONTESTANTS if each != FLOOR or row.floor]
        known.steady[name] = race(row.build(), names, seconds)
        print(report.standing(row, known.steady[name], host_isa().has_tiles), flush=True)
    known.note(name)
    report.save(records)
    DOCUMENT.write_text(report.document(report.load()))  # in the order that is kept
    DOCUMENT.with_name(report.plot_name(kind())).write_text(report.plot(known.steady))
    print(f"{name}: written to {DOCUMENT}", flush=True)


if __name__ == "__main__":
    main()
