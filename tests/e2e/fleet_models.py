"""Models for tests of precompile, as factories that a job can name."""

import torch

from kernelmill import scope

SIZES = (2, 3, 5)


class Net(torch.nn.Module):
    """Two layers with what makes kernels of several templates."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(24, 40)
        self.norm = torch.nn.LayerNorm(40)
        self.second = torch.nn.Linear(40, 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(torch.nn.functional.gelu(self.first(x)))
        return torch.softmax(self.second(hidden), -1)


def net():
    """A model and a batch."""
    torch.manual_seed(0)
    return Net().eval(), (torch.randn(SIZES[0], 24),)


class Marked(Net):
    """The same as one super kernel."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with scope.super_kernel("whole", ""):
            return super().forward(x)


def marked():
    """A model with a super kernel, and a batch."""
    torch.manual_seed(0)
    return Marked().eval(), (torch.randn(512, 24),)


def unsized():
    """A model without weights, which takes any sizes, and a batch."""

    def model(x):
        return torch.softmax(torch.nn.functional.gelu(x) * 2, -1)

    return model, (torch.randn(2, 24),)


def broken():
    """A factory that raises."""
    raise RuntimeError("no weights here")


def too_large():
    """A model that does not fit."""
    return torch.nn.Linear(1 << 40, 1 << 20), (torch.ones(1),)


def unread():
    """A model that torch.compile cannot trace."""

    def model(x):
        torch._dynamo.graph_break()
        return x.tolist()

    return model, (torch.ones(2),)
