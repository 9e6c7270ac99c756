"""The file of a program compiled ahead of time."""

from __future__ import annotations

import os

from kernelmill.store.sealed import Kind, SealedFile

AOT = Kind(b"kernelmill aot\n", "copy it again, or compile it again with kernelmill.aot.compile")


def open_file(path: str | os.PathLike[str]) -> SealedFile:
    """A compiled file, mapped so that its weights may be written to without changing the file.
    Raises as `SealedFile` does."""
    return SealedFile(path, AOT, writable=True)
