from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from kernelmill.report import measuring as other_work
from kernelmill.report.measuring import OtherWork


@pytest.fixture
def stat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's file, of a machine with two processors, of which this process has the second;
    its own time stands still."""
    path = tmp_path / "stat"
    monkeypatch.setattr(other_work, "STAT", path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1})
    monkeypatch.setattr(os, "sysconf", lambda _: 100)
    monkeypatch.setattr(time, "process_time", lambda: 7.0)
    return path


def numbers(user: int, idle: int, waiting: int, stolen: int) -> str:
    return (
        "cpu  900 0 900 900 0 0 0 0 0 0\n"
        f"cpu0 {user * 9} 0 0 0 0 0 0 0 0 0\n"
        f"cpu1 {user} 0 0 {idle} {waiting} 0 0 {stolen} {user} 0\n"
        "intr 1 2 3\n"
    )


def test_what_is_not_idle_and_not_ours_is_other_work(
    stat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat.write_text(numbers(100, 100, 100, 100))
    watch = OtherWork()
    stat.write_text(numbers(140, 120, 110, 130))
    assert watch.share() == pytest.approx(0.7)
    monkeypatch.setattr(time, "process_time", lambda: 7.2)
    assert watch.share() == pytest.approx(0.5)


def test_nothing_is_said_where_the_system_does_not_say(stat: Path) -> None:
    assert OtherWork().share() is None
    stat.write_text(numbers(1, 1, 1, 1))
    watch = OtherWork()
    assert watch.share() is None  # no tick has passed
    stat.write_text("cpu1 no numbers\n")
    assert watch.share() is None and OtherWork().share() is None
