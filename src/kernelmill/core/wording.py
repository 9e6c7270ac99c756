"""Words of messages."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: "1 kernel", "2 kernels", "0 launches", "3 entries"."""
    if count == 1:
        return f"1 {noun}"
    if noun.endswith(("s", "x", "ch", "sh")):
        return f"{count} {noun}es"
    return f"{count} {noun[:-1]}ies" if noun.endswith("ry") else f"{count} {noun}s"


def printable(text: str) -> str:
    """Return the text with characters escaped that a terminal would interpret and not show. Texts
    may come from a file that somebody else has made."""
    return "\n".join(
        line if line.isprintable() else "".join(map(_shown, line)) for line in text.split("\n")
    )


def _shown(character: str) -> str:
    if character.isprintable() or character == "\t":
        return character
    return character.encode("unicode_escape").decode()
