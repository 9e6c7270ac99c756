"""docs/reliability.md, of which each torture writes a part."""

from __future__ import annotations

import re
from pathlib import Path

RESULT = Path("docs/reliability.md")
PARTS = ("kernel store", "compile cache", "calls", "threads")


def write_part(name: str, text: str) -> None:
    """Put this in the place of a part; the others stay as they are."""
    _, *found = re.split(r"^<!-- (.*) -->\n", RESULT.read_text(), flags=re.MULTILINE)
    parts = dict(zip(found[::2], found[1::2], strict=True)) | {name: text}
    RESULT.write_text(
        "\n".join(f"<!-- {part} -->\n{parts[part].strip()}\n" for part in PARTS if part in parts)
    )
