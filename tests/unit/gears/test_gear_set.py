"""Merge policies, selection, and the descriptions of gear sets."""

from __future__ import annotations

import pytest

from kernelmill.core.errors import GearError
from kernelmill.gears.gear_set import (
    DimGears,
    GearDim,
    GearSet,
    Link,
    Marked,
    check_small,
    combine,
    declare,
    graph_options,
)


def marked(name: str, shape: tuple[int, ...], **gears: list[int]) -> Marked:
    """`_0=[2, 4]` are the gears of dim 0."""
    dims = {int(key[1:]): values for key, values in gears.items()}
    return Marked(name, shape, declare(dims, shape) if dims else None)


SIX = {(2, 10), (3, 10), (4, 10), (2, 20), (3, 20), (4, 20)}


def test_the_same_six_by_both_policies() -> None:
    zipped = marked("x", (2, 10), _0=[2, 3, 4, 2, 3, 4], _1=[10, 10, 10, 20, 20, 20])
    product = marked("x", (2, 10), _0=[2, 3, 4], _1=[10, 20])
    assert set(combine([zipped], "zip").gears) == SIX
    assert set(combine([product], "product").gears) == SIX


def test_two_arguments_are_two_gears_under_zip_and_four_under_product() -> None:
    both = [marked("a", (2, 2), _0=[2, 4]), marked("b", (2, 2), _0=[2, 4])]
    assert combine(both, "zip").gears == ((2, 2), (4, 4))
    assert combine(both, "product").gears == ((2, 2), (2, 4), (4, 2), (4, 4))


def test_gears_that_occur_twice_count_once() -> None:
    assert combine([marked("x", (2, 2), _0=[2, 4, 2], _1=[3, 5, 3])], "zip").gears == (
        (2, 3),
        (4, 5),
    )


def test_zip_wants_lists_of_one_length() -> None:
    both = [marked("a", (2,), _0=[2, 4]), marked("b", (2,), _0=[2, 4, 8])]
    with pytest.raises(GearError, match=r"a\[0\] has 2, b\[0\] has 3.*'product'"):
        combine(both, "zip")


def test_no_more_than_a_hundred() -> None:
    ten = list(range(2, 12))
    assert len(combine([marked("x", (2, 2), _0=ten, _1=ten)], "product").gears) == 100
    eleven = list(range(2, 13))
    with pytest.raises(GearError, match=r"x\[0\], x\[1\] combine to 110 under the policy"):
        combine([marked("x", (2, 2), _0=ten, _1=eleven)], "product")


def test_linked_arguments_go_together() -> None:
    link = Link()
    linked = [
        Marked("a", (2,), DimGears(((0, (2, 4, 9)),), link, ((0, (2, 4)),))),
        Marked("b", (6,), DimGears(((0, (6, 12)),), link, ((0, (6, 12)),))),
    ]
    loose = marked("c", (5,), _0=[5, 7])
    assert combine([*linked, loose], "product").gears == (
        (2, 6, 5),
        (2, 6, 7),
        (4, 12, 5),
        (4, 12, 7),
    )


def test_small_sizes_need_leave() -> None:
    one = [marked("x", (2,), _0=[1, 2])]
    check_small(one, allowed=True)
    with pytest.raises(GearError, match=r"x\[0\] has the gear 1: .*allow_small_gears = True"):
        check_small(one, allowed=False)


def test_selection() -> None:
    gears = GearSet((GearDim("x", 0), GearDim("x", 1)), ((2, 16), (4, 16), (4, 32), (16, 8)))
    assert gears.nearest((3, 16), 2) == ((4, 16), (2, 16))
    assert gears.of({"x": (7, 9, 1)}) == (7, 9)


def test_the_options_of_the_graph() -> None:
    arguments = [
        Marked("s0", (2,), None),
        marked("input1", (2, 2), _0=[2, 4]),
        marked("input2", (2, 2), _0=[2, 4]),
    ]
    assert graph_options(arguments, combine(arguments, "zip")) == {
        "ge.dynamicDims": "2,2;4,4",
        "ge.dynamicNodeType": "1",
        "ge.inputShape": "arg1_1:-1,2;arg2_1:-1,2",
    }
