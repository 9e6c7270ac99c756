"""Collectives inside of a super kernel, in two ranks: it goes on behind them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from tests.fresh import FreshProcesses

SCRIPT = """
import json, os, sys, warnings
import torch, torch.distributed as distributed
from torch import nn
from kernelmill.backend.entry import Backend
from kernelmill.scope import stream_switch, super_kernel

rank, folder = int(sys.argv[1]), sys.argv[2]
os.environ["KERNELMILL_KERNEL_META"] = os.path.join(folder, "kernels")
where = "file://" + os.path.join(folder, "store")
distributed.init_process_group("gloo", init_method=where, rank=rank, world_size=2)


class Model(nn.Module):
    def forward(self, x):
        with super_kernel("sp", "strict-scope-check=abort"):
            x = torch.softmax(torch.relu(x @ x), -1)
            with stream_switch("a"):
                left = torch.tanh(x @ x)
            with stream_switch("b"):
                distributed.all_reduce(x)
                right = torch.sigmoid(x @ x)
            both = torch.softmax(left @ right, -1)
            parts = torch.empty(32, 16)
            distributed.all_gather_into_tensor(parts, both)
            mine = torch.empty(16, 16)
            distributed.reduce_scatter_tensor(mine, torch.tanh(parts @ both))
            return torch.softmax(torch.exp(mine @ left) @ both, -1)


torch.manual_seed(rank)
x = torch.randn(16, 16)
made = []
compiled = torch.compile(Model(), backend=Backend(on_compiled=made.append), dynamic=False,
                         fullgraph=True)
with torch.no_grad(), warnings.catch_warnings():
    warnings.simplefilter("error", UserWarning)
    for _ in range(3):
        found, expected = compiled(x.clone()), Model()(x.clone())
        torch.testing.assert_close(found, expected)
(one,) = made
names = [step.target for step in one.draft.lowered.plan.steps if hasattr(step, "target")]
ranges = [(r.scope, len(r.supers), [*r.splits], r.collectives) for r in one.report.ranges]
with open(os.path.join(folder, f"rank{rank}.json"), "w") as file:
    json.dump({"ranges": ranges, "collectives": [name.split(".")[1] for name in names]}, file)
distributed.barrier()
distributed.destroy_process_group()
"""


def test_a_super_kernel_goes_on_behind_each_collective(
    fresh: FreshProcesses, tmp_path: Path
) -> None:
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    started = [
        fresh.start("-c", SCRIPT, rank, tmp_path, cwd=tmp_path, env=environment)
        for rank in range(2)
    ]
    for done in [rank.result() for rank in started]:
        assert done.returncode == 0, done.stderr
        assert "is split" not in done.stderr
    for rank in range(2):
        said = json.loads((tmp_path / f"rank{rank}.json").read_text())
        calls = [name for name in said["collectives"] if name != "wait_tensor"]
        assert calls == ["all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor"]
        ((scope, supers, splits, told),) = said["ranges"]
        assert [name.split(".")[1] for name in told] == calls
        assert (scope, splits) == ("sp", []) and supers >= 3
