"""Models of libraries give what eager gives, by the library's own way and by kernelmill.compile."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.libraries import rows
from tools.libraries.harness import Outcome, by_ours, by_torch_compile
from tools.libraries.row import Row

QUICK = [row for row in rows.all_rows() if row.quick]


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELMILL_CACHE_HOME", str(tmp_path))


def right(row: Row, found: Outcome) -> None:
    """Equal to eager, all of it compiled, and nothing traced once it is warm."""
    assert found.worst <= row.most, found
    assert found.later == 0, found
    assert found.graphs > 0 and found.in_torch == (), found


@pytest.mark.parametrize("row", QUICK, ids=lambda row: row.name)
def test_its_own_way(row: Row) -> None:
    found = by_torch_compile(row)
    right(row, found)
    assert sum(found.breaks.values()) == row.breaks, found


@pytest.mark.parametrize("row", [row for row in QUICK if row.ours], ids=lambda row: row.name)
def test_kernelmill_compile(row: Row, tmp_path: Path) -> None:
    right(row, by_ours(row, str(tmp_path)))
