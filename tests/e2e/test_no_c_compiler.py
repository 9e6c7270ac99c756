"""Compiling needs no C compiler: the search path is empty and every compiler variable is a trap."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.e2e.conftest import BACKEND

SCRIPT = """
import shutil, sys
import torch

def forbidden(event, args):
    if event in ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.fork", "os.system"):
        raise RuntimeError(f"{event} {args[:1]}")

model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.GELU(), torch.nn.LayerNorm(16))
x = torch.randn(4, 16)
with torch.no_grad():
    expected = model(x)
    compiled = torch.compile(model, backend=sys.argv[1], fullgraph=True)
    assert not any(map(shutil.which, ("cc", "gcc", "g++", "c++", "clang", "clang++", "ld")))
    sys.addaudithook(forbidden)
    torch.testing.assert_close(compiled(x), expected)
print("compiled")
"""


def test_compiles_without_a_c_compiler(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "PATH": str(tmp_path),
        "CC": "/bin/false",
        "CXX": "/bin/false",
        "KERNELMILL_STRICT": "1",
        "KERNELMILL_KERNEL_META": str(tmp_path / "kernel_meta"),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, BACKEND],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("compiled")
