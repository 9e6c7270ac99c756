"""`kernelmill calibrate`: measures what this processor's work costs, for the cost model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from kernelmill.cli.output import (
    Folder,
    Json,
    examples,
    print_indented,
    print_json,
    wide_console,
    writable_folder,
)


def add(app: typer.Typer) -> None:
    """Add `calibrate`."""
    shown = examples("kernelmill calibrate", "kernelmill calibrate --show --json")
    app.command(epilog=shown)(calibrate)


def calibrate(
    show: Annotated[
        bool, typer.Option("--show", help="Measure nothing: print what is kept.")
    ] = False,
    folder: Folder = None,
    json: Json = False,
) -> None:
    """Measure this processor for the cost model, and keep its figures.

    With --show print the figures that compiles use here: those kept, else the committed ones.
    """
    if not show:
        writable_folder(folder)
    # Imports torch, which the other commands do without.
    from kernelmill.compiler import calibration
    from kernelmill.core.target.isa import processor_name, withheld
    from kernelmill.store.store import open_store

    store = open_store(folder)
    machine = calibration.machine_for(store) if show else calibration.recalibrate(store)
    figures = calibration.figures(machine)
    if json:
        print_json({
            "processor": processor_name(), "machine": str(machine), "withheld": withheld(),
            "figures": figures, "units": dict(calibration.UNITS),
        })  # fmt: skip
    else:
        _show(f"{processor_name()}: {machine}", withheld(), figures, calibration.UNITS)


def _show(title: str, withheld: str, figures: Mapping[str, Any], units: Mapping[str, str]) -> None:
    from rich.table import Table
    from rich.text import Text

    console = wide_console()
    print_indented(console, Text(title))
    if withheld:
        print_indented(console, Text(f"  {withheld}"))
    table = Table(box=None, show_header=False)
    for name, value in figures.items():
        table.add_row(name, units[name], _text(value))
    console.print(table)


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {figure:g}" for name, figure in value.items())
    return f"{value:g}"
