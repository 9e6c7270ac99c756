"""Fingerprints: the same for the same, another for anything else."""

import enum
import functools
import math

import pytest
import torch
from torch import nn

from kernelmill.artifact.fingerprint import code_digest, fingerprint, members_text, shape_of


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1


LOWER = enum.IntEnum("Level", {"LOW": 0}, module=__name__)
"""Another version of the class."""


class Access(enum.IntFlag):
    READ = 1


class Number(int):
    def __repr__(self):
        return "Number"


class Name(str):
    def __repr__(self):
        return "Name"


def double(x, by=2):
    return x * by


def scaled(by):
    return lambda x: x * by


VALUES = [
    None, True, 1, 1.0, 0.0, -0.0, math.nan, math.inf, "1", b"1", 1j, ..., torch.float32,
    torch.float64, torch.device("cpu"), torch.device("meta"), torch.strided, Colour.RED,
    Colour.BLUE, int, nn.Linear, double, math.sin, math, [1, 2], (1, 2), [2, 1], {1: 2}, {1: 3},
    {1, 2}, frozenset({1, 2}), functools.partial(double, by=3), functools.partial(double, by=4),
    scaled(1), scaled(2), [[1], [2]], [[1], [3]], Level.LOW, LOWER.LOW, Access(8), Access(16),
    Access(0), Number(1), Number(2), Name("a"), Name("b"),
]  # fmt: skip


def local_class(factor):
    class Local(nn.Module):
        registry = ()

        def __init__(self):
            super().__init__()  # which has the class in a variable of its closure

        def forward(self, x):
            return x * factor

    Local.registry = (Local,)
    return Local


def test_classes_that_lead_back_to_themselves():
    texts = [fingerprint(local_class(factor)) for factor in (2, 2, 3)]
    assert texts[0] == texts[1] != texts[2]


def test_no_two_values_have_one_fingerprint():
    texts = [fingerprint(value) for value in VALUES]
    assert len(set(texts)) == len(VALUES)
    assert texts == [fingerprint(value) for value in VALUES]


def test_objects_are_known_by_their_class_alone():
    assert fingerprint(nn.Linear(2, 2)) == fingerprint(nn.Linear(3, 3))
    assert fingerprint(torch.ones(2)) == fingerprint(torch.zeros(3))
    assert fingerprint(nn.Linear(2, 2)) != fingerprint(nn.ReLU())


def code_of(text):
    constants = compile(text, "file", "exec").co_consts
    return next(c for c in constants if getattr(c, "co_name", "") in ("f", "g"))


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        ("def f(x):\n    # a comment\n\n    return g(x) + 1\n", True),
        ("def f(x: int) -> int:\n    return g(x) + 1\n", True),
        ("def f(x):\n    return g(x) + 2\n", False),
        ("def f(x):\n    return g(x) + 1.0\n", False),
        ("def f(x):\n    return h(x) + 1\n", False),
        ("def f(x):\n    return 1 + g(x)\n", False),
        ("def f(y):\n    return g(y) + 1\n", False),
        ("def f(*x):\n    return g(x) + 1\n", False),
    ],
)
def test_code_is_what_it_does(changed, same):
    plain = code_digest(code_of("def f(x):\n    return g(x) + 1\n"))
    assert (code_digest(code_of(changed)) == plain) is same


def test_the_shape_of_a_container_is_its_keys_or_length():
    assert shape_of({"a": 1}) == shape_of({"a": 2}) != shape_of({"b": 1})
    assert shape_of([1]) == shape_of([2]) != shape_of([1, 2])
    assert shape_of([1]) != shape_of((1,))


def test_a_class_is_the_methods_that_are_used_of_it():
    class Plain:
        def run(self):
            pass

    class Other(Plain):
        def unrelated(self):
            pass

    class Own(Plain):
        def run(self):
            pass

    names = frozenset({"run"})
    assert "run" not in members_text(Other, names)
    assert "run" in members_text(Own, names)
    assert "unrelated" not in members_text(Other, names)
