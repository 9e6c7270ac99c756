"""The option --share cuts the tests into parts that are the same in each run."""

import subprocess
import sys

import pytest

from tests import shares
from tests.repo.source import ROOT

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


def test_pytest_takes_the_option():
    file = "tests/repo/test_shares.py"
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "--share=2/3", file]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found = {line for line in done.stdout.splitlines() if "::" in line}
    assert found and all(shares.is_in(name, (2, 3)) for name in found)
