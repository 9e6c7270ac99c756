"""The figures of processors: caches, rates, estimates, the text of what is measured for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernelmill.core.dtype import BF16, I8
from kernelmill.core.isa import BF16_PAIRS, MULTIPLY_ADD, NAMED, VNNI
from kernelmill.core.machine import (
    PROFILES,
    Machine,
    Rates,
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
