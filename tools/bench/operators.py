"""Single operators and short stacks that no model of the benchmark has much of, beside eager and
Inductor: `python -m tools.bench.operators`, or with names of rows.

Prints a table of medians on one thread. Contestants take turns.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tools.bench.tables import duration, table
from tools.machine import description

CALLS = 40
CONTESTANTS = ("eager", "inductor", "kernelmill")

Function = Callable[[Tensor], Tensor]


def _last(x: Tensor) -> Tensor:
    return x.to(memory_format=torch.channels_last)


def _pieces(number: int) -> Function:
    return lambda x: torch.cat([x + n for n in range(number)], 1)


class _Positions(nn.Module):
    """Scores against projections of learned positions."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = nn.Parameter(torch.randn(512, 768))
        self.norm, self.query = nn.LayerNorm(768), nn.Linear(768, 768)
        self.project = nn.Linear(768, 768)

    def forward(self, x: Tensor) -> Tensor:
        return self.query(x) @ self.project(self.norm(self.positions)).t()


def _normal_stack() -> nn.Module:
    layers: list[nn.Module] = []
    for _ in range(3):
        layers += [nn.Conv2d(128, 128, 3, padding=1), nn.GroupNorm(32, 128), nn.SiLU()]
    return nn.Sequential(*layers, nn.Conv2d(128, 128, 3, padding=1))


def rows() -> Mapping[str, tuple[Function, Tensor]]:
    """A function and its argument for each name."""
    image, index = torch.randn(1, 64, 112, 112), torch.randint(0, 1000, (20000,))
    source, zeros = torch.randn(20000, 32), torch.zeros(1000, 32)
    return {
        "max pool 3/2/1": (lambda x: F.max_pool2d(x, 3, 2, 1), image),
        "max pool 2/2": (lambda x: F.max_pool2d(x, 2), image),
        "max pool 5/1/2": (lambda x: F.max_pool2d(x, 5, 1, 2), torch.randn(1, 128, 20, 20)),
        "average pool 3/2/1": (lambda x: F.avg_pool2d(x, 3, 2, 1), image),
        "bilinear x 2": (lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), image),
        "cat 16 x (256, 8)": (_pieces(16), torch.randn(256, 8)),
        "cat 3 x (512, 768)": (_pieces(3), torch.randn(512, 768)),
        "stack 40 x (256, 32)": (
            lambda x: torch.stack([x + n for n in range(40)], 1), torch.randn(256, 32)
        ),
        "cat of channels last, ReLU": (
            lambda x: torch.relu(torch.cat([x, x * 2, x + 1], 1)), _last(torch.randn(1, 32, 28, 28))
        ),
        "scatter_add of rows": (
            lambda x: x.scatter_add(0, index[:, None].expand(-1, 32), source), zeros
        ),
        "depthwise 7 x 7, channels last": (
            nn.Conv2d(192, 192, 7, padding=3, groups=192), _last(torch.randn(1, 192, 56, 56))
        ),
        "group norm, channels last": (nn.GroupNorm(8, 64), _last(torch.randn(4, 64, 32, 32))),
        "3 x (convolution, group norm, SiLU)": (_normal_stack(), torch.randn(1, 128, 64, 64)),
        "projections of learned positions": (_Positions(), torch.randn(8, 768)),
        "cumsum along rows": (lambda x: x.cumsum(0), torch.randn(1000, 4096)),
        "sum of rows": (lambda x: x.sum(0), torch.randn(4096, 1024)),
    }  # fmt: skip


def measure(function: Function, x: Tensor) -> dict[str, float]:
    """The median of a call in seconds, for each contestant."""
    if isinstance(function, nn.Module):
        function.eval()
    made: dict[str, Any] = {}
    expected = function(x)
    for name in CONTESTANTS:
        torch._dynamo.reset()
        made[name] = function if name == "eager" else torch.compile(function, backend=name)
        torch.testing.assert_close(made[name](x), expected, atol=2e-3, rtol=2e-3)
        made[name](x)
    seconds: dict[str, list[float]] = {name: [] for name in made}
    for _ in range(CALLS):
        for name, call in made.items():
            start = time.perf_counter()
            call(x)
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    lines: list[tuple[str, ...]] = []
    with torch.no_grad():
        for name, (function, x) in rows().items():
            if sys.argv[1:] and name not in sys.argv[1:]:
                continue
            found = measure(function, x)
            best = min(found["eager"], found["inductor"])
            ratio = f"{best / found['kernelmill']:.2f}"
            lines.append((name, *(duration(found[each]) for each in CONTESTANTS), ratio))
    print(f"One thread, medians of {CALLS} calls. {description()}\n")
    print(table(("", *CONTESTANTS, "best of the others over ours"), lines))


if __name__ == "__main__":
    main()
