"""Measure models by all contestants, each in a process of its own; writes docs/scoreboard.md.

python -m tools.scoreboard --seconds 1200    for 20 minutes; the same command goes on later
python -m tools.scoreboard --only timm       a list, or rows by their names
python -m tools.scoreboard --list            what there is, and what was measured of it

A row is measured again when the revision is another, or with --again. Where other work had more
than a tenth of the processors, there are no times, and the same command tries again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from tools.bench.harness import child, have_bytecode
from tools.libraries.cuda_builds import make_importable
from tools.machine import description, kind, revision
from tools.scoreboard import page, records
from tools.scoreboard.records import MOST_OTHERS, Result

DOCUMENT = Path("docs/scoreboard.md")
_GIVEN = ("graphs", "batch", "dtype", "threads", "tuned")  # to a row's process


def main() -> None:
    """Measure the rows that were asked for and that have no figures of this revision."""
    parser, options = _options()
    if find_spec("transformers") is None:
        sys.exit("transformers is not installed: `make scoreboard` makes an environment with it")
    make_importable()
    from tools.scoreboard.lists import all_rows, lacking

    for sentence in lacking():
        print(sentence)
    rows, only = {row.key: row for row in all_rows(options.graphs)}, set(options.only)
    asked = {each for row in rows.values() for each in (row.key, row.name, row.list)}
    if unknown := only - asked:
        parser.error(f"no rows: {', '.join(sorted(unknown))}")
    name = f"{kind()}; {options.dtype}, {options.threads} threads, batch sizes {options.batch}"
    known = records.load()
    run = known.setdefault(name, {})
    todo = [key for key, row in rows.items() if not only or {key, row.name, row.list} & only]
    if options.list:
        print(*(f"{key}: {_state(run.get(key))}" for key in todo), sep="\n")
        return
    if not options.again:
        now = revision()
        todo = [key for key in todo if key not in run or run[key].is_stale(now, options.tuned)]
    have_bytecode()
    end = time.monotonic() + options.seconds
    for key in sorted(todo, key=run.__contains__):  # those first that were never measured
        left = end - time.monotonic()
        result = by_a_child(key, options, min(options.row_seconds, left)) if left > 0 else None
        if result is None:
            print(f"time is up; rows are left: the same command goes on with {key}")
            return
        print(f"{key}: {_state(result)}", flush=True)
        if result.others > MOST_OTHERS and key in run and run[key].best:
            continue  # what was found on a quiet machine stays
        run[key] = result
        records.save(known)
        kept = records.load()  # in its order
        DOCUMENT.write_text(page.document(kept))
        DOCUMENT.with_name(page.picture_name(name)).write_text(page.picture(kept[name]))


def _options() -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    parser = argparse.ArgumentParser(
        prog="python -m tools.scoreboard", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="rows or lists")
    parser.add_argument("--list", action="store_true", help="print the rows and their state")
    parser.add_argument("--batch", choices=["1", "dashboard"], default="1", help="batch sizes")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--tuned", action="store_true", help="Inductor with max-autotune, freezing")
    parser.add_argument("--graphs", default="", metavar="FOLDER", help="samples of GraphNet")
    parser.add_argument("--again", action="store_true", help="also what has figures")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="of the whole run")
    parser.add_argument("--row-seconds", type=float, default=600.0, help="of a row, at most")
    return parser, parser.parse_args()


def _state(result: Result | None) -> str:
    if result is None or not result.best:
        return (result.unavailable or result.stopped or "refused or wrong") if result else "new"
    wrong = f", wrong: {', '.join(result.wrong)}" if result.wrong else ""
    return f"{result.times(result.best):.2f} times {result.best}{wrong}, {result.revision}"


def by_a_child(key: str, options: argparse.Namespace, most_seconds: float) -> Result | None:
    """Return what a process of its own finds of a row; None where `most_seconds` were too few, and
    fewer than a row may take. A row that takes longer or ends its process has what it said last."""
    given = {name: getattr(options, name) for name in _GIVEN}
    call = f"in_child({key!r}, {options.row_seconds / 3}, **{given!r})"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        own = {"TMPDIR": folder, "KERNELMILL_CACHE_HOME": f"{folder}/methods"}
        try:
            return Result(**child(call, __spec__.name, f"{folder}/kernels", most_seconds, **own))
        except subprocess.TimeoutExpired as late:
            if most_seconds < options.row_seconds:
                return None
            return _last(late.stdout, f"not done after {most_seconds:.0f} s")
        except RuntimeError as failure:
            said = getattr(failure.__cause__, "stdout", "")
            return _last(said, str(failure).splitlines()[-1][-300:])


def _last(said: str | bytes | None, why: str) -> Result:
    """The last record that a process printed, with the reason why no other came."""
    text = said.decode(errors="replace") if isinstance(said, bytes) else said or ""
    lines = [line for line in text.splitlines() if line.startswith('{"measured"')]
    found = Result(**json.loads(lines[-1])) if lines else Result(description(), revision())
    found.stopped = f"{found.stopped or 'start'}: {why}"
    return found


def in_child(
    key: str, most_seconds: float, graphs: str, batch: str, dtype: str, threads: int, tuned: bool
) -> dict[str, Any]:
    """Return what is found of a row in this process; a contestant has so many seconds."""
    make_importable()
    from tools.scoreboard.lists import all_rows
    from tools.scoreboard.measure import contestants, measured

    torch.set_num_threads(threads)
    row = next(row for row in all_rows(graphs) if row.key == key)
    size = row.batch if batch == "dashboard" else 1
    return asdict(measured(row, size, dtype, contestants(tuned), most_seconds))


if __name__ == "__main__":
    main()
