"""Scripts after the pages of Ascend's documents run as they are, and print what they say they do.

Each is named after its page: ex_ for npugraph_ex, air_ for torchair. Its last lines are comments:
what it prints, and files that it leaves.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))


FORKING = """
import os, sys
from kernelmill.compat import install, run_script
install()
import torch._dynamo, torch._inductor.pattern_matcher, kernelmill.backend.capture  # once for all
print("ready", flush=True)
for line in sys.stdin:
    folder, script = line.rstrip("\\n").split("\\t")
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        os.close(0)
        sys.exit(run_script(script, [], install))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""What `kernelmill run` does, in children of a process that has the imports of a first compile."""


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    environment = {name: value for name, value in os.environ.items() if "KERNELMILL" not in name}
    environment["PYTHONPATH"] = str(ROOT / "src")
    environment["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    environment["KERNELMILL_KERNEL_META"] = str(tmp_path_factory.mktemp("kernels"))
    environment["KERNELMILL_CACHE_HOME"] = ".torchair_cache"
    with subprocess.Popen(
        [sys.executable, "-c", FORKING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=environment, cwd=tmp_path_factory.mktemp("parent"),
    ) as running:  # fmt: skip
        assert running.stdin is not None and running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        yield running
        running.stdin.close()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_prints_what_it_says(
    process: subprocess.Popen[str], script: Path, tmp_path: Path
) -> None:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"{tmp_path}\t{script}\n")
    process.stdin.flush()
    code = int(process.stdout.readline())
    errors = (tmp_path / "stderr").read_text()
    said = script.read_text().partition("# Prints:\n")[2].splitlines()
    leaves = [line.removeprefix("# Leaves: ") for line in said if line.startswith("# Leaves: ")]
    lines = [line.removeprefix("# ") for line in said if not line.startswith("# Leaves: ")]
    assert (tmp_path / "stdout").read_text().splitlines() == lines, errors
    assert code == 0, errors
    for pattern in leaves:
        assert list(tmp_path.glob(pattern)), pattern


def test_there_is_a_script_for_each_page() -> None:
    assert len(SCRIPTS) >= 25
