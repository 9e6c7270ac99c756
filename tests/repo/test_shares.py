"""The options --quick and --share cut the tests into parts that are the same in each run."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests import shares
from tests.repo.source import ROOT

FILE = "tests/repo/test_shares.py"
NAMES = [f"tests/unit/test_it.py::test_{number}" for number in range(300)]


def test_each_test_is_in_one_part():
    parts = [{name for name in NAMES if shares.is_in(name, (part, 10))} for part in range(1, 11)]
    assert set.union(*parts) == set(NAMES)
    assert sum(map(len, parts)) == len(NAMES)
    assert all(15 < len(part) < 50 for part in parts)


@pytest.mark.parametrize("text", ["0/3", "4/3", "1/0", "tenth", "1/2/3"])
def test_no_part_is_refused(text):
    with pytest.raises(ValueError, match=f"--share={text}: expected K/N"):
        shares.part_of(text)


def collected(*options):
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *options, FILE]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if "::" in line]


def test_pytest_takes_a_share():
    found = collected("--share=2/3")
    assert found and all(shares.is_in(name, (2, 3)) for name in found)


def test_the_quick_part_has_each_test_once():
    every, quick = collected(), collected("--quick")
    assert set(quick) < set(every)
    assert set(quick) == {item.nodeid for item in first_of_each(every)}


def first_of_each(names):
    return shares.firsts_of(SimpleNamespace(nodeid=name) for name in names).values()


NAMED = [
    "a.py::test_1[x]", "a.py::test_1[y]", "a.py::test_2", "b.py::test_3", "b.py::test_new",
    "c.py::test_4",
]  # fmt: skip


@pytest.fixture
def durations(monkeypatch, tmp_path):
    monkeypatch.setattr(shares, "DURATIONS", tmp_path / "tests" / "durations.txt")
    shares.DURATIONS.parent.mkdir()
    shares.DURATIONS.write_text(
        "0.2 a.py::test_1\n3.0 a.py::test_2\n9.0 b.py::test_3\n11.0 c.py::test_4\n"
    )
    return shares.DURATIONS


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (1.2, ["a.py::test_1[x]", "b.py::test_new"]),
        (4.2, ["a.py::test_1[x]", "b.py::test_new", "a.py::test_2"]),
        (13.2, ["a.py::test_1[x]", "b.py::test_new", "a.py::test_2", "b.py::test_3"]),
        (99.0, [*NAMED[:1], *NAMED[2:]]),
    ],
)
def test_the_shortest_fill_the_budget(monkeypatch, durations, budget, expected):
    monkeypatch.setattr(shares, "BUDGET", budget)
    quick = shares.quick_of([SimpleNamespace(nodeid=name) for name in NAMED])
    assert sorted(item.nodeid for item in quick) == sorted(expected)


def test_durations_of_the_files_that_ran_are_replaced(durations):
    plugin = shares.Durations()
    for name, count, properties in (
        ("a.py::test_1[x]", 3, [list(shares.FIRST)]), ("a.py::test_1[y]", 3, []),
    ):  # fmt: skip
        report = SimpleNamespace(nodeid=name, duration=0.5, user_properties=properties)
        for _ in range(count):
            plugin.pytest_runtest_logreport(report)
    (durations.parents[1] / "b.py").touch()  # and no c.py
    plugin.pytest_sessionfinish()
    assert durations.read_text() == "1.5 a.py::test_1\n9.0 b.py::test_3\n"
