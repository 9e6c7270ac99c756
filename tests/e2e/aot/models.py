"""Compiles what tests load in other processes: `python -m tests.e2e.aot.models FOLDER`."""

from __future__ import annotations

import sys
from collections import namedtuple
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.export import Dim, export, register_dataclass

Pair = namedtuple("Pair", "low high")


@dataclass
class Boxed:
    value: torch.Tensor
    note: torch.Tensor


register_dataclass(Boxed)


class Nested(nn.Module):
    """Parameters (two of them one), buffers (one updated), constants, nested arguments."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.second = nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.register_buffer("state", torch.zeros(6))
        self.register_buffer("scale", torch.full((6,), 0.5), persistent=False)
        self.ramp = torch.arange(6.0)

    def forward(self, x, pair, n=3, loud=False, *, extra=None):
        self.state.add_(x.sum(0))
        y = self.second(torch.relu(self.first(x))) * self.scale + self.ramp
        y = y + torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
        if loud:
            y = y * 10.0
        return {"y": y.softmax(-1) * n, "z": (pair[0] - pair[1]["q"], x.shape[0], None, self.state)}


def arguments(rows=4):
    torch.manual_seed(rows)
    x, y, z = torch.randn(3, rows, 6)
    return (x, [y, {"q": z}], 5, True), {"extra": None}


ROWS = Dim("rows", min=1, max=64)
SHAPES = {
    "x": {0: ROWS},
    "pair": [{0: ROWS}, {"q": {0: ROWS}}],
    "n": Dim.DYNAMIC,
    "loud": None,
    "extra": None,
}


def nested():
    torch.manual_seed(0)
    return Nested().eval()


if __name__ == "__main__":
    import kernelmill

    folder = Path(sys.argv[1])
    args, kwargs = arguments()
    kernelmill.aot.compile(
        nested(), args, kwargs, dynamic_shapes=SHAPES, path=folder / "nested.kmill"
    )
    with torch.no_grad():
        program = export(nested(), args, kwargs)
    kernelmill.aot.compile(program, path=folder / "static.kmill")
    model, calls = nested(), []
    with torch.no_grad():
        for rows in (4, 7, 1):
            args, kwargs = arguments(rows)
            result = model(*args, **kwargs)
            result["z"] = (*result["z"][:3], result["z"][3].clone())  # it is the buffer itself
            calls.append((args, kwargs, result))
    torch.save(calls, folder / "calls.pt")
