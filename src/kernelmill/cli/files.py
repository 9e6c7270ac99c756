"""Files that commands read and write, checked before the work."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from kernelmill.core.errors import ConfigError
from kernelmill.store import default_folders


def text_of(file: str | os.PathLike[str]) -> str:
    """Return the text of a file. OSError when it cannot be read, ConfigError when it is no text."""
    try:
        return Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"{os.fspath(file)} is no text file") from None


def check_folder(path: str | os.PathLike[str]) -> None:
    """Refuse, before the work, a folder that files could not be written to after it; one that is
    not there is made then. ConfigError."""
    folder = Path(path).absolute()
    there = next(each for each in (folder, *folder.parents) if each.exists())
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


def written_to(folder: str | None) -> str:
    """Return the named folder, or the default one that is written to: read-only ones before it are
    somebody else's."""
    return folder or default_folders()[-1]
