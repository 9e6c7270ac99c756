"""A cached method whose packed weights are mapped; says how they are mapped, and who packed.

Arguments: the seed, and the scheme by which weights are quantised, if any.
"""

import sys

import torch
from torch import nn

from kernelmill.config import CompilerConfig
from kernelmill.inference import cache_compile
from kernelmill.runtime.weights.packing import Parameters

SCHEME = sys.argv[2] if len(sys.argv) > 2 else None
SIZE = 512 if SCHEME else 96
NEAR = {"atol": 0.05, "rtol": 0.0} if SCHEME else {"atol": 1e-4, "rtol": 1e-4}


def mapped(text):
    """The permissions of all mappings of files whose name has this in it."""
    with open("/proc/self/maps") as maps:
        return sorted({line.split()[1] for line in maps if text in line})


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(SIZE, SIZE) for _ in range(3)])
        config = CompilerConfig()
        config.float32_pieces = False  # one piece of packed memory for each weight
        config.quantize = SCHEME
        self.cached = cache_compile(
            self.run, config=config, cache_dir="cache", mmap_packed_weights=True
        )

    def run(self, x):
        return self.layers(x)


def count_packing():
    """A list that grows by one with each piece of weights that is packed."""
    runs, original = [], Parameters._run

    def counted(self, *args):
        runs.append(args)
        return original(self, *args)

    Parameters._run = counted
    return runs


if __name__ == "__main__":
    torch.manual_seed(int(sys.argv[1]))
    model, x = Model(), torch.randn(64, SIZE)
    runs = count_packing()
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(model.cached(x), model.run(x), **NEAR)
        first = len(runs)
        model.layers[1].weight.mul_(2.0)
        torch.testing.assert_close(model.cached(x), model.run(x), **NEAR)
    print(mapped(".packed"), model.cached.statistics["loaded"], first, len(runs) - first)
