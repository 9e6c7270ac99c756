"""Ctrl-C and SIGTERM in the midst of a compile: the store is whole, and nothing stays locked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kernelmill.store.upkeep import survey
from tests.fresh import FreshProcesses

SCRIPT = """
import gc, os, signal, sys, time
import torch
from torch import nn
from kernelmill import codegen
from kernelmill.inference import cache_compile

signal.signal(signal.SIGINT, signal.default_int_handler)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(*(nn.Linear(8 + n, 9 + n) for n in range(6)))
        self.cached = cache_compile(self.run)

    def run(self, x):
        return torch.softmax(self.layers(x), -1)


def check(model):
    x = torch.randn(3, 8)
    with torch.no_grad():
        torch.testing.assert_close(model.cached(x), model.run(x), atol=1e-5, rtol=1e-5)


plain = codegen.compile_kernel


def slow(*args):
    image = plain(*args)
    os.write(1, b"compiling\\n")  # one write a line: several threads come here at once
    time.sleep(float(sys.argv[1]))
    return image


codegen.compile_kernel = slow
model = Model()
try:
    check(model)
except KeyboardInterrupt:
    assert gc.isenabled()
    torch._dynamo.reset()
    check(model)
    print("interrupted", flush=True)
print(model.cached.statistics, flush=True)
"""


def environment(folder: Path) -> dict[str, str]:
    return {
        **os.environ,
        "KERNELMILL_KERNEL_META": str(folder / "kernels"),
        "KERNELMILL_CACHE_HOME": str(folder / "methods"),
    }


def start(folder: Path, seconds: float) -> subprocess.Popen[str]:
    (folder / "script.py").write_text(SCRIPT)
    command = [sys.executable, str(folder / "script.py"), str(seconds)]
    return subprocess.Popen(command, env=environment(folder), stdout=subprocess.PIPE, text=True)


def assert_whole(folder: Path, mended: bool) -> None:
    found = survey(str(folder / "kernels"))
    assert found.count("ok") and not found.count("bad")
    if mended:
        assert found.leftovers == ()
        assert not [path for path in folder.rglob("*") if ".tmp-" in path.name]
        assert not list(folder.rglob("*.lock"))


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_a_signal_in_the_midst_of_a_compile(
    fresh: FreshProcesses, tmp_path: Path, which: signal.Signals
) -> None:
    process = start(tmp_path, 0.3)
    assert process.stdout is not None
    for _ in range(3 + len(os.sched_getaffinity(0))):  # some are there, some under way
        assert process.stdout.readline() == "compiling\n"
    process.send_signal(which)
    rest, _ = process.communicate(timeout=300)
    if which == signal.SIGINT:
        # The same process, and the same objects, go on as if nothing had been.
        assert process.returncode == 0
        assert rest.splitlines()[-2:] == [
            "interrupted",
            "{'loaded': 0, 'traced': 1, 'uncached': 0}",
        ]
    else:
        assert process.returncode == -signal.SIGTERM
    assert_whole(tmp_path, mended=which == signal.SIGINT)
    after = fresh.output(tmp_path / "script.py", 0.0, cwd=tmp_path, env=environment(tmp_path))
    loaded = which == signal.SIGINT
    assert after.splitlines()[-1] == str(
        {"loaded": int(loaded), "traced": int(not loaded), "uncached": 0}
    )
    assert_whole(tmp_path, mended=True)
