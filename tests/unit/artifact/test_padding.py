"""Padded calls of an artifact come back with its manifest, and compute the same."""

from dataclasses import replace

import pytest
import torch

from kernelmill.artifact.manifest import (
    CallSpec,
    Gears,
    Limit,
    Manifest,
    Parameter,
    Source,
    read_manifest,
)
from kernelmill.artifact.program_set import _geared
from kernelmill.core.dim import sym
from kernelmill.core.errors import GearError, InputError
from kernelmill.plan.ir import PaddedInput, PaddedResult, Padding

ROWS, WIDTH = sym("s0"), sym("s1")
PADDING = Padding(
    (PaddedInput(0, (ROWS, WIDTH), (WIDTH, 1)),),
    (PaddedResult(0, ((ROWS,), (WIDTH,)), (WIDTH, 1)),),
    ((1, "s0"),),
    ((1, ROWS),),
    (("s0", 1, WIDTH * 100), ("s1", 1, None)),
    (("s1", 3),),
    ((0, (ROWS, WIDTH)),),
)
GEARS = Gears(((1, -1),), ("s0",), (((4,), 0), ((8,), 1)), (0, 1), 2, -1, PADDING)
X = (("argument", "x"),)
SPEC = CallSpec(
    "f", (Parameter("x"),), (), (Source(X), Source(X, 0)), {"result": 0},
    (Limit("s0", 2, 50, "dim 0 of argument 'x'"),), (("!=", "s0", "5"),),
)  # fmt: skip


class Doubling:
    """Stands for the program of one gear: it takes these rows and no others."""

    def __init__(self, rows):
        self.rows = rows

    def call(self, x, rows):
        assert x.shape[0] == rows == self.rows
        return [x * 2.0, rows]


@pytest.fixture
def call():
    manifest = read_manifest(Manifest(SPEC, gears=GEARS).text())
    return _geared(manifest.spec, manifest.gears, [Doubling(4), Doubling(8)])


def test_the_manifest_has_all_of_it():
    for gears in (GEARS, replace(GEARS, padding=None), None):
        assert read_manifest(Manifest(SPEC, gears=gears).text()) == Manifest(SPEC, gears=gears)


@pytest.mark.parametrize("rows", [2, 3, 4, 7, 8])
def test_calls_are_padded_and_cut(call, rows):
    x = torch.randn(rows, 3)
    result, size = call(x, rows)
    torch.testing.assert_close(result, x * 2.0)
    assert size == rows


@pytest.mark.parametrize("shape", [(9, 3), (3, 4)])
def test_what_no_gear_holds_is_refused(call, shape):
    with pytest.raises(GearError):
        call(torch.randn(shape), shape[0])


@pytest.mark.parametrize(
    ("rows", "text"),
    [(1, "dim 0 of argument 'x' is 1, and has to be at least 2"), (5, "s0 != 5 does not hold")],
)
def test_sizes_that_the_trace_is_not_for_are_refused(call, rows, text):
    with pytest.raises(InputError, match=text):
        call(torch.randn(rows, 3), rows)
