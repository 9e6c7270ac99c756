"""Runs suites on other Pythons and versions of torch, and writes what ran where into
docs/lab/private_parts.md: `make compat`.

PYTHONS names interpreters by their paths, with ":" in between; without it, all that are on PATH are
taken. One that has all that the tests import is used as it is, with the torch that it has. For each
other one an environment is made in build/compat, as `make test` makes its own; pip's variables
(PIP_EXTRA_INDEX_URL, PIP_FIND_LINKS) say where packages come from.

    python -m tools.compat --suite cached --share 1/4      # a quarter, where time is short
    python -m tools.compat --torch 2.12.1                  # another torch in new environments
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from kernelmill.core.target.isa import processor_name
from kernelmill.core.version import minor_of

ROOT = Path(__file__).parent.parent
FOLDER, DOCUMENT = ROOT / "build" / "compat", ROOT / "docs" / "lab" / "private_parts.md"
MINORS = range(11, 15)

SUITES = {
    "quick": [
        f"tests/unit/{name}"
        for name in "artifact backend codegen config core inference plan runtime store".split()
    ],
    "cached": ["tests/e2e/aot", "tests/e2e/cached", "tests/e2e/test_cache_compile.py"]
    + [f"tests/e2e/test_cached_{name}.py" for name in "calls objects settings threads".split()],
}
"""What meets the interpreter and torch most: parts by themselves, and programs at rest."""

_NEEDED = (
    "import torch, llvmlite, tvm_ffi, numpy, pytest, xdist, hypothesis, expecttest, gunicorn, "
    "transformers; import importlib.metadata; importlib.metadata.version('kernelmill')"
)
_ASKED = "import platform, torch; print(platform.python_version(), torch.__version__)"
_BEGIN, _END = "<!-- compat: what `make compat` found -->\n", "<!-- end of compat -->\n"
_HEAD = (
    "| Python | torch | suite | passed | failed | skipped | processor |\n"
    "|---|---|---|---|---|---|---|\n"
)


@dataclass(frozen=True)
class Outcome:
    """How many tests of a suite passed, failed and were skipped; `share` is the part of it that
    ran."""

    python: str
    torch: str
    suite: str
    share: str
    passed: int
    failed: int
    skipped: int
    processor: str

    def row(self) -> str:
        """A line of the table."""
        suite = self.suite if self.share == "1/1" else f"{self.suite}, {self.share} of it"
        counts = f"{self.passed} | {self.failed} | {self.skipped}"
        return f"| {self.python} | {self.torch} | {suite} | {counts} | {self.processor} |\n"


def interpreters(environment: Mapping[str, str]) -> list[str]:
    """Paths of those to run on."""
    if named := environment.get("PYTHONS", ""):
        return [os.path.abspath(path) for path in named.split(os.pathsep) if path]
    search = environment.get("PATH", "")
    found = (shutil.which(f"python3.{minor}", path=search) for minor in MINORS)
    return [path for path in found if path]


def prepared(python: str, torch: str) -> str:
    """An interpreter that has what the tests import: this one, or one of a new environment."""
    asked = subprocess.run([python, "-c", _NEEDED], capture_output=True, check=False)
    if asked.returncode == 0:
        return python
    version = subprocess.run(
        [python, "-c", "import platform; print(platform.python_version())"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    folder = FOLDER / f"{version}-{torch}"
    # Some systems have no pip for every Python: this one's installs there.
    subprocess.run([python, "-m", "venv", "--clear", "--without-pip", str(folder)], check=True)
    made = str(folder / "bin" / "python")
    constraints = FOLDER / f"constraints-{torch}.txt"
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    lines = [line for line in lines if not line.startswith("torch==")]
    constraints.write_text("\n".join([*lines, f"torch=={torch}", ""]))
    install = [sys.executable, "-m", "pip", "--python", made, "install", "--quiet"]
    subprocess.run([*install, "--constraint", str(constraints), f"{ROOT}[demo,dev]"], check=True)
    return made


def run(python: str, suite: str, share: str) -> Outcome:
    """One suite on one interpreter. RuntimeError where the tests do not even end."""
    asked = subprocess.run([python, "-c", _ASKED], capture_output=True, text=True, check=True)
    version, torch = asked.stdout.split()
    report = FOLDER / f"{version}-{torch}-{suite}.xml"
    report.unlink(missing_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
    subprocess.run(
        [*command, "--share", share, *SUITES[suite]], cwd=ROOT, env=environment, check=False
    )
    if not report.is_file():
        raise RuntimeError(f"the suite {suite} ended before its end, on {python}")
    return Outcome(version, torch, suite, share, *counts(report.read_text()), processor_name())


def counts(report: str) -> tuple[int, int, int]:
    """Tests that passed, failed and were skipped, of a report in JUnit's format."""
    found = ElementTree.fromstring(report).find("testsuite")
    assert found is not None
    tests, *others = (int(found.attrib[n]) for n in ("tests", "failures", "errors", "skipped"))
    return tests - sum(others), others[0] + others[1], others[2]


def updated(document: str, outcomes: Iterable[Outcome]) -> str:
    """The document with these in its table. A row of the same minor versions and suite makes room;
    others stay."""
    before, _, rest = document.partition(_BEGIN)
    table, end, after = rest.partition(_END)
    if not end:
        raise ValueError(f"{DOCUMENT.name} has no place for the table")
    rows = {_key(row): row for row in table.splitlines(keepends=True)[2:]}
    for outcome in outcomes:
        rows[_key(outcome.row())] = outcome.row()
    lines = "".join(rows[key] for key in sorted(rows))
    return f"{before}{_BEGIN}{_HEAD}{lines}{_END}{after}"


def _key(row: str) -> tuple[tuple[int, ...], tuple[int, ...], str]:
    python, torch, suite = (cell.strip() for cell in row.split("|")[1:4])
    numbers = [tuple(map(int, re.findall(r"\d+", minor_of(text)))) for text in (python, torch)]
    return numbers[0], numbers[1], suite.partition(",")[0]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the suites."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.compat", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    pinned = re.search(r"^torch==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    parser.add_argument("--torch", default=pinned and pinned[1], help="for new environments")
    parser.add_argument("--suite", action="append", choices=SUITES, help="default: all")
    parser.add_argument("--share", default="1/1", metavar="K/N", help="the K-th of N parts")
    options = parser.parse_args(arguments)
    found = interpreters(os.environ)
    if not found:
        parser.error("no Python on PATH; name some: PYTHONS=/path/to/python3.14")
    FOLDER.mkdir(parents=True, exist_ok=True)
    failed = 0
    for python in found:
        made = prepared(python, options.torch)
        for suite in options.suite or SUITES:
            outcome = run(made, suite, options.share)
            failed += outcome.failed
            DOCUMENT.write_text(updated(DOCUMENT.read_text(), [outcome]))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
