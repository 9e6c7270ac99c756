"""`kernelmill`: looks at what the compiler keeps, without importing torch."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from kernelmill.core.errors import KernelmillError
from kernelmill.core.knobs import KNOBS
from kernelmill.core.version import VERSION
from kernelmill.store import default_folders
from kernelmill.store.survey import survey


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code: 0 good, 1 damage found, 2 could not be done."""
    options = _parser().parse_args(arguments)
    folders = (options.folder,) if options.folder else default_folders()
    if options.folder and not os.path.isdir(options.folder):
        print(f"kernelmill: no folder {options.folder}", file=sys.stderr)
        return 2
    try:
        codes = [options.run(folder) for folder in folders]
    except (KernelmillError, OSError) as error:
        print(f"kernelmill: {error}", file=sys.stderr)
        return 2
    return max(codes)


def _parser() -> argparse.ArgumentParser:
    width = max(len(knob.name) for knob in KNOBS)
    knobs = "\n".join(f"  {knob.name:{width}}  {knob.summary}" for knob in KNOBS)
    parser = argparse.ArgumentParser(
        prog="kernelmill",
        description="A torch.compile backend; this command looks after its compiled kernels.",
        epilog=f"environment variables:\n{knobs}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"kernelmill {VERSION}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    cache = commands.add_parser("cache", help="the folder of compiled kernels")
    actions = cache.add_subparsers(required=True, metavar="ACTION")
    for name, run, summary in (
        ("ls", list_entries, "list the kernels"),
        ("verify", verify, "check every file; exit code 1 when one is damaged"),
    ):
        action = actions.add_parser(name, help=summary)
        action.add_argument("--folder", help="default: KERNELMILL_KERNEL_META, else ./kernel_meta")
        action.set_defaults(run=run)
    return parser


def list_entries(folder: str) -> int:
    """Print every kernel with the size of its object in bytes."""
    found = survey(folder)
    for row in found.rows:
        print(f"{row.bytes:>10}  {row.state:10}  {row.name}")
    total = sum(row.bytes for row in found.rows)
    print(f"{len(found.rows)} kernels, {total} bytes of objects in {os.path.abspath(folder)}")
    return 0


def verify(folder: str) -> int:
    """Print what is damaged or left over, then the counts. Returns 1 when something is damaged."""
    found = survey(folder)
    for row in found.rows:
        if row.state == "bad":
            print(f"bad: {row.reason}")
    for leftover in found.leftovers:
        print(f"left over, may be deleted: {leftover}")
    states = ", ".join(f"{found.count(state)} {state}" for state in ("ok", "incomplete", "bad"))
    print(f"{states}, {len(found.leftovers)} left over in {os.path.abspath(folder)}")
    return 1 if found.count("bad") else 0
