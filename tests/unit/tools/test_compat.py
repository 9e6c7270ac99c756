"""What `make compat` takes for an interpreter, and how its table comes about."""

import os
import sys
from pathlib import Path

import pytest

from tools import compat
from tools.compat import Outcome, counts, interpreters, updated

DOCUMENT = f"before\n\n{compat._BEGIN}{compat._HEAD}{compat._END}\nafter\n"


def outcome(python: str, torch: str, suite: str = "quick", share: str = "1/1") -> Outcome:
    return Outcome(python, torch, suite, share, 10, 1, 2, "Some processor")


def test_interpreters_are_named_or_on_the_path(tmp_path: Path) -> None:
    for name in ("python3.11", "python3.13", "python3.9"):
        (tmp_path / name).symlink_to(sys.executable)
    on_path = [str(tmp_path / "python3.11"), str(tmp_path / "python3.13")]
    assert interpreters({"PATH": str(tmp_path)}) == on_path
    named = os.pathsep.join(["/opt/python3.14", "other"])
    found = interpreters({"PATH": str(tmp_path), "PYTHONS": named})
    assert found == ["/opt/python3.14", str(Path("other").absolute())]
    assert interpreters({"PATH": ""}) == []


def test_an_interpreter_with_all_packages_is_used_as_it_is() -> None:
    assert compat.prepared(sys.executable, "2.13.0") == sys.executable


def test_rows_of_the_same_versions_are_replaced_and_others_stay() -> None:
    text = updated(DOCUMENT, [outcome("3.14.2", "2.13.0"), outcome("3.9.1", "2.13.0+cpu")])
    text = updated(text, [outcome("3.14.10", "2.13.1", share="1/4"), outcome("3.14.2", "2.9.0")])
    rows = [line for line in text.splitlines() if line.startswith("| 3")]
    assert [row.split(" | ")[:3] for row in rows] == [
        ["| 3.9.1", "2.13.0+cpu", "quick"],
        ["| 3.14.2", "2.9.0", "quick"],
        ["| 3.14.10", "2.13.1", "quick, 1/4 of it"],
    ]
    assert "| 10 | 1 | 2 | Some processor |" in rows[0]
    assert text.startswith("before\n\n") and text.endswith("\nafter\n")
    with pytest.raises(ValueError, match="no place"):
        updated("nothing", [])


def test_counts_of_a_report() -> None:
    report = '<testsuites><testsuite errors="1" failures="2" skipped="3" tests="10" /></testsuites>'
    assert counts(report) == (4, 3, 3)


def test_suites_are_there() -> None:
    paths = [path for suite in compat.SUITES.values() for path in suite]
    assert [path for path in paths if not (compat.ROOT / path).exists()] == []
