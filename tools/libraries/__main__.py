"""Run all rows and write docs/libraries.md; see `--help`."""

from __future__ import annotations

import argparse
import datetime
import json
import logging
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from tools.bench.harness import child
from tools.libraries import page, rows
from tools.libraries.row import Row
from tools.machine import kind

_ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    """Parse the command line, run each row in a process of its own, write the page."""
    parser = argparse.ArgumentParser(prog="python -m tools.libraries", description=__doc__)
    parser.add_argument("--only", default="", help="rows whose names have this text")
    parser.add_argument("--quick", action="store_true", help="only what the tests run")
    parser.add_argument(
        "--time", type=int, default=0, metavar="ROUNDS",
        help="measure eager, Inductor and ours in turns, so often, on a quiet machine",
    )  # fmt: skip
    options = parser.parse_args()
    chosen = [
        row for row in rows.all_rows() if options.only in row.name and row.quick >= options.quick
    ]
    for row in chosen:
        found = _by_a_child(row, options.time)
        known = {**page.read(), row.name: found}
        print(f"{row.name}: {page.in_a_line(found)}", flush=True)
        page.write(known)


def _by_a_child(row: Row, rounds: int) -> Mapping[str, Any]:
    """What a process of its own finds: a library can end it, and changes settings of torch."""
    call = f"of_row({row.name!r}, {rounds})"
    with tempfile.TemporaryDirectory() as folder:
        kernels, methods = f"{folder}/kernel_meta", f"{folder}/methods"
        try:
            found = child(call, "tools.libraries.__main__", kernels, KERNELMILL_CACHE_HOME=methods)
        except subprocess.TimeoutExpired as late:
            return {"error": f"not done after {late.timeout:.0f} s"}
        except RuntimeError as failure:
            print(failure, file=sys.stderr)
            return {"error": str(failure).splitlines()[-1][:200]}
    # In places where Dynamo broke a graph.
    return json.loads(json.dumps(found).replace(f"{_ROOT}/", ""))


def of_row(name: str, rounds: int) -> dict[str, Any]:
    """What is found of the row of that name."""
    from tools.libraries import harness
    from tools.libraries.cuda_builds import make_importable

    make_importable()

    row = rows.named(name)
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    found: dict[str, Any] = {
        "date": str(datetime.date.today()), "machine": kind(), "threads": torch.get_num_threads(),
        "version": _version(row.of), "way": row.said,
        "torch.compile": asdict(harness.by_torch_compile(row)),
    }  # fmt: skip
    if row.ours:
        with tempfile.TemporaryDirectory() as folder:
            found[harness.OURS] = asdict(harness.by_ours(row, folder))
    if rounds:
        found["seconds"] = harness.times(row, rounds)
    return found


def _version(library: str) -> str:
    return metadata.version({"PyG": "torch-geometric"}.get(library, library))


if __name__ == "__main__":
    main()
