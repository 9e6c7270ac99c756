"""The instructions of the tile unit are executed in every run of the tests: where the processor has
none they are trapped, in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.repo.source import ROOT
from tests.tile_trap import trap

UNIT = "tests/unit/codegen"
TESTS = (
    f"{UNIT}/test_tile_trap.py",
    f"{UNIT}/test_tiles.py::test_the_unit_gives_what_the_interpreter_does",
    f"{UNIT}/test_tile_state.py",
    "tests/unit/core/target/test_tile_permission.py::"
    "test_a_forked_child_has_what_its_parent_was_permitted",
    "tests/unit/compiler/test_calibration.py::test_tiles_of_this_machine_are_measured",
    "tests/unit/lower/templates/matmul/test_tiled_operands.py::test_products_of_planes_are_added",
    "tests/e2e/test_tile_programs.py",
    "-k",
    "not x86-64-v4-amx-emulated",
)


@pytest.mark.skipif(trap.has_tiles(), reason="they are executed by the tests themselves")
def test_tests_of_tiles_pass_on_the_instructions_themselves() -> None:
    try:
        trap.library()
    except trap.Unavailable as error:
        pytest.skip(str(error))
    command = [sys.executable, "-m", "pytest", "--trap-tiles", "-q", "-p", "no:cacheprovider"]
    surroundings = {k: v for k, v in os.environ.items() if k != "KERNELMILL_TARGET"}
    done = subprocess.run(
        [*command, *TESTS], cwd=ROOT, env=surroundings, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert "skipped" not in done.stdout
    (line,) = re.findall("that were trapped: (.*)", done.stdout)
    found = {name: int(count) for count, name in re.findall(r"(\d+) ([^,\s]+)", line)}
    assert min(found["tdpbf16ps"], found["tdpb..d"]) > 1000, line
