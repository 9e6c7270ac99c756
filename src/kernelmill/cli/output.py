"""Output of commands: JSON for programs, and examples below a command's help."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from kernelmill.core.text import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

FINE = 0
FOUND = 1
"""The command ran, and what it looked at is not in order."""

REFUSED = 2
"""Wrong usage, or something that is missing: nothing was done."""

USER_CODE = 3
"""Code that the command was given does not import, or raised."""

INTERRUPTED = 130
"""Ctrl-C, as shells count it: 128 and the number of the signal."""

READER_GONE = 141
"""What reads standard output has closed it: 128 and the number of the signal."""

EXIT_CODES = """Exit codes:
  0    fine
  1    something is wrong: damage, a failure, a finding
  2    wrong usage, or a file or folder that cannot be used
  3    the code that was given does not import, or raised
  130  interrupted"""

_STANDARD_OUTPUT, _STANDARD_ERROR = 1, 2

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
"""The option of commands that print JSON too."""


def print_text(text: object = "", end: str = "\n", file: TextIO | None = None) -> None:
    """Print a text made `printable`. Commands print nothing in another way."""
    print(printable(str(text)), end=end, file=file)


def print_json(value: Any) -> None:
    """Print a value of JSON's types and dataclasses of them, as one document."""
    print(json.dumps(value, indent=2, default=_plain))


@contextmanager
def user_output(json: bool) -> Generator[None]:
    """Run a user's code with its output, and that of its processes, on standard error where the
    command prints JSON, so that standard output is one document."""
    if not json:
        yield
        return
    sys.stdout.flush()
    kept = os.dup(_STANDARD_OUTPUT)
    os.dup2(_STANDARD_ERROR, _STANDARD_OUTPUT)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, _STANDARD_OUTPUT)
        os.close(kept)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return str(value)


def examples(*commands: str) -> str:
    """Return the text below a command's help. Keep lines below 56 columns, so that none is wrapped
    on a terminal of 60."""
    escaped = [command.replace("[", r"\[") for command in commands]
    return "\n".join(["Examples:", *(f"  {command}" for command in escaped)])


def print_indented(console: Console, text: Text) -> None:
    """Print a line, wrapped to the terminal with the same indent."""
    indent = len(text.plain) - len(text.plain.lstrip(" "))
    for line in text[indent:].wrap(console, console.width - indent):
        line.pad_left(indent)
        line.rstrip()
        console.print(line, soft_wrap=True)


def wide_console() -> Console:
    """Return a console as wide as the terminal; into a pipe lines are not broken. Its output is
    `printable`."""
    from rich.console import Console
    from rich.segment import Segment

    class Printable(Console):
        def render(self, *renderable: Any, **options: Any) -> Iterator[Segment]:
            for segment in super().render(*renderable, **options):
                text, style, control = segment
                yield segment if control else Segment(printable(text), style)

    return Printable(width=shutil.get_terminal_size((10_000, 24)).columns, highlight=False)
