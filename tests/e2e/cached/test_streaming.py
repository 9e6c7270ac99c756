"""First calls that do not wait until all weights are packed, in processes that end meanwhile."""

from pathlib import Path

import pytest

from kernelmill.runtime.weights.binding import can_copy
from tests.fresh import FreshProcesses
from tests.kept_methods import KEPT

SCRIPT = """
import sys
import torch
from torch import nn
from kernelmill.inference import cache_compile, finish_packing

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(640, 640) for _ in range(12)])
        self.cached = cache_compile(self.run, cache_dir="cache")

    def run(self, x):
        return self.layers(x)

def check():
    torch.testing.assert_close(model.cached(x), model.run(x), atol=1e-4, rtol=1e-4)

torch.manual_seed(0)
model, x = Model(), torch.randn(4, 640)
with torch.no_grad():
    check()
    first = model.cached.report()
    if sys.argv[1] == "stay":
        finish_packing()
        check()
        later = model.cached.report()
        assert later["packing"] == 0 and later["packed_bytes"] >= 12 * 640 * 640 * 4, later
        assert (later["streamed"], later["repacks"]) == (1, 12), later
        model.layers[3].weight.mul_(2.0)
        check()
        assert model.cached.report()["repacks"] == 13
    if sys.argv[1] == "delete":
        del model
print(first["streamed"])
"""

pytestmark = [
    KEPT,
    pytest.mark.skipif(not can_copy(), reason="this system packs at once"),
]


def test_processes_end_well_whatever_is_still_to_be_packed(
    fresh: FreshProcesses, tmp_path: Path
) -> None:
    script = tmp_path / "subject.py"
    script.write_text(SCRIPT)
    for what in ("trace", "exit", "stay", "delete", "exit"):
        done = fresh.run(script, what, cwd=tmp_path)
        lines = done.stderr.splitlines()
        printed = [line for line in lines if "(it is not to be used)" not in line]
        assert (done.returncode, printed) == (0, [])
        # The call that traces is that of another program.
        assert done.stdout.strip() == ("0" if what == "trace" else "1")
