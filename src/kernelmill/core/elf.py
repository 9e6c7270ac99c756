"""Reads what an object file still needs: the undefined names of its symbol table.

Format: ELF-64, little endian (System V ABI, "Object Files").
"""

from __future__ import annotations

import struct

_SYMTAB = 2
_SYMBOL_BYTES = 24


def undefined_symbols(image: bytes) -> tuple[str, ...]:
    """Names that `image` uses and does not define, sorted.

    ValueError when it is no ELF-64 object.
    """
    if image[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF object")
    try:
        return tuple(sorted(set(_undefined(image))))
    except (struct.error, IndexError) as error:
        raise ValueError(f"truncated ELF object of {len(image)} bytes") from error


def _undefined(image: bytes) -> list[str]:
    (headers,) = struct.unpack_from("<Q", image, 0x28)
    entry_bytes, count = struct.unpack_from("<HH", image, 0x3A)
    sections = [
        struct.unpack_from("<IIQQQQIIQQ", image, headers + entry_bytes * i) for i in range(count)
    ]
    found: list[str] = []
    for _, kind, _, _, offset, size, link, *_ in sections:
        if kind != _SYMTAB:
            continue
        names = sections[link][4]
        for at in range(offset + _SYMBOL_BYTES, offset + size, _SYMBOL_BYTES):
            name_offset, _, _, section = struct.unpack_from("<IBBH", image, at)
            if section == 0 and name_offset:
                start = names + name_offset
                found.append(image[start : image.index(b"\0", start)].decode())
    return found
