"""Symbol tables of object files: undefined names, and positions of functions.

Format: ELF-64, little endian (System V ABI, "Object Files").
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_SYMTAB = 2
_SYMBOL_BYTES = 24


def undefined_symbols(image: bytes) -> tuple[str, ...]:
    """Return sorted names that `image` uses and does not define. ValueError if not ELF-64."""
    if image[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF object")
    try:
        return tuple(sorted({name for name, section, _ in _symbols(image) if section == 0}))
    except (struct.error, IndexError) as error:
        raise ValueError(f"truncated ELF object of {len(image)} bytes") from error


def code_around(image: bytes, name: str) -> tuple[int, int]:
    """Return a function's offset in its section, and the size of the section, in bytes. KeyError
    when the object has no function of this name."""
    for symbol, section, value in _symbols(image):
        if symbol == name and section:
            return value, _sections(image)[section][5]
    raise KeyError(name)


def _sections(image: bytes) -> list[tuple[int, ...]]:
    (headers,) = struct.unpack_from("<Q", image, 0x28)
    entry_bytes, count = struct.unpack_from("<HH", image, 0x3A)
    return [
        struct.unpack_from("<IIQQQQIIQQ", image, headers + entry_bytes * i) for i in range(count)
    ]


def _symbols(image: bytes) -> Iterator[tuple[str, int, int]]:
    """Yield name, section and offset in it of each symbol that has a name."""
    sections = _sections(image)
    for _, kind, _, _, offset, size, link, *_ in sections:
        if kind != _SYMTAB:
            continue
        names = sections[link][4]
        for at in range(offset + _SYMBOL_BYTES, offset + size, _SYMBOL_BYTES):
            name_offset, _, _, section, value = struct.unpack_from("<IBBHQ", image, at)
            if name_offset:
                start = names + name_offset
                yield image[start : image.index(b"\0", start)].decode(), section, value
