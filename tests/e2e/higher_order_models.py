"""Models with one higher-order operator each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch._higher_order_ops.map import map as map_over
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


class Layer(nn.Module):
    """The region that models here repeat."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    @torch.compiler.nested_compile_region
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.linear(x)) + x


class Layers(nn.Module):
    def __init__(self, count: int = 4) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x * 2


class Chosen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Any:
        linear = self.linear
        return torch.cond(x.sum() > 0, lambda x: linear(x).sin(), lambda x: x.cos() + 1, (x,)) * 2


class Looped(Chosen):
    def forward(self, x: Tensor) -> Any:
        linear = self.linear
        zero = torch.zeros((), dtype=torch.int64)
        return while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, linear(y)), (zero, x + 1))


class Counted(Chosen):
    def forward(self, x: Tensor) -> Any:
        linear = self.linear
        return while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, linear(y) + i), (0, x + 1))


class Scanned(Chosen):
    def forward(self, x: Tensor) -> Any:
        linear = self.linear
        return scan(lambda carry, y: (carry + y, linear(carry * y)), x[0] + 1, x * 2)


class Mapped(Chosen):
    def forward(self, x: Tensor) -> Any:
        return map_over(lambda y: self.linear(y).sin(), x * 2) + 1


class Attended(nn.Module):
    """With scores that are tilted, and a mask that is looked up."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("slopes", torch.rand(2))
        self.documents = torch.arange(48) // 20

    def forward(self, x: Tensor) -> Tensor:
        slopes, documents = self.slopes, self.documents

        def tilted(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return score + slopes[h] * (j - i)

        def kept(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return (i >= j) & (documents[i] == documents[j])

        blocks = create_block_mask(kept, None, None, 48, 48, device="cpu", BLOCK_SIZE=16)
        x = self.linear(x)
        return flex_attention(x, x, x, score_mod=tilted, block_mask=blocks) + 1


MODELS = {
    "cond": (Chosen, 2),
    "while_loop": (Looped, 2),
    "while_loop of an integer": (Counted, 2),
    "scan": (Scanned, 1),
    "map": (Mapped, 1),
    "regions": (Layers, 1),
}
"""Models, and how many bodies each has."""


def flat(results: Any) -> Sequence[Any]:
    return results if isinstance(results, (tuple, list)) else (results,)
