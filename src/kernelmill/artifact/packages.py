"""Installed packages by version: what stands for the code of theirs that no entry names.

A trace compares the functions that it went through. The version of the package around them stands
for the rest: data files, compiled operators, what a function did while it was imported.
"""

from __future__ import annotations

import os
import types
from collections.abc import Iterable
from functools import cache
from importlib import metadata

_INFO = (".dist-info", ".egg-info")


@cache
def version_of(distribution: str) -> str:
    """The version that is installed; "absent" for none."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "absent"


def packages_of(modules: Iterable[types.ModuleType]) -> dict[str, str]:
    """The distributions that these modules came with, and their versions. Modules that nobody has
    installed (scripts, a project's own folder) have none."""
    found: dict[str, str] = {}
    for module in modules:
        top, file = module.__name__.partition(".")[0], getattr(module, "__file__", None)
        folder = None if file is None else _folder_of(file, module.__name__)
        for name in () if folder is None else _distributions(top, folder):
            found[name] = version_of(name)
    return found


def _folder_of(file: str, name: str) -> str:
    """The folder that the outermost package of a module lies in."""
    inner = name.count(".") + (os.path.basename(file) == "__init__.py")
    for _ in range(inner):
        file = os.path.dirname(file)
    return os.path.dirname(os.path.abspath(file))


@cache
def _distributions(top: str, folder: str) -> tuple[str, ...]:
    """The names of those installed in a folder that bring the package `top`."""
    try:
        if not any(name.endswith(_INFO) for name in os.listdir(folder)):
            return ()
    except OSError:  # an archive
        return ()
    try:
        return (metadata.distribution(top).metadata["Name"],)
    except metadata.PackageNotFoundError:  # of another name than its package, as PyYAML is
        return tuple(metadata.packages_distributions().get(top, ()))
