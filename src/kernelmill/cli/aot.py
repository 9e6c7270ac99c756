"""`kernelmill compile`: a model as a file. `kernelmill aot info`: such a file as text."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Annotated

import typer

from kernelmill.cli.output import (
    FactoryName,
    Json,
    Mode,
    Settings,
    check_writable,
    config_of,
    examples,
    print_json,
    print_result,
    print_text,
    user_output,
)
from kernelmill.core.errors import ConfigError, KernelmillError
from kernelmill.core.factory import load, user_code
from kernelmill.core.text import counted


def add(app: typer.Typer) -> None:
    """Add `compile`, and `aot` with its actions."""
    make = "kernelmill compile model.py:make"
    app.command(
        epilog=examples(
            f"{make} -o model.kmill",
            f"{make} --target x86-64-v3",
            f"{make} --gears input:0=1,8,32",
            f"{make} --quantize int8",
        )
    )(compile)
    actions = typer.Typer(no_args_is_help=True)
    shown = examples("kernelmill aot info model.kmill", "kernelmill aot info model.kmill --all")
    app.add_typer(actions, name="aot", help="Programs compiled ahead of time.", epilog=shown)
    actions.command("info", epilog=shown)(info)


def info(
    path: Annotated[str, typer.Argument(metavar="FILE", help="A file of kernelmill.aot.compile.")],
    all: Annotated[bool, typer.Option("--all", help="Graph, kernels and plan too.")] = False,
    json: Json = False,
) -> None:
    """Check a file, and show what is in it."""
    from kernelmill.artifact.container import KMILL, read_artifact
    from kernelmill.artifact.readable import data_of, readable
    from kernelmill.store.sealed import SealedFile

    artifact = read_artifact(SealedFile(path, KMILL))
    if json:
        print_json({"file": path, **data_of(artifact, all)})
    else:
        print_text(readable(artifact, all), end="")


def compile(
    factory: FactoryName,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="FILE", show_default=False,
            help="Default: the name of the model + .kmill.",
        ),
    ] = None,
    gears: Annotated[
        list[str] | None,
        typer.Option(
            "--gears", metavar="ARG:DIM=SIZES", help="Sizes that a dim of an argument has, as "
            "x:0=1,8; for each dim that has some.",
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--target", metavar="ISA", help="native, or an ISA of any machine (config.target).",
            show_default=False,
        ),
    ] = None,
    quantize: Annotated[
        str | None,
        typer.Option(
            "--quantize", metavar="SCHEME", help="int8, int8-weights or int4-weights, for all "
            "layers that can; by layers with --config quantize=JSON.", show_default=False,
        ),
    ] = None,
    mode: Mode = None,
    settings: Settings = None,
    json: Json = False,
) -> None:  # fmt: skip
    """Compile a model into one file, which kernelmill.aot.load runs without the model's code.

    The arguments that the factory returns have the file's sizes; dims with gears have these.
    """
    if output is not None:
        check_writable(output)
    config, sizes = config_of(mode, settings), _gears(gears)
    with user_output(json):
        made = load(factory)
        # Imports torch, which the command's help does without.
        from kernelmill import aot

        with user_code(f"{factory}: the model cannot be traced", KernelmillError, OSError):
            path = aot.compile(
                made.model, made.args, made.kwargs, path=output, gears=sizes or None,
                target=target, config=config, quantize=quantize,
            )  # fmt: skip
    _tell(path, json)


def _tell(path: str, json: bool) -> None:
    from kernelmill.artifact.container import KMILL, read_artifact
    from kernelmill.core.target.isa import parse_isa
    from kernelmill.store.sealed import SealedFile

    artifact = read_artifact(SealedFile(path, KMILL))
    gears, size = artifact.manifest.gears, os.path.getsize(path)
    count = 0 if gears is None else len(gears.table)
    isa = parse_isa(artifact.manifest.ingredients["kernel.isa"]).name
    kernels = len(artifact.kernels)
    sizes = f", {counted(count, 'gear')}" if count else ""
    print_result(
        json,
        {"file": path, "bytes": size, "isa": isa, "kernels": kernels, "gears": count},
        f"{path}: {counted(kernels, 'kernel')} for {isa}{sizes}, {counted(size, 'byte')}",
    )


def _gears(given: Iterable[str] | None) -> dict[str, dict[int, list[int]]]:
    """Parse ARG:DIM=SIZES to {argument: {dim: sizes}}. ConfigError for another text."""
    found: dict[str, dict[int, list[int]]] = {}
    for text in given or ():
        where, _, sizes = text.partition("=")
        name, _, dim = where.rpartition(":")
        try:
            number, values = int(dim), [int(size) for size in sizes.split(",")]
        except ValueError:
            number, values = -1, []
        if not name or not values:
            raise ConfigError(f"--gears {text}: write ARGUMENT:DIM=SIZES, as in x:0=1,8")
        dims = found.setdefault(name, {})
        if number in dims:
            raise ConfigError(f"--gears {text}: {where} has gears already; list all its sizes")
        dims[number] = values
    return found
