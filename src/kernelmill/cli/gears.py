"""`kernelmill gears suggest`: gears for calls that were recorded."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from kernelmill.cli.output import Json, examples, print_json, print_text, text_of
from kernelmill.gears.shape_log import read_shapes


def add(app: typer.Typer) -> None:
    """Add `gears` with its actions."""
    actions = typer.Typer(no_args_is_help=True)
    shown = examples(
        "kernelmill gears suggest shapes.jsonl", "kernelmill gears suggest shapes.jsonl --max 3"
    )
    app.add_typer(
        actions, name="gears", help="The sizes that models are compiled for.", epilog=shown
    )
    actions.command("suggest", epilog=shown)(suggest)


def suggest(
    log: Annotated[
        str, typer.Argument(metavar="LOG", help="A file of kernelmill.inference.record_shapes.")
    ],
    max: Annotated[int, typer.Option("--max", metavar="N", min=1, help="How many gears.")] = 8,
    policy: Annotated[
        Literal["zip", "product"], typer.Option("--policy", help="How gears combine.")
    ] = "zip",
    small: Annotated[bool, typer.Option("--small", help="Gears 0 and 1 are allowed.")] = False,
    json: Json = False,
) -> None:
    """Propose gears with little padding for recorded calls, as code that sets them."""
    # Imports numpy, which the other commands do without.
    from kernelmill.gears import suggest as suggestions

    calls = read_shapes(text_of(log).splitlines())
    found = suggestions.suggest(calls, max, policy, 0 if small else 2)
    if json:
        print_json({"summary": found.summary(), "code": found.code()})
    else:
        print_text(f"# {found.summary()}")
        print_text(found.code(), end="")
