"""Padded calls as data come back and compute the same."""

import json

import pytest
import torch

from kernelmill.artifact.padding import padded_calls, padding_data
from kernelmill.core.dim import sym
from kernelmill.core.errors import InputError
from kernelmill.plan.padding import PaddedInput, PaddedResult, Padding
from kernelmill.runtime.geared import GearedProgram, SizeSource
from kernelmill.runtime.padded_calls import PaddedCalls

ROWS, WIDTH = sym("s0", 1), sym("s1", 1)


class Doubling:
    """Stands for the program of one gear: it takes these rows and no others."""

    def __init__(self, rows):
        self.rows = rows

    def call(self, x, rows):
        assert x.shape[0] == rows == self.rows
        return [x * 2.0, rows]


PROGRAM = GearedProgram(
    (SizeSource(1),), ("s0",), {(4,): Doubling(4), (8,): Doubling(8)}, (0, 1), 2
)


def calls():
    padding = Padding(
        (PaddedInput(0, (ROWS, WIDTH), (WIDTH, 1)),),
        (PaddedResult(0, ((ROWS,), (WIDTH,)), (WIDTH, 1)),),
        ((1, "s0"),),
        ((1, ROWS),),
        (("s0", 1, WIDTH * 100),),
    )
    return PaddedCalls(padding, PROGRAM, {"s1": 3}, [(0, (ROWS, WIDTH))], lambda values: "")


def test_they_come_back_and_compute_the_same():
    bounds, conditions = [("s0", 2, 50), ("s1", None, None)], [("!=", "s0", "5")]
    data = json.loads(json.dumps(padding_data(calls(), bounds, conditions)))
    again = padded_calls(data, PROGRAM)
    for rows in (2, 3, 7):
        x = torch.randn(rows, 3)
        for made in (calls(), again):
            result, size = made((x, rows))
            torch.testing.assert_close(result, x * 2.0)
            assert size == rows
    assert again.padding == calls().padding and dict(again.fixed) == {"s1": 3}
    assert again((torch.randn(9, 3), 9)) is None
    assert again((torch.randn(3, 4), 3)) is None
    with pytest.raises(InputError, match=r"for one in \[2, 50\]"):
        again((torch.randn(1, 3), 1))
    with pytest.raises(InputError, match="s0 != 5 does not hold"):
        again((torch.randn(5, 3), 5))
