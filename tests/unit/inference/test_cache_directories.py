"""Where cached methods are kept."""

import os
from pathlib import Path
from typing import Any

import pytest

from kernelmill.inference.cache_directories import class_folder


def folder(cache_dir: Any = None):
    return os.path.dirname(class_folder(cache_dir, "Model", True, {}))


def test_the_working_directory_is_used_only_when_it_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("KERNELMILL_CACHE_HOME", raising=False)
    assert folder() == str(tmp_path / "cache" / "kernelmill" / "methods")
    monkeypatch.setenv("KERNELMILL_CACHE_HOME", "named")
    assert folder() == str(tmp_path / "named")
    assert folder("option") == str(tmp_path / "option")
