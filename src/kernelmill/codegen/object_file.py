"""Reads the symbol table of an ELF object. Format: the System V ABI, chapter 4 (64-bit, little)."""

from __future__ import annotations

import struct
from collections.abc import Iterator

_SYMBOL_TABLE = 2
_UNDEFINED = 0


def undefined_symbols(image: bytes) -> tuple[str, ...]:
    """Names that the object uses and does not define, sorted. ValueError when it is no ELF64."""
    if image[:5] != b"\x7fELF\x02":
        raise ValueError("not a 64-bit ELF object")
    sections_at = struct.unpack_from("<Q", image, 0x28)[0]
    size, count = struct.unpack_from("<HH", image, 0x3A)
    headers = [
        struct.unpack_from("<IIQQQQIIQQ", image, sections_at + i * size) for i in range(count)
    ]
    names: set[str] = set()
    for header in headers:
        if header[1] == _SYMBOL_TABLE:
            names_at = headers[header[6]][4]
            names.update(_undefined(image, header[4], header[5], names_at))
    return tuple(sorted(names))


def _undefined(image: bytes, start: int, size: int, names_at: int) -> Iterator[str]:
    for at in range(start, start + size, 24):
        name, _, _, section = struct.unpack_from("<IBBH", image, at)
        if section == _UNDEFINED and name:
            begin = names_at + name
            yield image[begin : image.index(b"\0", begin)].decode()
