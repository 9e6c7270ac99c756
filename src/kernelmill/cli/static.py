"""`kernelmill static`: compiles recorded operators, and packs them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from kernelmill.cli.output import (
    FINE,
    FOUND,
    Folder,
    Json,
    check_folder,
    examples,
    print_result,
    print_text,
    writable_folder,
)

if TYPE_CHECKING:
    from kernelmill.static_kernels import Built

Log = Annotated[
    str,
    typer.Argument(metavar="LOG", help="A log of recorded operators, or a folder of documents."),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs", metavar="N", min=1, help="Compiles at a time. Default: one a processor."
    ),
]
Target = Annotated[
    str,
    typer.Option(
        "--target", metavar="ISA", help="native, or an ISA of any machine (config.target)."
    ),
]


def add(app: typer.Typer) -> None:
    """Add `static` with its actions."""
    actions = typer.Typer(no_args_is_help=True)
    compiling = "kernelmill static compile operators.log"
    packing = "kernelmill static build operators.log --wheel"
    app.add_typer(
        actions, name="static", help="Static kernels of recorded operators.",
        epilog=examples(compiling, packing),
    )  # fmt: skip
    actions.command("compile", epilog=examples(compiling, f"{compiling} --jobs 2"))(compile_log)
    actions.command("build", epilog=examples(packing))(build_package)


def compile_log(
    path: Log, jobs: Jobs = None, target: Target = "native", folder: Folder = None,
    json: Json = False,
) -> int:  # fmt: skip
    """Compile them into the kernel folder; exit code 1 when an operator failed."""
    writable_folder(folder)
    from kernelmill import static_kernels

    return _tell(static_kernels.compile_log(path, jobs or 0, target, folder), json)


def build_package(
    path: Log,
    jobs: Jobs = None,
    target: Target = "native",
    folder: Folder = None,
    wheel: Annotated[bool, typer.Option("--wheel", help="A wheel for pip instead.")] = False,
    output: Annotated[
        str, typer.Option("--output", metavar="DIR", help="Where the package goes.")
    ] = ".",
    name: Annotated[
        str,
        typer.Option(
            "--name", help="Of the package. Default: static_kernel_TIME.", show_default=False
        ),
    ] = "",
    json: Json = False,
) -> int:
    """Compile them, and pack them as a .run file; exit code 1 when an operator failed."""
    from kernelmill import static_kernels

    check_folder(output)
    done = static_kernels.build(
        path, output, wheel=wheel, name=name, jobs=jobs or 0, target=target, folder=folder
    )
    return _tell(done, json)


def _tell(done: Built, json: bool) -> int:
    for operator, reason in () if json else done.failures:
        print_text(f"failed: {operator}: {reason}", file=sys.stderr)
    data = {
        "operators": done.operators, "compiled": done.compiled, "path": done.path or None,
        "failures": [{"operator": one, "reason": why} for one, why in done.failures],
    }  # fmt: skip
    counts = f"{done.operators} operators, {done.compiled} compiled now"
    packed = f"; {done.path}" if done.path else ""
    print_result(json, data, f"{counts}, {len(done.failures)} failed{packed}")
    return FOUND if done.failures else FINE
