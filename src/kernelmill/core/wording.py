"""Words of messages."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """ "1 kernel", "2 kernels", "0 launches", "3 entries"."""
    if count == 1:
        return f"1 {noun}"
    if noun.endswith(("s", "x", "ch", "sh")):
        return f"{count} {noun}es"
    return f"{count} {noun[:-1]}ies" if noun.endswith("ry") else f"{count} {noun}s"
