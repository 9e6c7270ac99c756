"""What may be declared as gears, and what each broken rule says."""

from __future__ import annotations

from typing import Any

import pytest

from kernelmill.core.errors import GearError, GearTypeError
from kernelmill.gears.gear_set import DimGears, declare


def test_lists_and_tuples_in_the_order_of_the_dims() -> None:
    found = declare({1: (8, 16, 8), 0: [2, 4, 2]}, (2, 8))
    assert found == DimGears(((0, (2, 4, 2)), (1, (8, 16, 8))))
    assert found.smallest == 2


@pytest.mark.parametrize("count", [2, 100])
def test_the_lengths_allowed(count: int) -> None:
    (entry,) = declare({0: list(range(2, 2 + count))}, (2,)).dims
    assert len(entry[1]) == count


@pytest.mark.parametrize(
    ("given", "kind", "says"),
    [
        ([2, 4], GearTypeError, "give a dict"),
        ({}, GearError, "is empty"),
        ({"0": [2, 4]}, GearTypeError, "has the key '0': dims are integers, not str"),
        ({True: [2, 4]}, GearTypeError, "has the key True"),
        ({2: [2, 4]}, GearError, "has the dim 2, but the tensor has 2 dims"),
        ({-1: [2, 4]}, GearError, "has the dim -1"),
        ({0: {2, 4}}, GearTypeError, "give a list or a tuple of sizes, not set"),
        ({0: [2, 4.0]}, GearTypeError, "the gear 4.0: sizes are integers, not float"),
        ({0: [2, -4]}, GearError, "the gear -4: sizes are not negative"),
        ({0: [2, 2**63]}, GearError, "the gear 9223372036854775808: no tensor has that size"),
        ({0: [2]}, GearError, "dim 0 has 1 gears: give 2 to 100"),
        ({0: list(range(2, 103))}, GearError, "dim 0 has 101 gears"),
    ],
)
def test_broken_rules(given: Any, kind: type[GearError], says: str) -> None:
    with pytest.raises(kind, match=says):
        declare(given, (2, 8))


def test_a_scalar_has_no_dims() -> None:
    with pytest.raises(GearError, match="the tensor is a scalar"):
        declare({0: [2, 4]}, ())
