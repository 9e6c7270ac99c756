"""`kernelmill run` and `kernelmill on`: run an unchanged script for torch_npu and torchair, or one
whose `torch.compile` calls then compile with kernelmill."""

from __future__ import annotations

from typing import Annotated

import typer

from kernelmill.cli.output import examples

_AS_WRITTEN = {"allow_interspersed_args": False, "ignore_unknown_options": True}
"""Settings that leave all arguments after the script to it, even those that look like options."""


def add(app: typer.Typer) -> None:
    """Add `run` and `on`."""
    shown = examples("kernelmill run script.py", "kernelmill run serve.py --port 8000")
    app.command("run", epilog=shown, context_settings=_AS_WRITTEN)(run)
    shown = examples("kernelmill on script.py", "kernelmill on serve.py --port 8000")
    app.command("on", epilog=shown, context_settings=_AS_WRITTEN)(on)


_Script = Annotated[str, typer.Argument(metavar="SCRIPT", help="A Python file.")]
_Arguments = Annotated[
    list[str] | None, typer.Argument(metavar="[ARGS]...", help="Arguments of the script.")
]


def run(script: _Script, arguments: _Arguments = None) -> int:
    """Run a script for torch_npu and torchair on the CPU.

    As `python SCRIPT` does, with its exit code. Kernels go to ./kernel_meta and cached methods to
    ./.torchair_cache, unless KERNELMILL_KERNEL_META and KERNELMILL_CACHE_HOME name other folders.
    """
    from kernelmill.compat import install, run_script

    return run_script(script, arguments or (), install)


def on(script: _Script, arguments: _Arguments = None) -> int:
    """Run a script with kernelmill as the backend of torch.compile.

    As `python SCRIPT` does, with its exit code. Calls of torch.compile that name no backend, those
    of libraries too, compile with kernelmill in this process and in those that it starts.
    """
    from kernelmill.compat import run_script
    from kernelmill.core import knobs
    from kernelmill.torch_internals.default_backend import make_default

    knobs.DEFAULT.propose("1")
    return run_script(script, arguments or (), make_default)
