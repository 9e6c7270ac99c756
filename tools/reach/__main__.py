"""Compiled code for AArch64, run by an emulator.

python -m tools.reach                   kernels of all kinds, some tens of minutes
python -m tools.reach --share 1/10      a tenth of the tests, which is the same in each run

The tests are those of this machine's own code, and what they compare with is the same (tests/
emulation.py). Where the emulator, or what it runs, cannot be had, one line says so and nothing is
tested. docs/aarch64.md says what this proves and what it does not.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from kernelmill.core.target.isa import NAMED
from tools.reach.environment import Unavailable, emulated

ROOT = Path(__file__).parents[2]
TESTS = (
    "tests/emulated", "tests/unit/codegen", "tests/unit/lower/emit", "tests/unit/lower/weights",
    "tests/unit/lower/templates", "tests/differential/test_kernels.py",
    "tests/differential/test_math_functions.py",
)  # fmt: skip


def main(arguments: list[str]) -> int:
    """pytest's exit code; 0 where nothing can be tested."""
    parser = argparse.ArgumentParser(prog="python -m tools.reach", description=__doc__)
    parser.add_argument("--share", default="1/1", metavar="K/N", help="a part of the tests")
    parser.add_argument(
        "--isa", action="append", metavar="ISA",
        help="instruction sets, by name or text; without: the one with all that kernels use",
    )  # fmt: skip
    parser.add_argument("tests", nargs="*", default=TESTS, help="files or folders of tests")
    options = parser.parse_args(arguments)
    try:
        emulated()
    except Unavailable as reason:
        print(f"nothing is tested on AArch64: {reason}")
        return 0
    named = [name for name, isa in NAMED.items() if isa.family == "aarch64"]
    codes = [_test(isa, options) for isa in options.isa or named[-1:]]
    return max(codes)


def _test(isa: str, options: argparse.Namespace) -> int:
    print(f"{options.share} of the tests on {isa}, emulated", flush=True)
    command = [sys.executable, "-m", "pytest", "-q", "--emulate", isa, "--share", options.share]
    return subprocess.run([*command, *options.tests], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
