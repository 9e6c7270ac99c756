"""Each torture replaces its own part of docs/reliability.md."""

from pathlib import Path

import pytest

from tools import reliability


def test_other_parts_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "reliability.md"
    path.write_text("<!-- kernel store -->\n# One\n\ntext\n\n<!-- compile cache -->\n# Two\n")
    monkeypatch.setattr(reliability, "RESULT", path)
    reliability.write_part("calls", "# Three\n")
    reliability.write_part("kernel store", "# First\n\n")
    assert path.read_text() == (
        "<!-- kernel store -->\n# First\n\n<!-- compile cache -->\n# Two\n\n"
        "<!-- calls -->\n# Three\n"
    )
