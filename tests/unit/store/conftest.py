"""Fixtures of the store's tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Child = subprocess.Popen[str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "kernel_meta"


@pytest.fixture
def child() -> Iterator[Callable[..., Child]]:
    """Start tests/unit/store/child.py with these arguments; ended with the test."""
    started: list[Child] = []
    script = Path(__file__).with_name("child.py")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}

    def start(*arguments: object) -> Child:
        command = [sys.executable, str(script), *map(str, arguments)]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
