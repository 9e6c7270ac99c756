"""Sources that are measured have Python's bytecode."""

from __future__ import annotations

import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from tools.bench.bytecode import have_bytecode


def test_a_checkout_gets_bytecode_where_python_writes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "src" / "package" / "module.py"
    source.parent.mkdir(parents=True)
    source.write_text("x = 1\n")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    have_bytecode(tmp_path)
    assert Path(cache_from_source(str(source))).exists()
