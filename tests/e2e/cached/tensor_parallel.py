"""A layer split over two ranks, whose all_reduce is inside of the graph. Run by torchrun.

Each rank writes what it found to a file of its own: lines in a common pipe mix.
"""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import all_reduce, wait_tensor

from kernelmill.inference import cache_compile


class Split(torch.nn.Module):
    def __init__(self, rank, world):
        super().__init__()
        torch.manual_seed(0)
        up, down = torch.randn(32, 8), torch.randn(8, 32)
        own = slice(rank * 32 // world, (rank + 1) * 32 // world)
        self.up = torch.nn.Parameter(up[own].clone())
        self.down = torch.nn.Parameter(down[:, own].clone())
        self.whole = lambda x: torch.relu(x @ up.t()) @ down.t()
        self.cached = cache_compile(self.run, tp_rank=rank)

    def run(self, x):
        y = torch.relu(x @ self.up.t()) @ self.down.t()
        return wait_tensor(all_reduce(y, "sum", dist.group.WORLD)) * 2.0


dist.init_process_group("gloo")
model = Split(dist.get_rank(), dist.get_world_size())
x = torch.ones(3, 8)
with torch.no_grad():
    torch.testing.assert_close(model.cached(x), model.whole(x) * 2.0, atol=1e-3, rtol=1e-3)
counts = model.cached.statistics
found = {**counts, "dynamo": "torch._dynamo" in sys.modules}
Path(f"rank{dist.get_rank()}.json").write_text(json.dumps(found))
dist.destroy_process_group()
