"""The simulated fleet: what must hold whatever the costs are."""

from dataclasses import replace

import pytest

from kernelmill.store.remote import TIMEOUT_SECONDS
from tools.scale import BATCH, Costs, simulate

COSTS = Costs(
    compile=0.1, hit=1e-4, request=1e-5, byte=1e-9, check=1e-9, size=1e4, threads=2, kernels=300
)  # fmt: skip


def test_one_machine_by_hand():
    empty = simulate(COSTS, 1, filled=False, manifest=False)
    assert (empty.requests, empty.compiled) == (2 * 300, 300)
    assert empty.last == pytest.approx(150 * (0.1 + 1e-5 + 1e-3), rel=0.01)
    filled = simulate(COSTS, 1, filled=True, manifest=False)
    assert (filled.requests, filled.compiled, filled.bytes) == (300, 0, 300 * 1e4)
    pulled = simulate(COSTS, 1, filled=True, manifest=True)
    assert (pulled.requests, pulled.compiled) == (1 + -(-300 // BATCH), 0)
    assert pulled.last < filled.last < empty.last


def test_machines_that_start_together_miss_together():
    found = simulate(COSTS, 10, filled=False, manifest=False)
    assert found.compiled == 10 * 300


def test_a_machine_that_waits_too_long_compiles_and_asks_less_and_less():
    slow = replace(COSTS, request=0.5)
    found = simulate(slow, 1, filled=True, manifest=False)
    assert found.compiled == 300
    assert COSTS.threads < found.requests < COSTS.threads + 10
    assert simulate(slow, 1, filled=True, manifest=True).compiled == 0


def test_a_busy_store_is_asked_again_and_serves_what_it_can():
    machines = 40
    busy = replace(COSTS, request=2 * TIMEOUT_SECONDS / (machines * COSTS.threads))
    found = simulate(busy, machines, filled=True, manifest=False)
    served = machines * COSTS.kernels - found.compiled
    assert served > 1000
    assert found.requests < machines * COSTS.kernels / 2
