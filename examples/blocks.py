"""A small model for `kernelmill explain examples/blocks.py:make`: three residual blocks, a head."""

import torch
from torch import nn


class Block(nn.Module):
    """A residual block: norm, a wider layer with GELU, and back."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Blocks(nn.Module):
    """Three blocks and the probabilities of ten classes."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(Block(256) for _ in range(3)))
        self.head = nn.Linear(256, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(x)).softmax(-1)


def make() -> tuple[nn.Module, tuple[torch.Tensor]]:
    """Return the model and the arguments of a call."""
    torch.manual_seed(0)
    return Blocks().eval(), (torch.randn(128, 256),)
