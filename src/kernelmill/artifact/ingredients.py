"""What every saved program depends on besides its own code: versions, and what it is for."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import torch

from kernelmill.artifact.fingerprint import fingerprint
from kernelmill.core.digest import DIGEST_BYTES
from kernelmill.core.isa import Isa
from kernelmill.core.version import VERSION


def versions(isa: Isa) -> Mapping[str, str]:
    """Versions and the instruction set, by name."""
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
    """Over kernelmill's own files: no edit of the compiler can leave old programs in use."""
    root = str(Path(__file__).parent.parent)
    parts: list[bytes] = []
    for name in sorted(_sources(root)):
        descriptor = os.open(name, os.O_RDONLY)
        try:
            parts += [name[len(root) :].encode(), _contents(descriptor)]
        finally:
            os.close(descriptor)
    lengths = b" ".join(b"%d" % len(part) for part in parts)
    return hashlib.blake2b(b"\0".join((lengths, *parts)), digest_size=DIGEST_BYTES).hexdigest()


def _sources(folder: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith((".py", ".ll")):
                yield entry.path
            elif "." not in entry.name and entry.name != "__pycache__" and entry.is_dir():
                yield from _sources(entry.path)


def _contents(descriptor: int) -> bytes:
    data = os.read(descriptor, os.fstat(descriptor).st_size + 1)
    while more := os.read(descriptor, 1 << 20):
        data += more
    return data


def of_decompositions(table: Mapping[Any, Callable[..., Any]]) -> str:
    """Operators and the code of what takes their place."""
    rows = sorted(f"{operator}: {fingerprint(function)}" for operator, function in table.items())
    return "\n".join(rows)
