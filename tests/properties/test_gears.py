"""Random gears and policies against the rules in plain Python."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmill.core.errors import GearError
from kernelmill.gears.gear_set import MOST_GEARS, DimGears, Marked, combine
from kernelmill.runtime.gears.padded_calls import smallest_holding

Declared = list[tuple[int, dict[int, list[int]]]]

values = st.lists(st.integers(2, 9), min_size=2, max_size=6)
tensors = st.lists(
    st.tuples(st.just(3), st.dictionaries(st.integers(0, 2), values, min_size=1, max_size=2)),
    min_size=1,
    max_size=3,
)


def arguments(declared: Declared) -> list[Marked]:
    return [
        Marked(
            f"x{n}", (2,) * rank, DimGears(tuple(sorted((d, tuple(v)) for d, v in dims.items())))
        )
        for n, (rank, dims) in enumerate(declared)
    ]


@given(tensors, st.sampled_from(["zip", "product"]))
def test_combinations(declared: Declared, policy: str) -> None:
    lists = [dims[dim] for _, dims in declared for dim in sorted(dims)]
    unequal = len({len(entry) for entry in lists}) > 1
    count = len(set(zip(*lists, strict=False))) if policy == "zip" else 0
    if policy == "product":
        count = math.prod(len(set(entry)) for entry in lists)
    if (policy == "zip" and unequal) or count > MOST_GEARS:
        with pytest.raises(GearError):
            combine(arguments(declared), policy)
        return
    expected = set(zip(*lists, strict=True) if policy == "zip" else itertools.product(*lists))
    found = combine(arguments(declared), policy)
    assert set(found.gears) == expected and len(found.gears) == len(expected)
    axes = [(f"x{n}", dim) for n, (_, dims) in enumerate(declared) for dim in sorted(dims)]
    assert [(axis.argument, axis.dim) for axis in found.axes] == axes


@given(tensors)
def test_the_smallest_that_holds(declared: Declared) -> None:
    try:
        found = combine(arguments(declared), "product")
    except GearError:
        return
    for sizes in found.gears:
        wanted = tuple(size - 1 for size in sizes)
        chosen = smallest_holding(found.gears, wanted)
        assert chosen is not None
        assert all(a >= b for a, b in zip(chosen, wanted, strict=True))
        assert math.prod(chosen) <= math.prod(sizes)
