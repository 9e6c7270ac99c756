"""The file of a program compiled ahead of time: sections of bytes, each with its checksum.

    "kernelmill aot\\n"          what this is
    u64, little-endian          how many bytes the header has
    32 bytes                    SHA-256 of the header
    header                      JSON: {"format": 1, "sections": {NAME: [OFFSET, BYTES, SHA256]}}
    sections                    from the next multiple of 4096 on, where their offsets begin

A section begins at a multiple of 4096, so that it can be mapped into memory. Nothing is used before
its checksum was compared, and nothing in it is ever executed but machine code.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import stat
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from kernelmill.core.errors import StoreError
from kernelmill.store.folder import check_trust

MAGIC = b"kernelmill aot\n"
FORMAT = 1
PAGE = 4096

Pieces = Sequence["bytes | memoryview"]

_OPENING = len(MAGIC) + 8 + 32
_OTHERWISE = "or copy it to a file of your own"


def write_file(path: str, sections: Mapping[str, Pieces]) -> None:
    """Write the file in one step: under its name is either the old one or the new one, whole.

    A section is the pieces one behind the other. OSError when it cannot be written.
    """
    table: dict[str, tuple[int, int, str]] = {}
    offset = 0
    for name, pieces in sections.items():
        state = hashlib.sha256()
        for piece in pieces:
            state.update(piece)
        size = sum(len(piece) for piece in pieces)
        table[name] = (offset, size, state.hexdigest())
        offset += size + _padding(size)
    header = json.dumps({"format": FORMAT, "sections": table}).encode()
    seal = len(header).to_bytes(8, "little") + hashlib.sha256(header).digest()
    head = MAGIC + seal + header
    _publish(path, [(head,), *sections.values()])


def _publish(path: str, parts: Sequence[Pieces]) -> None:
    folder, name = os.path.split(os.path.abspath(path))
    fresh = os.path.join(folder, f".{name}.tmp-{os.getpid()}-{threading.get_ident()}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        with open(descriptor, "wb") as file:
            for pieces in parts:
                for piece in pieces:
                    file.write(piece)
                file.write(bytes(_padding(file.tell())))
            file.flush()
            os.fsync(descriptor)
        os.replace(fresh, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(fresh)
        raise


def _padding(size: int) -> int:
    return -size % PAGE


class AotFile:
    """An open file, mapped privately: its pages are shared with all who map it until they are
    written to. FileNotFoundError when there is none; StoreError when it is no such file, is
    damaged, or could have been written by another user."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.abspath(path)
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise StoreError(f"{self.path} is no plain file")
            check_trust(status, self.path, _OTHERWISE)
            if status.st_size < _OPENING:
                raise self._foreign()
            self.mapping = mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY)
        finally:
            os.close(descriptor)
        self._view = memoryview(self.mapping)
        self.sections = self._read_header()

    def _read_header(self) -> Mapping[str, tuple[int, int, str]]:
        if bytes(self._view[: len(MAGIC)]) != MAGIC:
            raise self._foreign()
        size = int.from_bytes(self._view[len(MAGIC) : len(MAGIC) + 8], "little")
        header = self._view[_OPENING : _OPENING + size]
        if hashlib.sha256(header).digest() != bytes(self._view[_OPENING - 32 : _OPENING]):
            raise self.damaged("the checksum of its header does not match")
        document: Any = json.loads(bytes(header))
        if document["format"] != FORMAT:
            raise StoreError(
                f"{self.path} has the format {document['format']}, and this kernelmill reads "
                f"{FORMAT}: compile it again with kernelmill.aot.compile"
            )
        base = _OPENING + size + _padding(_OPENING + size)
        found = {n: (base + o, b, s) for n, (o, b, s) in document["sections"].items()}
        for name, (offset, count, _) in found.items():
            if not 0 <= offset <= offset + count <= len(self._view):
                raise self.damaged(f"it ends before its {name} do")
        return found

    def section(self, name: str, check: bool = True) -> memoryview:
        """The bytes of a section, after comparing their checksum. StoreError when that differs."""
        offset, size, checksum = self.sections[name]
        data = self._view[offset : offset + size]
        if check and hashlib.sha256(data).hexdigest() != checksum:
            raise self.damaged(f"the checksum of its {name} does not match")
        return data

    def text(self, name: str) -> str:
        """A section that is text."""
        return bytes(self.section(name)).decode()

    def damaged(self, why: str) -> StoreError:
        """The error for a file that cannot be used."""
        return StoreError(
            f"{self.path} is damaged: {why}. Nothing can mend it: copy it again, or compile it "
            "again with kernelmill.aot.compile"
        )

    def _foreign(self) -> StoreError:
        return StoreError(f"{self.path} was not made by kernelmill.aot.compile, or only begun")
