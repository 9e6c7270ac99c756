"""Options, files and output of commands: JSON for programs, and examples below a command's help."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from kernelmill.core.errors import ConfigError, ConfigTypeError
from kernelmill.core.text import printable
from kernelmill.store import default_folders

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from kernelmill.config import CompilerConfig

FINE = 0
FOUND = 1
"""Exit code if the command ran and found something wrong."""

REFUSED = 2
"""Wrong usage, or something that is missing: nothing was done."""

USER_CODE = 3
"""Exit code if the user's code does not import, or raised."""

INTERRUPTED = 130
"""Ctrl-C, as shells count it: 128 and the number of the signal."""

READER_GONE = 141
"""Exit code if the reader of standard output has closed it: 128 and the number of the signal."""

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


def print_result(json: bool, value: Any, *lines: str) -> None:
    """Print a value as `print_json`, or else lines of text."""
    if json:
        print_json(value)
    else:
        for line in lines:
            print_text(line)


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


Mode = Annotated[
    str | None,
    typer.Option("--mode", metavar="MODE", help="A mode of the config. Default: max-autotune."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--config", metavar="NAME=VALUE", help="An option of the config, by its dotted name; "
        "may be repeated.",
    ),
]  # fmt: skip
Dynamic = Annotated[
    bool | None,
    typer.Option(
        "--dynamic/--static", help="Sizes vary, or none does, as dynamic of torch. Default: "
        "those that change between calls.", show_default=False,
    ),
]  # fmt: skip
Threads = Annotated[
    int | None,
    typer.Option("--threads", metavar="N", min=1, help="Of torch. Default: what torch takes."),
]

_WORDS = {"true": True, "false": False, "null": None, "none": None}


def config_of(mode: str | None, settings: Iterable[str] | None) -> CompilerConfig:
    """Return the config of a command's options. ConfigError for an unknown option, or an invalid
    value."""
    from kernelmill.config import CompilerConfig

    config = CompilerConfig()
    if mode is not None:
        config.mode = mode
    for setting in settings or ():
        name, equals, text = setting.partition("=")
        if not equals:
            raise ConfigError(f"--config {setting}: write NAME=VALUE, as in --config mode=...")
        try:
            config.set(name, _value(text) if text[:1] == "{" else text)
        except ConfigTypeError:
            value = _value(text)
            if value == text:
                raise
            config.set(name, value)
    return config


def _value(text: str) -> Any:
    """Parse a value of no declared type: a number, True, None, a list, a dict."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return json.loads(text)
    except ValueError:
        return text


@contextmanager
def on_threads(count: int | None) -> Generator[None]:
    """Run torch with so many threads; None: its default."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def text_of(file: str | os.PathLike[str]) -> str:
    """Return the text of a file. OSError when it cannot be read, ConfigError when it is no text."""
    try:
        return Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"{os.fspath(file)} is no text file") from None


def existing(path: str | os.PathLike[str]) -> Path:
    """Return a path if it exists; else the nearest folder above it that does."""
    whole = Path(path).absolute()
    return next(each for each in (whole, *whole.parents) if each.exists())


def check_folder(path: str | os.PathLike[str]) -> None:
    """Refuse, before the work, a folder that files could not be written to after it; one that is
    not there is made then. ConfigError."""
    there = existing(path)
    if not there.is_dir():
        raise ConfigError(f"{os.fspath(path)}: {there} is a file, and no folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise ConfigError(f"{os.fspath(path)}: {there} cannot be written here")


def check_writable(path: str | os.PathLike[str]) -> None:
    """Refuse, before the work, a file that could not be written after it. ConfigError."""
    file = Path(path)
    if file.is_dir():
        raise ConfigError(f"{file} is a folder; name a file in it")
    if not file.parent.is_dir():
        raise ConfigError(f"{file}: there is no folder {file.parent}; make it first")
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise ConfigError(f"{file} cannot be written here")


FactoryName = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:FUNCTION",
        help="package.module:function or file.py:function; the function returns (model, args) or "
        "(model, args, kwargs).",
    ),
]


Folder = Annotated[
    str | None,
    typer.Option(
        "--folder",
        metavar="DIR",
        help="Of compiled kernels. Default: KERNELMILL_KERNEL_META, else kernelmill/kernel_meta in "
        "$XDG_CACHE_HOME or ~/.cache.",
        show_default=False,
    ),
]
"""None when it is not given."""


def writable_folder(folder: str | None) -> str:
    """Return the named folder, or the default one that is written to: read-only ones before it are
    somebody else's. ConfigError as `check_folder`."""
    path = folder or default_folders()[-1]
    check_folder(path)
    return path
