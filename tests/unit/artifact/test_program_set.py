"""The programs of an artifact by sizes: which one a call takes, and what is refused."""

from typing import Any

import pytest
import torch

from kernelmill.artifact.manifest import CallSpec, Gears, Parameter, Source
from kernelmill.artifact.program_set import _geared
from kernelmill.core.errors import GearError, InputError

X, Y = (("argument", "x"),), (("argument", "pair"), ("item", 1))
SPEC = CallSpec("f", (Parameter("x"), Parameter("pair")), (), (Source(X), Source(Y, 1)), {})
TABLE = (((2, 8), 0), ((4, 8), 1))


class Program:
    def __init__(self, name: Any):
        self.name = name

    def call(self, x: Any, size: Any):
        if x.dtype != torch.float32:
            raise InputError(f"argument 'x' of {self.name}")
        return [self.name]


def call_of(otherwise: Any = -1):
    gears = Gears(((0, 0), (1, -1)), ("s0", "s1"), TABLE, (0, 1), 2, otherwise)
    return _geared(SPEC, gears, [Program("two"), Program("four"), Program("any")])


def test_a_call_takes_the_program_of_its_sizes():
    call = call_of()
    assert [call(torch.ones(rows), 8) for rows in (4, 2)] == [["four"], ["two"]]
    assert call_of(otherwise=2)(torch.ones(3), 8) == ["any"]


def test_sizes_that_are_no_gear_are_refused_with_the_nearest():
    with pytest.raises(GearError) as caught:
        call_of()(torch.ones(3), 8)
    text = str(caught.value)
    assert text.startswith("argument 'x', 'pair.1': (x[0]=3, pair.1[1]=8) is not among the gears")
    assert "the nearest are (x[0]=4, pair.1[1]=8) or (x[0]=2, pair.1[1]=8)" in text


def test_what_the_program_of_a_gear_refuses_is_said_as_it_says_it():
    with pytest.raises(InputError, match="argument 'x' of two"):
        call_of()(torch.ones(2).double(), 8)


@pytest.mark.parametrize("x", [torch.tensor(1.0), 3, None])
def test_arguments_without_such_a_size_are_input_errors(x: Any):
    with pytest.raises(InputError, match="no such size"):
        call_of()(x, 8)
