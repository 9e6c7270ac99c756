"""Kernels of dynamic sizes stay inside of their buffers at every size.

The kernel interpreter sees each access for every instruction set; machine code for this processor
runs between guard pages. A run of the tests takes for each kind of graph some dtypes, divisors of
the size and sizes; `pytest --every-size` takes all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from torch import Tensor

from kernelmill.core.dtype import F32, DType
from kernelmill.core.target.machine import Machine, profile
from kernelmill.graph.interpreter import run_graph
from kernelmill.graph.text import print_graph
from tests import guard_pages
from tests.arguments import whole_arguments
from tests.compiled import interpreted, lowered, program
from tests.dynamic_graphs import KINDS, Kind, multiples, sizes
from tests.emulation import emulator
from tests.machine_code import runs_here
from tests.tolerances import mismatch

TARGETS = (
    "x86-64-v2", "x86-64-v3", "x86-64-v4", "x86-64-v4-bf16", "x86-64-v4-amx",
    "aarch64-neon", "aarch64-v8.6",
)  # fmt: skip
HERE = tuple(name for name in (*TARGETS, "x86-64-v4-amx-emulated") if runs_here(profile(name).isa))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", KINDS)
def test_interpreted_kernels_stay_inside(name: str, target: str, every_size: bool) -> None:
    if not every_size and (TARGETS.index(target) - list(KINDS).index(name)) % 3:
        return  # each kind for two or three instruction sets
    for dtype, multiple in _chosen(KINDS[name], TARGETS.index(target), profile(target), every_size):
        _check(KINDS[name], dtype, multiple, profile(target), every_size, machine_code=False)


@pytest.mark.skipif(emulator() is not None, reason="the emulator has guards of its own")
@pytest.mark.parametrize("target", HERE)
@pytest.mark.parametrize("name", KINDS)
def test_machine_code_stays_between_guard_pages(
    name: str, target: str, every_size: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard_pages, "is_on", lambda: True)
    for dtype, multiple in _chosen(KINDS[name], HERE.index(target), profile(target), every_size):
        _check(KINDS[name], dtype, multiple, profile(target), every_size, machine_code=True)


def _lanes(dtype: DType, target: Machine) -> int:
    """Of the sums of this dtype."""
    return min(target.isa.lanes(dtype.compute), target.isa.lanes(F32))


def _chosen(kind: Kind, number: int, target: Machine, every: bool) -> Sequence[tuple[DType, int]]:
    """Dtypes and divisors: all, or a vector's elements with one dtype, and one other pair."""
    if every:
        return [(d, m) for d in kind.dtypes for m in multiples(_lanes(d, target))]
    number += list(KINDS).index(kind.name)
    dtype, other = (kind.dtypes[(number + n) % len(kind.dtypes)] for n in (0, 1))
    divisors = multiples(_lanes(other, target))
    return [(dtype, _lanes(dtype, target)), (other, divisors[number // 2 % len(divisors)])]


def _check(
    kind: Kind, dtype: DType, multiple: int, target: Machine, every: bool, machine_code: bool
) -> None:
    graph, lanes = kind.graph(dtype, multiple), _lanes(dtype, target)
    made = lowered(graph, target)
    run = program(made, target) if machine_code else lambda *given: interpreted(made, given)
    found = sizes(kind, lanes, 2 * lanes, multiple)
    odd = [size for size in found if size % 2]
    for size in found if every else sorted({*found[:1], *odd[:1], *odd[-1:]}):
        given, others = (whole_arguments(graph, {"s0": size}) for _ in range(2))
        try:
            expected = run_graph(graph, others)
        except (IndexError, RuntimeError):
            continue  # eager refuses this size
        where = f"{kind.name}, {dtype}, s0={size}, {target.isa.name}"
        try:
            actual = run(*given)
        except IndexError as error:
            raise AssertionError(f"{where}: {error}\n{print_graph(graph)}") from error
        for mine, theirs in zip((*actual, *given), (*expected, *others), strict=True):
            if isinstance(mine, Tensor) and isinstance(theirs, Tensor):
                wrong = mismatch(mine, theirs)
                assert wrong is None, f"{where}: {wrong}\n{print_graph(graph)}"
