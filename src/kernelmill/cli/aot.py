"""`kernelmill aot info`: a compiled file as text."""

from __future__ import annotations

from typing import Annotated

import typer

from kernelmill.cli.output import FINE, Json, examples, print_json, print_text


def add(app: typer.Typer) -> None:
    """Add `aot` with its actions."""
    actions = typer.Typer(no_args_is_help=True)
    shown = examples("kernelmill aot info model.kmill", "kernelmill aot info model.kmill --all")
    app.add_typer(actions, name="aot", help="Programs compiled ahead of time.", epilog=shown)
    actions.command("info", epilog=shown)(info)


def info(
    path: Annotated[str, typer.Argument(metavar="FILE", help="A file of kernelmill.aot.compile.")],
    all: Annotated[bool, typer.Option("--all", help="Graph, kernels and plan too.")] = False,
    json: Json = False,
) -> int:
    """Check a file, and show what is in it."""
    from kernelmill.artifact.container import KMILL, read_artifact
    from kernelmill.artifact.readable import data_of, readable
    from kernelmill.store.sealed import SealedFile

    artifact = read_artifact(SealedFile(path, KMILL))
    if json:
        print_json({"file": path, **data_of(artifact, all)})
    else:
        print_text(readable(artifact, all), end="")
    return FINE
