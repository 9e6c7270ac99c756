"""Functions and a module whose sizes depend on what is in their arguments.

As a script: `data_dependent.py aot FOLDER` compiles each of them into a file of FOLDER and writes
calls.pt, `data_dependent.py cached FOLDER` runs them as cached methods and prints what was counted.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import nn


def nonzero(x):
    return torch.nonzero(x > 0).float() * 2 + 1


def masked(x):
    return (x[x > 0] * 2).sum(), x[x > 0] + 1


def unique(x):
    return torch.unique((x * 3).to(torch.int64)) + 1


def repeated(x):
    times = (x.abs() * 2).to(torch.int64).flatten()
    return torch.repeat_interleave(torch.arange(times.numel()), times) * 2


def selected(x):
    return torch.masked_select(x, x > 0).cumsum(0)


def sized_by_item(x):
    n = x.argmax().item()
    torch._check(n >= 0)
    torch._check(n < x.numel())
    return x.flatten()[:n] * 2, torch.zeros(n) + x.sum()


def counted(x):
    found = torch.nonzero(x)
    return found.shape[0], found * 1


FUNCTIONS = (nonzero, masked, unique, repeated, selected, sized_by_item, counted)


class Router(nn.Module):
    """Takes the rows that a sum chooses: what lies between is as long as they are many."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.into, self.out = nn.Linear(5, 7), nn.Linear(7, 3)
        for function in FUNCTIONS:
            setattr(self, function.__name__, lambda x, call=function: call(x))

    def forward(self, x):
        y = self.into(x)
        rows = torch.nonzero(y.sum(-1) > 0).flatten()
        chosen = torch.relu(y[rows])
        return y.index_add(0, rows, chosen).sum(0), self.out(chosen.softmax(-1) * 2)


def arguments(rows=4):
    torch.manual_seed(rows)
    some = [torch.randn(rows, 5) for _ in range(2)]
    return [*some, torch.zeros(rows, 5), torch.full((rows, 5), 0.75)]


def programs():
    return {**{function.__name__: function for function in FUNCTIONS}, "router": Router().eval()}


def write_files(folder):
    import kernelmill

    calls = {}
    for name, program in programs().items():
        x = arguments()
        rows = torch.export.Dim("rows", max=64)
        path = folder / f"{name}.kmill"
        kernelmill.aot.compile(program, (x[0],), dynamic_shapes=[{0: rows}], path=path)
        with torch.no_grad():
            every = [*x, *arguments(9)]
            calls[name] = [((value,), {}, program(value)) for value in every]
    for name, listed in calls.items():
        torch.save(listed, folder / f"{name}.pt")


class Cached(Router):
    def __init__(self, folder):
        from kernelmill.inference import cache_compile

        super().__init__()
        self.cached = cache_compile(self.forward, cache_dir=folder)
        self.cached_masked = cache_compile(self.run_masked, cache_dir=folder)
        self.cached_counted = cache_compile(self.run_counted, cache_dir=folder)
        self.cached_item = cache_compile(self.run_item, cache_dir=folder)

    def run_masked(self, x):
        return masked(x)

    def run_counted(self, x):
        return counted(x)

    def run_item(self, x):
        return sized_by_item(x)

    def methods(self):
        yield self.forward, self.cached
        yield self.run_masked, self.cached_masked
        yield self.run_counted, self.cached_counted
        yield self.run_item, self.cached_item


def run_cached(folder):
    model = Cached(folder).eval()
    found = {"loaded": 0, "traced": 0, "uncached": 0}
    with torch.no_grad():
        for method, cached in model.methods():
            for x in (*arguments(), *arguments(9)):
                torch.testing.assert_close(cached(x), method(x))
            for name in found:
                found[name] += cached.statistics[name]
    print(found, "torch._dynamo" in sys.modules)


if __name__ == "__main__":
    {"aot": write_files, "cached": run_cached}[sys.argv[1]](Path(sys.argv[2]))
