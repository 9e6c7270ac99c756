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
    functions = [name.partition("[")[0] for name in quick]
    assert len(set(functions)) == len(functions)
    assert set(functions) == {name.partition("[")[0] for name in every}


def test_long_tests_are_none_of_the_quick_part():
    assert all((ROOT / name).exists() for name in shares.LONG)
    item = SimpleNamespace(nodeid=f"{shares.LONG[0]}test_it.py::test_it")
    assert shares.quick_of([item]) == []
