"""Documents that hold what was measured on several kinds of processors, one section for each."""

from __future__ import annotations

import re
from pathlib import Path

from tools.machine import kind

NOTED_ON = "AMD EPYC, family 26, model 2"
"""The kind of processor that the notes in the sources of the benches are about."""

_HEADING = re.compile(r"^(#+) ", re.MULTILINE)
_SECTION = re.compile(r"^## (.+)\n", re.MULTILINE)


def publish(path: Path, text: str) -> None:
    """Write what was measured here to a document, in place of what was measured before on this kind
    of processor. `text` is a whole document: a title and what is below it."""
    title, own = text.split("\n", 1)
    sections = _sections(path.read_text()) if path.exists() else {}
    sections[kind()] = demoted(own)
    path.write_text(document(title, sections))


def document(title: str, sections: dict[str, str]) -> str:
    """The title, and each kind's section under its name."""
    parts = [title, *(f"## {name}\n\n{text.strip()}" for name, text in sorted(sections.items()))]
    return "\n\n".join(parts) + "\n"


def _sections(text: str) -> dict[str, str]:
    _, *rest = _SECTION.split(text)
    return dict(zip(rest[::2], rest[1::2], strict=True))


def demoted(text: str) -> str:
    """The text with each heading one level lower."""
    return _HEADING.sub(r"#\1 ", text)


def slug(name: str) -> str:
    """A kind of processor as a part of a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def noted(text: str) -> str:
    """A note with figures of `NOTED_ON`: nothing on another kind of processor."""
    return text if kind() == NOTED_ON else ""
