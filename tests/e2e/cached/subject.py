"""A module whose cached method reads a bit of everything; tests edit copies of this file."""

import functools

import torch
from torch import nn
from torchextra import Raised  # a package that mutations.py puts beside torch

from kernelmill import CompilerConfig
from kernelmill.inference import cache_compile

SCALE = 2.0
TABLE = [1.0, 3.0]
NAMES = {"gain": 0.5}
OFFSET = torch.full((4,), 0.25)


class Settings:
    power = 2

    def __init__(self):
        self.bias = 0.125


SETTINGS = Settings()


def helper(x, factor=4.0, *, shift=1.0):
    return inner(x) * SCALE * TABLE[0] * factor + shift


def inner(x):
    return x.sin() + NAMES["gain"]


def unrelated(x):
    return x + 1


def make_closure(amount):
    def add(x):
        return x + amount

    return add


def doubled(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args) * 2.0

    return wrapper


@doubled
def decorated(x):
    return x.cos()


add_some = make_closure(0.75)
third = lambda x: x / 3.0  # noqa: E731
partial = functools.partial(helper, factor=1.5)


class Block(nn.Module):
    gain = 1.5

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)
        self.rate = 0.5
        self.steps = (1, 2)

    def forward(self, x):
        return self.norm(self.linear(x)) * self.rate * self.gain + self.steps[1]


class Special(Block):
    pass


class Model(nn.Module):
    level = 3

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Special()])
        self.drop = nn.Dropout(0.5)
        self.register_buffer("mask", torch.tensor([1.0, 0.0, 1.0, 1.0]))
        self.activation = torch.relu
        self.flags = {"add": True, "unread": 1}
        self.limit = 2.5
        self.raised = Raised()
        self.eval()

    @property
    def half(self):
        return 0.5

    @staticmethod
    def static_part(x):
        return x * 1.25

    @classmethod
    def class_part(cls, x):
        return x + cls.level

    def run(self, x, y=None, mode="plain"):
        """Docstring."""
        for block in self.blocks:
            x = block(x)
        if self.flags["add"]:
            x = x + OFFSET * self.half
        x = self.drop(self.activation(x)).clamp(max=self.limit)
        if y is not None:
            x = x + y["more"][0]
        if mode == "loud":
            x = x * 10.0
        x = third(add_some(decorated(partial(helper(x))))) ** SETTINGS.power + SETTINGS.bias
        x = self.raised(x)
        return {"x": self.class_part(self.static_part(x)) * self.mask, "size": x.shape[0]}


def build(**options):
    torch.manual_seed(0)
    model = Model()
    model.cached = cache_compile(model.run, config=CompilerConfig(), **options)
    return model


def arguments(rows=3):
    torch.manual_seed(1)
    return torch.randn(rows, 4), {"more": [torch.randn(4)]}


def change(model):
    """Tests put edits of the model here."""


if __name__ == "__main__":
    import json
    import sys

    model = build()
    change(model)
    x, y = arguments()
    with torch.no_grad():
        expected, got = model.run(x, y), model.cached(x, y)
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)
    unwanted = ("torch._dynamo", "kernelmill.codegen", "llvmlite.binding")
    loaded = [name for name in unwanted if name in sys.modules]
    print(json.dumps({**model.cached.statistics, "imported": loaded}))
