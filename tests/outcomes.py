"""A plugin that writes what becomes of each test to a file as it goes: also of one that ends the
process there is a line. `pytest -p tests.outcomes --outcomes FILE`; `read` reads it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

_AMONG = ("passed", "skipped", "failed")
"""What a test is of whose set-up, call and clean-up one is so: the last of these."""


@dataclass(frozen=True)
class Result:
    """ "passed", "skipped" or "failed", and why not passed."""

    outcome: str
    text: str = ""


class _Writer:
    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8")
        self._result = Result("passed")

    def _write(self, test: str, result: Result) -> None:
        self._file.write(json.dumps([test, result.outcome, result.text]) + "\n")
        self._file.flush()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._result = Result("passed")
        self._write(nodeid, Result("failed", "its process ended"))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if _AMONG.index(report.outcome) > _AMONG.index(self._result.outcome):
            self._result = Result(report.outcome, report.longreprtext)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._write(nodeid, self._result)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outcomes", metavar="FILE", help="write what becomes of each test there")


def pytest_configure(config: pytest.Config) -> None:
    if path := config.getoption("--outcomes"):
        config.pluginmanager.register(_Writer(Path(path)))


def read(path: Path) -> Mapping[str, Result]:
    """What became of the tests that have begun, in their order."""
    return {test: Result(outcome, text) for test, outcome, text in _lines(path)}


def _lines(path: Path) -> Iterator[tuple[str, str, str]]:
    if path.exists():
        yield from map(json.loads, path.read_text(encoding="utf-8").splitlines())
