"""Runs the benchmark, and writes docs/performance.md with its figures and its plot.

python -m tools.bench                            every row, each in a process of its own
python -m tools.bench --rows bert first-bert     these rows; the others stay as they were measured
python -m tools.bench --rows tiles               those that a tile unit (AMX) is for
python -m tools.bench --rows bert --prepare      what takes long the first time, but no measuring
python -m tools.bench --rows bert --contestants kernelmill eager       printed, not written

Figures of other kinds of processors stay as they are.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from kernelmill.core.target.isa import host_isa
from tools.bench import record, report
from tools.bench.cold import first_calls
from tools.bench.contestants import CONTESTANTS, FLOOR
from tools.bench.fixed import fixed_cost
from tools.bench.models import BUILDERS
from tools.bench.plot import plot
from tools.bench.rows import GROUPS, NAMES, STEADY
from tools.bench.steady import prepare, race
from tools.machine import kind

DOCUMENT = Path("docs/performance.md")
_STEADY = {row.name: row for row in STEADY}


def main() -> None:
    """Measures what was asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    choices = [*GROUPS, *NAMES]
    parser.add_argument(
        "--rows", nargs="+", choices=choices, metavar="ROW", help=", ".join(choices), default=NAMES
    )
    parser.add_argument("--contestants", nargs="+", choices=[*CONTESTANTS], metavar="NAME")
    parser.add_argument("--prepare", action="store_true")
    parser.add_argument("--seconds", type=float, default=20.0, help="of steady calls a row")
    parser.add_argument("--runs", type=int, default=3, help="fresh processes for each first call")
    options = parser.parse_args()
    rows = [name for one in options.rows for name in GROUPS.get(one, (one,))]
    if len(rows) == 1:
        _row(rows[0], options)
        return
    _each(rows, sys.argv[1:])


def _each(rows: list[str], arguments: list[str]) -> None:
    """Each row in a process of its own."""
    failed: list[str] = []
    for name in rows:
        # The last of two --rows counts.
        command = [sys.executable, "-W", "ignore", "-m", "tools.bench", *arguments, "--rows", name]
        if subprocess.run(command).returncode:
            failed.append(name)
    if failed:
        sys.exit(f"not measured: {', '.join(failed)}")


def _row(name: str, options: argparse.Namespace) -> None:
    records = record.load()
    known = records.setdefault(kind(), record.Record())
    if name == "fixed":
        known.fixed = fixed_cost()
    elif name.startswith("first-"):
        model = name.removeprefix("first-")
        known.first[model] = first_calls(model, ("kernelmill", "inductor"), options.runs)
    elif not _steady(name, options, known):
        return
    known.note(name)
    record.save(records)
    DOCUMENT.write_text(report.document(record.load()))  # in the order that is kept
    DOCUMENT.with_name(report.plot_name(kind())).write_text(plot(known.steady))
    print(f"{name}: written to {DOCUMENT}", flush=True)


def _steady(name: str, options: argparse.Namespace, known: record.Record) -> bool:
    """Measures a model; False when that is not to be written."""
    everyone = [n for n in CONTESTANTS if n != FLOOR or _STEADY[name].floor]
    names = options.contestants or everyone
    if options.prepare:
        for contestant, reason in prepare(BUILDERS[name](), names).items():
            print(f"{name}, {contestant}: {reason}")
        return False
    standing = race(BUILDERS[name](), names, options.seconds)
    print(report.standing(_STEADY[name], standing, host_isa().has_tiles), flush=True)
    known.steady[name] = standing
    return options.contestants is None


if __name__ == "__main__":
    main()
