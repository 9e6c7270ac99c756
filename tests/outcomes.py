"""A plugin that writes what becomes of each test to a file as it goes: also of one that ends the
process there is a line. `pytest -p tests.outcomes --outcomes FILE`; `read` reads it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import pytest

_AMONG = ("passed", "skipped", "failed")
"""What a test is of whose set-up, call and clean-up one is so: the last of these."""


@dataclass(frozen=True)
class Result:
    """ "passed", "skipped" or "failed", why not passed, and how long it took."""

    outcome: str
    text: str = ""
    seconds: float = 0.0


class _Writer:
    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8")
        self._result = Result("passed")

    def _write(self, test: str, result: Result) -> None:
        self._file.write(json.dumps([test, *astuple(result)]) + "\n")
        self._file.flush()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._result = Result("passed")
        self._write(nodeid, Result("failed", "its process ended"))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if _AMONG.index(report.outcome) > _AMONG.index(self._result.outcome):
            self._result = Result(report.outcome, report.longreprtext, self._result.seconds)
        seconds = self._result.seconds + report.duration
        self._result = replace(self._result, seconds=round(seconds, 3))

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._write(nodeid, self._result)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outcomes", metavar="FILE", help="write what becomes of each test there")


def pytest_configure(config: pytest.Config) -> None:
    if path := config.getoption("--outcomes"):
        config.pluginmanager.register(_Writer(Path(path)))


def read(path: Path) -> Mapping[str, Result]:
    """What became of the tests that have begun, in their order."""
    return {test: Result(*rest) for test, *rest in _lines(path)}


def _lines(path: Path) -> Iterator[Any]:
    if path.exists():
        yield from map(json.loads, path.read_text(encoding="utf-8").splitlines())
