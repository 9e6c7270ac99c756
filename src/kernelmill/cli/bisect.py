"""`kernelmill bisect`: the first kernel of a model that differs from eager."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernelmill.cli.output import (
    FINE,
    FOUND,
    FactoryName,
    Json,
    check_folder,
    examples,
    print_result,
    user_output,
)
from kernelmill.core.factory import load, user_code
from kernelmill.core.text import counted


def add(app: typer.Typer) -> None:
    """Add `bisect`."""
    shown = examples(
        "kernelmill bisect model.py:make", "kernelmill bisect model.py:make --folder case"
    )
    app.command("bisect", epilog=shown)(bisect)


def bisect(
    factory: FactoryName,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--folder", metavar="DIR", help="Write the kernel, its inputs and a script there."
        ),
    ] = None,
    widen: Annotated[
        float, typer.Option("--widen", metavar="N", min=1.0, help="Factor on what counts as equal.")
    ] = 1.0,
    json: Json = False,
) -> int:
    """Find the first kernel whose result differs from eager.

    Exit code 1 when there is one, or when nothing of the model was compiled.

    The model runs in torch operator by operator, and each compiled launch beside it on the same
    values: a kernel that differs is at fault itself, and not what came before it.
    """
    if folder is not None:
        check_folder(folder)
    with user_output(json):
        made = load(factory)
    from kernelmill.compiler.bisect import describe, write_case
    from kernelmill.report.bisect import bisect as search

    with user_output(json), user_code(f"{factory} failed"):
        result = search(made.model, made.args, made.kwargs, factor=widen)
    first = result.first
    case = None if first is None else first.case
    if folder is not None and first is not None and case is not None:
        write_case(folder, first, case)
    lines = [f"not looked at, it runs in torch: {line}" for line in result.torch]
    if first is not None:
        lines.append(describe(first))
        lines += [f"python {folder / 'show.py'} shows it"] if folder and case else []
    elif result.graphs:
        lines.append(f"no kernel differs from eager ({counted(result.graphs, 'graph')})")
    else:
        lines.append("nothing of the model was compiled: there is no kernel to look at")
    data = {
        "stage": first and first.stage, "kernel": first and first.kernel,
        "value": first and first.value, "difference": first and first.text,
        "graphs": result.graphs, "torch": list(result.torch),
        "folder": str(folder) if folder and case else None,
    }  # fmt: skip
    print_result(json, data, *lines)
    return FINE if first is None and result.graphs else FOUND
