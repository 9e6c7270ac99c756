"""Versions that stand for untraced code: of Python, torch and kernelmill, and of the packages with
traced functions.

Guards compare the traced functions. The version of their package stands for the rest: data files,
compiled operators, side effects of imports.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import llvmlite
import torch

from kernelmill.artifact.fingerprint import fingerprint
from kernelmill.core.digest import DIGEST_BYTES, digest_of
from kernelmill.core.errors import UnsupportedError
from kernelmill.core.log import get_logger
from kernelmill.core.target.isa import Isa
from kernelmill.core.version import VERSION

_log = get_logger("artifact")

_INFO = (".dist-info", ".egg-info")


def versions(isa: Isa) -> Mapping[str, str]:
    """Return versions and the instruction set, by name."""
    return {**_versions(), "isa": str(isa)}


@cache
def _versions() -> Mapping[str, str]:
    return {
        "kernelmill": f"{VERSION} {_sources_digest()}",
        "torch": torch.__version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        # The wheel has LLVM inside; asking LLVM itself would load it.
        "llvmlite": f"{llvmlite.__version__}",
    }


def _sources_digest() -> str:
    """Return a digest of kernelmill's own files, so that no edit of the compiler leaves old
    programs in use. If they cannot be read it is unique to this process."""
    root = str(Path(__file__).parent.parent)
    parts: list[bytes] = []
    try:
        for path in sorted(_sources(root)):
            with open(path, "rb", buffering=0) as file:
                parts += [path[len(root) :].encode(), file.read()]
    except OSError as error:
        _log.warning("what is compiled is not kept for other processes: %s", error)
        return os.urandom(DIGEST_BYTES).hex()
    lengths = b" ".join(b"%d" % len(part) for part in parts)
    return digest_of(b"\0".join((lengths, *parts)))


def _sources(root: str) -> Iterator[str]:
    """Yield the paths of source files. OSError for a folder that cannot be read."""
    with os.scandir(root) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _sources(entry.path)
            elif entry.name.endswith((".py", ".ll")):
                yield entry.path


def of_decompositions(table: Mapping[Any, Callable[..., Any]]) -> str:
    """Return operators and the code of their decompositions as text."""
    rows = sorted(f"{operator}: {fingerprint(function)}" for operator, function in table.items())
    return "\n".join(rows)


# ---- installed packages ----------------------------------------------------------------------


@cache
def version_of(distribution: str) -> str:
    """Return the version that is installed; "absent" for none."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "absent"


def packages_of(modules: Iterable[types.ModuleType]) -> dict[str, str]:
    """Return the distributions that these modules came with, and their versions. Modules that are
    not installed (scripts, a project's own folder) have none."""
    found: dict[str, str] = {}
    for module in modules:
        top, file = module.__name__.partition(".")[0], getattr(module, "__file__", None)
        folder = None if file is None else _folder_of(file, module.__name__)
        for name in () if folder is None else _distributions(top, folder):
            found[name] = version_of(name)
    return found


def _folder_of(file: str, name: str) -> str:
    """Return the folder that contains the outermost package of a module."""
    inner = name.count(".") + (os.path.basename(file) == "__init__.py")
    for _ in range(inner):
        file = os.path.dirname(file)
    return os.path.dirname(os.path.abspath(file))


@cache
def _distributions(top: str, folder: str) -> tuple[str, ...]:
    """Return the names of the distributions in a folder that bring the package `top`.
    UnsupportedError when the folder cannot be read."""
    try:
        if not any(name.endswith(_INFO) for name in os.listdir(folder)):
            return ()
    except (FileNotFoundError, NotADirectoryError):  # an archive
        return ()
    except OSError as error:
        raise UnsupportedError(f"{folder} cannot be read: {error.strerror}") from None
    try:
        return (metadata.distribution(top).metadata["Name"],)
    except metadata.PackageNotFoundError:  # of another name than its package, as PyYAML is
        return tuple(metadata.packages_distributions().get(top, ()))
