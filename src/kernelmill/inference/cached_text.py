"""`readable_cache`: the entries of a cache as text."""

from __future__ import annotations

import os
from typing import TextIO

from kernelmill.artifact.container import SUFFIX, Artifact, load, names
from kernelmill.artifact.readable import readable
from kernelmill.core.errors import StoreError, file_errors
from kernelmill.core.text import printable
from kernelmill.store.folder import Folder


def readable_cache(
    path: str | os.PathLike[str],
    print_output: bool = True,
    file: str | os.PathLike[str] | TextIO | None = None,
) -> str:
    """Return the entries under `path` as text: signature, key, dependences, graph, kernels, plan.

    `path` is one entry's .kmill, the folder of a method, or any folder above. The text is printed,
    and written to `file` (a name or an open file) if that is given. Raises StoreError when there is
    no entry, a damaged one, or files that others can write to; FileError when `file` cannot be
    written.
    """
    found = cached_artifacts(path)
    text = "\n".join(f"# {file}\n\n{readable(artifact)}" for file, artifact in found)
    if print_output:
        print(printable(text))
    if isinstance(file, (str, os.PathLike)):
        with file_errors(file), open(file, "w", encoding="utf-8") as opened:
            opened.write(text)
    elif file is not None:
        file.write(text)
    return text


def cached_artifacts(path: str | os.PathLike[str]) -> list[tuple[str, Artifact]]:
    """Return the entries under `path`, each with its file's name. Raises as `readable_cache`."""
    found: list[tuple[str, Artifact]] = []
    for folder, name in _entries(os.fspath(path)):
        artifact = load(Folder(folder), name)
        if artifact is not None:
            found.append((os.path.join(folder, name + SUFFIX), artifact))
    if not found:
        raise StoreError(f"{path} has no entry of a compile cache")
    return found


def _entries(path: str) -> list[tuple[str, str]]:
    if path.endswith(SUFFIX):
        return [(os.path.dirname(path) or ".", os.path.basename(path).removesuffix(SUFFIX))]
    found: list[tuple[str, str]] = []
    for folder, _, files in sorted(os.walk(path)):
        if any(name.endswith(SUFFIX) for name in files):
            found += [(folder, name) for name in names(Folder(folder))]
    return found
