"""Gears for recorded calls: what varies together, both policies, and the code that is printed."""

from __future__ import annotations

import pytest

from kernelmill.core.errors import GearError
from kernelmill.gears.gear_set import GearDim
from kernelmill.gears.suggest import Shapes, suggest


def calls(*sizes: tuple[int, int], times: int = 1) -> dict[Shapes, int]:
    """input_ids and mask of (batch, length), beside a tensor that is always the same."""
    return {(("ids", (b, s)), ("mask", (b, s)), ("table", (5,))): times for b, s in sizes}


def test_one_size_that_varies_gets_the_gears_with_the_least_padding() -> None:
    lengths = {10: 100, 11: 1, 40: 3, 100: 50}
    seen = {(("x", (4, n)),): count for n, count in lengths.items()}
    found = suggest(seen, most=2)
    assert (found.axes, found.sizes, found.gears) == ((GearDim("x", 1),), ((10, 100),), 2)
    true = 10 * 100 + 11 + 120 + 5000
    assert found.padding == pytest.approx(1 - true / (10 * 100 + 100 * 54))
    assert found.padding_to_largest == pytest.approx(1 - true / (100 * 154))


def test_dims_of_equal_size_in_all_calls_count_as_one() -> None:
    found = suggest(calls((2, 8), (4, 8), (4, 32)), most=3)
    assert found.axes == (
        GearDim("ids", 0),
        GearDim("ids", 1),
        GearDim("mask", 0),
        GearDim("mask", 1),
    )
    assert found.sizes == ((2, 4, 4), (8, 8, 32), (2, 4, 4), (8, 8, 32))
    assert (found.gears, found.padding) == (3, 0)


def test_zip_finds_gears_off_the_grid() -> None:
    found = suggest(calls((2, 64), (64, 2), (3, 64), (64, 3)), most=2)
    assert list(zip(*found.sizes[:2], strict=True)) == [(3, 64), (64, 3)]


def test_product_combines_every_size_with_every_one_of_the_others() -> None:
    seen: dict[Shapes, int] = {(("x", (b, s)),): 1 for b in (2, 4) for s in (8, 16, 32, 64)}
    found = suggest(seen, most=8, policy="product")
    assert found.sizes == ((2, 4), (8, 16, 32, 64))
    assert (found.gears, found.padding) == (8, 0)
    assert suggest(seen, most=5, policy="product").gears == 4


def test_product_counts_every_tensor_and_says_when_that_is_too_many() -> None:
    with pytest.raises(GearError, match=r"makes 16 gears .* use the policy 'zip'"):
        suggest(calls((2, 8), (4, 8), (4, 32)), most=8, policy="product")
    assert suggest(calls((2, 8), (4, 8), (4, 32)), most=16, policy="product").gears == 16


def test_sizes_0_and_1_become_2_unless_they_are_allowed() -> None:
    seen: dict[Shapes, int] = {(("x", (n,)),): 1 for n in (0, 1, 5)}
    assert suggest(seen).sizes == ((2, 5),)
    allowed = suggest(seen, smallest=0)
    assert allowed.sizes == ((0, 1, 5),)
    assert "allow_small_gears = True" in allowed.code()
    assert "allow_small_gears" not in suggest(seen).code()


def test_a_size_with_one_gear_is_listed_twice() -> None:
    seen: dict[Shapes, int] = {(("x", (n,)), ("y", (n // 2, 7 * n))): 1 for n in (2, 4)}
    found = suggest(seen, policy="product", most=16)
    assert found.sizes == ((2, 4), (2, 2), (14, 28)) and found.gears == 4


def test_the_most_frequent_arguments_count() -> None:
    seen = {**calls((2, 8), (4, 8), times=3), (("ids", (2, 8)),): 5}
    found = suggest(seen)
    assert (found.calls, found.left_out) == (6, 5)
    assert "It leaves out 5 calls with other arguments" in found.summary()


def test_the_code_sets_what_was_found() -> None:
    assert suggest(calls((2, 8), (4, 8), (4, 32)), most=3).code() == (
        'config.inference_config.gear_miss = "pad"\n'
        'config.inference_config.dynamic_gears_merge_policy = "zip"\n'
        "kernelmill.inference.set_dim_gears(ids, {0: [2, 4, 4], 1: [8, 8, 32]})\n"
        "kernelmill.inference.set_dim_gears(mask, {0: [2, 4, 4], 1: [8, 8, 32]})\n"
    )


def test_what_cannot_be_suggested_is_said() -> None:
    with pytest.raises(GearError, match="no calls were recorded"):
        suggest({})
    with pytest.raises(GearError, match="all calls have the same shapes"):
        suggest(calls((2, 8)))
    with pytest.raises(GearError, match="gears need at least two"):
        suggest({(("x", (1,)),): 1, (("x", (2,)),): 1})
    for most in (1, 101):
        with pytest.raises(GearError, match="give 2 to 100"):
            suggest(calls((2, 8), (4, 8)), most=most)
