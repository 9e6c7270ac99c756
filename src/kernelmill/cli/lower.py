"""`kernelmill lower`: the stages of a graph as text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernelmill.cli.output import Json, examples, print_json, print_text, text_of
from kernelmill.core.errors import ConfigError

STAGES = ("graph", "schedule", "kernels", "plan", "call", "llvm", "asm")
_USUAL = ("graph", "kernels", "plan")


def add(app: typer.Typer) -> None:
    """Add `lower`."""
    app.command(
        epilog=examples(
            "kernelmill lower softmax.graph",
            "kernelmill lower softmax.graph --target x86-64-v3",
            "kernelmill lower softmax.graph --passes cse,dce",
            "kernelmill lower softmax.graph --print llvm,asm",
            'kernelmill lower product.graph --print schedule --schedule "rows=2"',
        )
    )(lower)


def lower(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="A graph as config.debug.graph_dump with type txt writes it."
        ),
    ],
    passes: Annotated[
        str,
        typer.Option(
            "--passes", metavar="NAMES", help="all, none, or names of passes (an unknown one lists "
            "them).",
        ),
    ] = "all",
    target: Annotated[
        str, typer.Option("--target", metavar="ISA", help="native, x86-64-v2, ...")
    ] = "native",
    separate: Annotated[
        bool, typer.Option("--separate", help="Every operator to a kernel of its own.")
    ] = False,
    stages: Annotated[
        str, typer.Option("--print", metavar="STAGES", help=f"Some of {', '.join(STAGES)}.")
    ] = ",".join(_USUAL),
    schedule: Annotated[
        str,
        typer.Option(
            "--schedule", metavar="SIZES", help='Sizes that the cost model does not choose, as '
            '"rows=4 vectors=2", for kernels that have them.',
        ),
    ] = "",
    json: Json = False,
) -> None:  # fmt: skip
    """Print what passes and lowering make of a graph's text."""
    # Imports torch and LLVM, which the other commands do without.
    from kernelmill.cli import stages as lowering

    wanted = stages.split(",")
    unknown = sorted(set(wanted) - set(STAGES))
    if unknown:
        raise ConfigError(f"--print {unknown[0]}: the stages are {', '.join(STAGES)}")
    machine, chosen = lowering.machine_named(target), lowering.passes_named(passes)
    graph = lowering.graph_of(text_of(file), file.name)
    printed = lowering.texts(graph, chosen, machine, separate, wanted, schedule)
    if json:
        print_json([{"title": title, "text": text} for title, text in printed])
    else:
        print_text("\n\n".join(f"== {title}\n{text.rstrip()}" for title, text in printed))
