"""`kernelmill`: the command. Help, wrong flags and commands without a model do not import torch.

Each command is a module with a function `add(app)`; `COMMANDS` lists them in the order of the help.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from kernelmill.cli import (
    aot,
    bench,
    bisect,
    cache,
    calibrate,
    doctor,
    explain,
    fleet,
    gears,
    lower,
    run,
    static,
)
from kernelmill.cli.output import (
    EXIT_CODES,
    FINE,
    INTERRUPTED,
    READER_GONE,
    REFUSED,
    USER_CODE,
    print_text,
)
from kernelmill.core.errors import KernelmillError, UserCodeError
from kernelmill.core.version import VERSION

COMMANDS = (
    run.add,
    explain.add,
    cache.add,
    aot.add,
    gears.add,
    static.add,
    fleet.add,
    calibrate.add,
    doctor.add,
    bench.add,
    lower.add,
    bisect.add,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code, one of `kernelmill.cli.output`."""
    try:
        build_app()(args=arguments, prog_name="kernelmill")
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):
            return _reader_gone()
        return end.code if isinstance(end.code, int) else _refused(end.code)
    except Exception as error:
        if _was_interrupted(error):
            return INTERRUPTED
        if isinstance(error, UserCodeError):
            print_text(f"kernelmill: {error}", file=sys.stderr)
            return USER_CODE
        if isinstance(error, OSError):
            return _refused(_in_words(error))
        if isinstance(error, KernelmillError):
            return _refused(error)
        raise
    return FINE


def _was_interrupted(error: BaseException | None) -> bool:
    """Return whether Ctrl-C led to an error: an interrupted import of a module may raise another
    one, as numpy's does."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def build_app() -> typer.Typer:
    """Return the command with all of `COMMANDS`."""
    app = typer.Typer(
        name="kernelmill",
        result_callback=_end,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog=EXIT_CODES,
    )
    app.callback()(_kernelmill)
    for add in COMMANDS:
        add(app)
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        print_text(f"kernelmill {VERSION}")
        raise typer.Exit


def _kernelmill(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """A torch.compile backend for CPUs: manage compiled kernels, measure and report on models."""


def _end(code: int | None, version: bool) -> None:
    """Exit with the code that a command returns, after writing its output while a closed pipe can
    still be reported. `version` is the option of `_kernelmill`, which typer passes on."""
    sys.stdout.flush()
    raise typer.Exit(code or FINE)


def _in_words(error: OSError) -> str:
    """Return "report.html: No such file or directory", without Python's error number."""
    if error.strerror and error.filename is not None:
        return f"{os.fspath(error.filename)}: {error.strerror}"
    return str(error)


def _refused(error: object) -> int:
    if error is not None:
        print_text(f"kernelmill: {error}", file=sys.stderr)
        return REFUSED
    return FINE


def _reader_gone() -> int:
    """End `kernelmill ... | head`: Python must not write to the pipe again as it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return READER_GONE
