"""Sealed files: sections of bytes, each with its checksum, to be mapped into memory.

    magic                       one line that names the kind of file
    u64, little-endian          number of bytes of the header
    32 bytes                    SHA-256 of the header
    header                      JSON: {"format": 1, "sections": {NAME: [OFFSET, BYTES, SHA256]}}
    sections                    from the next multiple of 4096 on, the origin of their offsets

A section begins at a multiple of 4096. Nothing is used before its checksum was compared.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import operator
import os
import stat
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import StoreError
from kernelmill.store.folder import check_trust

FORMAT = 1
PAGE = 4096

Pieces = Sequence["bytes | memoryview"]

_SEAL_BYTES = 8 + 32
_OTHERWISE = "or copy it to a file of your own"


@dataclass(frozen=True)
class FileKind:
    """A kind of sealed files: `magic` is the first line, `remedy` the advice for a bad file, and
    `sections` are those that each file has."""

    magic: bytes
    remedy: str
    sections: tuple[str, ...] = ()


class Damaged(StoreError):
    """A file that was changed after writing, or has a format that this kernelmill does not read."""


def write_sealed(path: str, kind: FileKind, sections: Mapping[str, Pieces]) -> None:
    """Write the file atomically: under its name is either the old one or the new one, whole. A
    section is its pieces in a row. OSError when it cannot be written."""
    folder, name = os.path.split(os.path.abspath(path))
    fresh = os.path.join(folder, f".{name}.tmp-{os.getpid()}-{threading.get_ident()}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        with open(descriptor, "wb") as file:
            for piece in sealed_pieces(kind, sections):
                file.write(piece)
            file.flush()
            os.fsync(descriptor)
        os.replace(fresh, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(fresh)
        raise


def sealed_pieces(kind: FileKind, sections: Mapping[str, Pieces]) -> Iterator[bytes | memoryview]:
    """Yield the bytes of the file, piece by piece."""
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
    head = kind.magic + len(header).to_bytes(8, "little") + hashlib.sha256(header).digest() + header
    for pieces in ((head,), *sections.values()):
        yield from pieces
        yield bytes(_padding(sum(len(piece) for piece in pieces)))


def _padding(size: int) -> int:
    return -size % PAGE


class SealedFile:
    """An open file, mapped into memory: its pages are shared with all who map it. `writable`:
    private copies are made of pages that are written to.

    FileNotFoundError when there is none; Damaged when it is of another kind or was changed;
    StoreError when another user could have written it. A `descriptor` of the file may be given,
    which is closed here; `path` is for messages then.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        kind: FileKind,
        writable: bool = False,
        descriptor: int | None = None,
    ) -> None:
        self.path = os.path.abspath(path) if descriptor is None else os.fspath(path)
        self.kind = kind
        if descriptor is None:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise StoreError(f"{self.path} is no plain file")
            check_trust(status, self.path, _OTHERWISE)
            if status.st_size < len(kind.magic) + _SEAL_BYTES:
                raise Damaged(f"{self.path} is no file of kernelmill, or only the beginning")
            access = mmap.ACCESS_COPY if writable else mmap.ACCESS_READ
            self.mapping = mmap.mmap(descriptor, 0, access=access)
        finally:
            os.close(descriptor)
        self._view = memoryview(self.mapping)
        self.sections = self._read_header()

    def _read_header(self) -> Mapping[str, tuple[int, int, str]]:
        magic = len(self.kind.magic)
        if bytes(self._view[:magic]) != self.kind.magic:
            raise self._foreign()
        opening = magic + _SEAL_BYTES
        size = int.from_bytes(self._view[magic : magic + 8], "little")
        header = self._view[opening : opening + size]
        if hashlib.sha256(header).digest() != bytes(self._view[opening - 32 : opening]):
            raise self.damaged("the checksum of its header does not match")
        base = opening + size + _padding(opening + size)
        try:
            document: Any = json.loads(bytes(header))
            if document["format"] == FORMAT:
                return self._located(base, document["sections"])
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise self.damaged(f"its header is no table of sections: {error!r}") from error
        raise Damaged(
            f"{self.path} has the format {document['format']!r:.40}, and this kernelmill reads "
            f"{FORMAT}: {self.kind.remedy}"
        )

    def _located(self, base: int, table: Any) -> Mapping[str, tuple[int, int, str]]:
        found: dict[str, tuple[int, int, str]] = {}
        for name, (offset, count, checksum) in table.items():
            if not 0 <= offset <= offset + count <= len(self._view) - base:
                raise self.damaged(f"it ends before the end of its section {name!r}")
            found[name] = operator.index(base + offset), operator.index(count), checksum
        if missing := [name for name in self.kind.sections if name not in found]:
            raise self.damaged(f"it has no section {missing[0]!r}")
        return found

    def section(self, name: str, check: bool = True) -> memoryview:
        """Return the bytes of a section, its checksum compared. Damaged when that differs."""
        offset, size, checksum = self.sections[name]
        data = self._view[offset : offset + size]
        if check and hashlib.sha256(data).hexdigest() != checksum:
            raise self.damaged(f"the checksum of its {name} does not match")
        return data

    def text(self, name: str) -> str:
        """Return a section as text."""
        return bytes(self.section(name)).decode()

    def damaged(self, why: str) -> Damaged:
        """Return the error for a file that cannot be used."""
        return Damaged(f"{self.path} is damaged: {why}; {self.kind.remedy}")

    def _foreign(self) -> Damaged:
        wanted, found = self.kind.magic.decode().strip(), bytes(self._view[:80]).partition(b"\n")[0]
        if found.startswith(b"kernelmill ") and found != wanted.encode():
            other = found.decode(errors="replace")
            return Damaged(
                f"{self.path} is no file of the kind {wanted!r}, which this kernelmill reads, but "
                f"of {other!r}: {self.kind.remedy}"
            )
        return Damaged(f"{self.path} is no file of the kind {wanted!r}, or only the beginning")
