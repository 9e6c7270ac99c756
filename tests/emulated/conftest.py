"""What is asked of an emulated processor alone: pytest --emulate, which `make reach` runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.emulation import Emulator, emulator


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """Without an emulator there is nothing here."""
    return None if config.getoption("--emulate") else True


@pytest.fixture
def emulated() -> Iterator[Emulator]:
    """The emulator, whose process has loaded something by the end of the test."""
    found = emulator()
    assert found is not None
    before = found.counts()["calls"]
    yield found
    assert found.counts()["calls"] > before
