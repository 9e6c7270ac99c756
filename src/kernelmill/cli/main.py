"""`kernelmill`: looks at what the compiler keeps, without importing torch."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from kernelmill.cli.calibrate import add_calibrate
from kernelmill.cli.folder import add_folder
from kernelmill.cli.gears import add_gears
from kernelmill.cli.lower import add_lower
from kernelmill.cli.programs import add_aot, add_show
from kernelmill.cli.static import add_static
from kernelmill.core.errors import KernelmillError
from kernelmill.core.knobs import KNOBS
from kernelmill.core.version import VERSION
from kernelmill.store import default_folders
from kernelmill.store.survey import survey
from kernelmill.store.upkeep import (
    collect,
    explain_difference,
    export_archive,
    import_archive,
    parse_size,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code: 0 good, 1 damage found, 2 could not be done."""
    options = _parser().parse_args(arguments)
    try:
        return options.command(options)
    except (KernelmillError, OSError) as error:
        print(f"kernelmill: {error}", file=sys.stderr)
        return 2


def _on_folders(options: argparse.Namespace) -> int:
    """A command on the folders of compiled kernels."""
    folders = (options.folder,) if options.folder else default_folders()
    if options.run not in (list_entries, verify):
        folders = folders[-1:]  # read-only ones in front are somebody else's
    if options.folder and options.run is not import_kernels and not os.path.isdir(options.folder):
        print(f"kernelmill: no folder {options.folder}", file=sys.stderr)
        return 2
    return max([options.run(folder, options) for folder in folders])


def _parser() -> argparse.ArgumentParser:
    width = max(len(knob.name) for knob in KNOBS)
    knobs = "\n".join(f"  {knob.name:{width}}  {knob.summary}" for knob in KNOBS)
    parser = argparse.ArgumentParser(
        prog="kernelmill",
        description="A torch.compile backend; this command looks after what it keeps.",
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
        ("gc", collect_garbage, "remove least recently used kernels that no process uses"),
        ("export", export, "write all good kernels into one tar file"),
        ("import", import_kernels, "take over the kernels of such a file, each checked"),
        ("why", why, "say why two kernels are two"),
    ):
        action = actions.add_parser(name, help=summary)
        add_folder(action)
        action.set_defaults(command=_on_folders, run=run)
        if name == "gc":
            action.add_argument("--max-size", required=True, type=_size, help="2G, 500M, ...")
        if name in ("export", "import"):
            action.add_argument("file", help="the archive")
        if name == "why":
            action.add_argument("first", help="name, or the beginning of its digest")
            action.add_argument("second", help="the same of the other one")
    add_show(actions)
    add_aot(commands)
    add_calibrate(commands)
    add_gears(commands)
    add_static(commands)
    add_lower(commands)
    return parser


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def list_entries(folder: str, options: argparse.Namespace) -> int:
    """Print every kernel with the size of its object in bytes."""
    found = survey(folder)
    for row in found.rows:
        print(f"{row.bytes:>10}  {row.state:10}  {row.name}")
    total = sum(row.bytes for row in found.rows)
    print(f"{len(found.rows)} kernels, {total} bytes of objects in {os.path.abspath(folder)}")
    return 0


def verify(folder: str, options: argparse.Namespace) -> int:
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


def collect_garbage(folder: str, options: argparse.Namespace) -> int:
    """Remove least recently used kernels down to --max-size, and print how many."""
    done = collect(folder, options.max_size)
    print(
        f"removed {done.removed} kernels, {done.removed_bytes} bytes, and {done.leftovers} "
        f"leftovers; {done.left_bytes} bytes left ({done.in_use} kernels in use) in "
        f"{os.path.abspath(folder)}"
    )
    return 0


def export(folder: str, options: argparse.Namespace) -> int:
    """Write the archive and print how many kernels went into it."""
    count = export_archive(folder, options.file)
    print(f"exported {count} kernels to {options.file}")
    return 0


def import_kernels(folder: str, options: argparse.Namespace) -> int:
    """Take over an archive's kernels. Returns 1 when some were refused, which are printed."""
    done = import_archive(folder, options.file)
    for line in done.refused:
        print(f"refused: {line}")
    print(
        f"imported {done.added} kernels, {done.present} were there, {len(done.refused)} refused "
        f"in {os.path.abspath(folder)}"
    )
    return 1 if done.refused else 0


def why(folder: str, options: argparse.Namespace) -> int:
    """Print in which ingredients two kernels differ, with the lines that only one has."""
    lines = explain_difference(folder, options.first, options.second)
    print("\n".join(lines) if lines else "the same in every ingredient")
    return 0
