"""`kernelmill calibrate`: measures what this processor's work costs, for the cost model."""

from __future__ import annotations

import argparse
from typing import Any

from kernelmill.cli.folder import add_folder


def add_calibrate(commands: Any) -> None:
    """Add `calibrate` to the command's subparsers."""
    command = commands.add_parser(
        "calibrate", help="measure this processor for the cost model, and keep its figures"
    )
    add_folder(command)
    command.add_argument("--show", action="store_true", help="measure nothing: print what is kept")
    command.set_defaults(command=calibrate)


def calibrate(options: argparse.Namespace) -> int:
    """Measure, keep and print. With --show print what is kept, else the committed figures."""
    # Imports torch, which the other commands do without.
    from kernelmill.compiler import calibration
    from kernelmill.core.isa import processor_name, withheld
    from kernelmill.store.store import open_store

    store = open_store(options.folder)
    machine = calibration.machine_for(store) if options.show else calibration.recalibrate(store)
    print(f"{processor_name()}: {machine}")
    if withheld():
        print(f"  {withheld()}")
    for name, value in calibration.figures(machine).items():
        print(f"  {name:10} {calibration.UNITS[name]:38} {_text(value)}")
    return 0


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {figure:g}" for name, figure in value.items())
    return f"{value:g}"
