"""Run all rows and write docs/libraries.md; see `--help`."""

from __future__ import annotations

import argparse
import datetime
import json
import logging
import os
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

from tools.libraries import page, rows
from tools.libraries.row import Row
from tools.machine import kind

_ROOT = Path(__file__).resolve().parents[2]
_MOST_SECONDS = 900


def main() -> None:
    """Parse the command line, run each row in a process of its own, write the page."""
    parser = argparse.ArgumentParser(prog="python -m tools.libraries", description=__doc__)
    parser.add_argument("--only", default="", help="rows whose names have this text")
    parser.add_argument("--quick", action="store_true", help="only what the tests run")
    parser.add_argument(
        "--time", type=int, default=0, metavar="ROUNDS",
        help="measure eager, Inductor and ours in turns, so often, on a quiet machine",
    )  # fmt: skip
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(_of_row(rows.named(options.child), options.time)))
        return
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
    command = [sys.executable, "-m", "tools.libraries", "--child", row.name, "--time", str(rounds)]
    with tempfile.TemporaryDirectory() as folder:
        own = {"KERNELMILL_CACHE_HOME": folder, "KERNELMILL_KERNEL_META": folder}
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, cwd=_ROOT, check=False,
                env={**os.environ, **own, "TORCHINDUCTOR_CACHE_DIR": folder},
                timeout=_MOST_SECONDS,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"error": f"not done after {_MOST_SECONDS} s"}
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        print(done.stderr[-3000:], file=sys.stderr)
        return {"error": (done.stderr.strip().splitlines() or ["no result"])[-1][:200]}
    return json.loads(lines[-1].replace(f"{_ROOT}/", ""))  # in places where Dynamo broke a graph


def _of_row(row: Row, rounds: int) -> dict[str, Any]:
    from tools.libraries import harness
    from tools.libraries.cuda_builds import make_importable

    make_importable()

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
