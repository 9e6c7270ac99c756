"""The figures of processors: caches, rates, estimates, the text of what is measured for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernelmill.core.dtype import BF16, F32, I8, U8
from kernelmill.core.target.dot_units import BF16_PAIRS, BFDOT, BFMMLA, MULTIPLY_ADD, SDOT, VNNI
from kernelmill.core.target.isa import NAMED
from kernelmill.core.target.machine import (
    PROFILES,
    Machine,
    Rates,
    committed,
    host,
    parse_machine,
    profile,
)


def test_bytes_cost_by_the_level_into_which_they_fit() -> None:
    one = PROFILES["x86-64-v4"]
    sizes = (one.l1_bytes, one.l1_bytes + 1, one.shared_bytes, one.shared_bytes + 1)
    assert [one.level(size) for size in sizes] == ["l1", "l2", "shared", "memory"]
    rates = [size / one.passing(size) for size in sizes]
    assert rates == sorted(rates, reverse=True)


def test_time_is_the_sum_of_operations_and_of_each_level() -> None:
    one = PROFILES["x86-64-v4"]
    rate = one.rates
    assert one.time(16, {}) == 16 / rate.operations
    both = one.time(16, {"l2": 1000, "memory": 10})
    assert both == pytest.approx(16 / rate.operations + 1000 / rate.bytes[1] + 10 / rate.bytes[3])


def test_a_unit_that_is_measured_slower_than_single_products_is_not_taken() -> None:
    one = PROFILES["x86-64-v4-bf16"]
    assert one.dot_unit(BF16) == BF16_PAIRS
    slow = Rates(dots=((BF16_PAIRS.name, 3.9), (VNNI.name, 1.0)))
    assert replace(one, rates=slow).dot_unit(BF16) == MULTIPLY_ADD
    # Integers have no other exact way.
    assert replace(one, rates=slow).dot_unit(I8) == VNNI


@pytest.mark.parametrize("described", [host(), *PROFILES.values()], ids=str)
def test_the_text_form_reads_back(described: Machine) -> None:
    assert parse_machine(str(described)) == described
    with pytest.raises(ValueError, match="no machine"):
        parse_machine(str(described.isa))


def test_a_forced_isa_has_the_committed_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    assert host() is host()
    assert host().l2_bytes >= host().l1_bytes > 0
    monkeypatch.setenv("KERNELMILL_TARGET", "x86-64-v2")
    assert host() == PROFILES["x86-64-v2"] == profile("native")


def test_every_named_isa_has_a_profile() -> None:
    assert set(PROFILES) == set(NAMED)
    with pytest.raises(ValueError, match="there are"):
        profile("z80")


def test_where_tiles_are_pairs_are_slower_than_single_products() -> None:
    one = PROFILES["x86-64-v4-amx"]
    assert (one.dot_unit(BF16), one.dot_unit(I8)) == (MULTIPLY_ADD, VNNI)
    (halves,) = {one.isa.tile_unit(BF16, BF16)} - {None}
    assert halves is not None
    products = halves.rows * halves.columns * halves.depth * halves.group
    # Two floating-point operations a product: 2160 GFLOP/s, and 130 of multiply-adds.
    assert 2 * products * one.dot_rate(halves) == pytest.approx(2160, rel=0.02)
    lanes = one.isa.lanes(F32)
    assert 2 * lanes * one.dot_rate(MULTIPLY_ADD) == pytest.approx(130, rel=0.02)
    for unit in one.isa.tile_units[1:]:
        assert 2 * 2 * products * one.dot_rate(unit) == pytest.approx(4840, rel=0.02)
    assert (one.l1_bytes, one.l2_bytes) == (48 * 1024, 2 * 1024 * 1024)


def test_a_machine_with_tiles_and_more_has_their_rates_too() -> None:
    more = (*NAMED["x86-64-v4-amx"].features, "avxvnni")
    found = committed(replace(NAMED["x86-64-v4-amx"], features=more))
    assert found.rates == PROFILES["x86-64-v4-amx"].rates
    assert parse_machine(f"{found.isa} l1=1024 l2=4096").rates == found.rates


def test_tiles_are_for_products_that_memory_does_not_make_wait() -> None:
    one = PROFILES["x86-64-v4-amx"]
    units = [one.product_unit(BF16, BF16, m, 768, 768) for m in (1, 2, 8, 128)]
    assert [unit.rows > 1 for unit in units] == [False, False, True, True]
    assert one.product_unit(I8, I8, 128, 768, 768) == one.isa.tile_unit(I8, I8)
    assert one.product_unit(F32, F32, 128, 768, 768) == MULTIPLY_ADD
    assert PROFILES["x86-64-v4-bf16"].product_unit(BF16, BF16, 128, 768, 768) == BF16_PAIRS


def test_blocks_are_for_several_rows_of_several_columns() -> None:
    one = PROFILES["aarch64-v8.6"]
    signed = one.isa.block_unit(I8, I8)
    by_rows = [one.product_unit(I8, I8, m, 768, 768) for m in (1, 2, 3, 128)]
    assert by_rows == [SDOT, signed, signed, signed]
    by_columns = [one.product_unit(BF16, BF16, 64, n, 768) for n in (2, 4, 8, 64)]
    assert by_columns == [BFDOT, BFDOT, BFMMLA, BFMMLA]
    # Of unsigned bytes alone there is no unit with rows of sums.
    assert one.product_unit(U8, U8, 128, 768, 768) == one.isa.block_unit(U8, U8)
    slow = replace(one.rates, dots=(("bfmmla", one.rates.operations / 4),))
    assert replace(one, rates=slow).product_unit(BF16, BF16, 128, 768, 768) == BFDOT
