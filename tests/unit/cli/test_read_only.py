"""Commands where the working directory and the kernel folder cannot be written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

COMMANDS = {
    "cache export k.tar": "k.tar cannot be written here",
    "cache import there.tar": "{kernels}: {kernels} cannot be written here",
    "trace m.py:make": "trace.json cannot be written here",
    "explain m.py:make -o report.html": "report.html cannot be written here",
    "bisect m.py:make --folder case": "case: {here} cannot be written here",
    "calibrate": "{kernels}: {kernels} cannot be written here",
    "static compile operators.log": "{kernels}: {kernels} cannot be written here",
    "static build operators.log --output made": "made: {here} cannot be written here",
    "pack model k.tar": "k.tar cannot be written here",
}
"""What each says. None of them has done its work before."""

ALL = """
import sys
from kernelmill.cli.main import main
for line in sys.argv[1:]:
    print("code", main(line.split()), file=sys.stderr)
print("torch" in sys.modules)
"""


def as_others() -> list[str]:
    """What starts a process for which the modes of files hold: not so for root."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("root writes everywhere, and there is no setpriv")
    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]


def test_what_cannot_be_written_is_said_before_the_work(tmp_path: Path) -> None:
    here, kernels = tmp_path / "here", tmp_path / "kernels"
    for folder in (here, kernels):
        folder.mkdir()
        folder.chmod(0o555)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(sys.path), "KERNELMILL_KERNEL_META": str(kernels),
        "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    done = subprocess.run(
        [*as_others(), sys.executable, "-c", ALL, *COMMANDS],
        cwd=here, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    said = done.stderr.splitlines()
    expected = [text.format(here=here, kernels=kernels) for text in COMMANDS.values()]
    assert said == [line for text in expected for line in (f"kernelmill: {text}", "code 2")]
    assert done.stdout == "False\n", "nothing was compiled, nor measured"
    assert [*here.iterdir(), *kernels.iterdir()] == []
