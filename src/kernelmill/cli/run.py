"""`kernelmill run`: a script for torch_npu and torchair, as it is."""

from __future__ import annotations

from typing import Annotated

import typer

from kernelmill.cli.output import examples

_AS_WRITTEN = {"allow_interspersed_args": False, "ignore_unknown_options": True}
"""What follows the script is the script's, also where it looks like an option of ours."""


def add(app: typer.Typer) -> None:
    """Add `run`."""
    shown = examples("kernelmill run script.py", "kernelmill run serve.py --port 8000")
    app.command("run", epilog=shown, context_settings=_AS_WRITTEN)(run)


def run(
    script: Annotated[str, typer.Argument(metavar="SCRIPT", help="A Python file.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGS]...", help="Arguments of the script.")
    ] = None,
) -> int:
    """Run a script for torch_npu and torchair on the CPU.

    As `python SCRIPT` does, with its exit code. Kernels go to ./kernel_meta and cached methods to
    ./.torchair_cache, unless KERNELMILL_KERNEL_META and KERNELMILL_CACHE_HOME name other folders.
    """
    from kernelmill.compat import run_script

    return run_script(script, arguments or ())
