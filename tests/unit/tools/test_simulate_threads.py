"""The simulator of native schedules: its rules are the native ones, and time adds up."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import nn

from kernelmill.plan.ir import Order
from tests.torch_settings import threads_set
from tests.unit.runtime.test_contention import linked
from tools.simulate_threads.__main__ import simulated, table, worst
from tools.simulate_threads.measured import Model, measured
from tools.simulate_threads.schedule import (
    Costs,
    Schedule,
    Serial,
    Work,
    claims,
    groups_of,
    threads_for,
)

FREE = Costs(transfer=0.0, claim=0.0, region=0.0)
"""A machine on which only work takes time."""


def test_launches_are_worth_as_many_threads_as_the_native_entry_gives_them() -> None:
    code = linked("lost_time.c", "threads_worth")
    native = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 4)(code["threads_worth"])
    works = (0, 3999, 4000, 10**4, 40_000, 64_000, 10**5, 10**6)
    found = set[int]()
    for case in product((0, 1, 2, 31, 1000), works, (1, 2, 17, 64), (2000, 4000)):
        assert threads_for(*case) == native(*case), case
        found.add(threads_for(*case))
    assert {0, 1, 2, 17, 64} < found


def alone(work: Work, threads: int, costs: Costs = FREE) -> tuple[float, dict[str, float]]:
    schedule = Schedule(threads, costs)
    spent = schedule.run([work])
    causes: dict[str, float] = {}
    for each in schedule.lost:
        causes |= each.causes
    return spent, causes


def test_what_threads_cost_and_memory_gives_decides_what_is_lost() -> None:
    even = Work("even", 128, 1e6, 10**6)
    assert alone(even, 64) == (pytest.approx(1e6 / 64), {})
    spent, causes = alone(Work("few", 8, 1e6, 10**6), 64)
    assert spent == pytest.approx(1e6 / 8) and set(causes) == {"few tasks"}
    spent, causes = alone(Work("uneven", 65, 1e6, 10**6), 64)
    assert set(causes) == {"few tasks"} and spent == pytest.approx(2e6 / 65)
    spent, causes = alone(Work("small", 128, 2000.0, 2000), 64)
    assert (spent, causes) == (2000.0, {"small": pytest.approx(2000 - 2000 / 64)})
    slow = Costs(transfer=0.0, claim=0.0, region=0.0, node_cores=32, node_bandwidth=10)
    spent, causes = alone(Work("read", 128, 1e6, 10**6, bytes=10**6), 64, slow)
    assert set(causes) == {"memory"} and spent == pytest.approx(10**6 / 20)
    assert alone(Work("read", 128, 1e6, 10**6, bytes=10**6), 8, slow)[1] == {}
    spent, causes = alone(even, 64, Costs())
    assert set(causes) == {"claims", "regions"} and spent > 1e6 / 64


def test_threads_claim_half_of_what_is_left_and_count_it_when_all_is_done() -> None:
    """The first thread has four long tasks: it claims two, and others take one each."""
    lengths = [100.0] * 4 + [1.0] * 12
    assert claims(lengths, 4, FREE) == 200.0
    assert claims(lengths, 1, FREE) == sum(lengths)
    # The second thread is told, sees that, runs two, counts them, and the first one sees it.
    dear = Costs(transfer=1000.0, claim=0.0, node_cores=2)
    assert claims([1.0] * 4, 2, dear) == 1000 + 1000 + 2 + 1000 + 1000
    assert claims([1.0] * 4, 2, replace(dear, far=2.0, node_cores=1)) > 2 * 4002


def test_launches_run_beside_each_other_as_the_plan_says() -> None:
    first, beside = Work("a", 4, 4e4, 40_000), Work("b", 4, 4e4, 40_000, order=Order.BESIDE)
    behind, after = Work("c", 4, 4e4, 40_000, order=Order.BEHIND), Work("d", 1, 10.0, 10)
    assert [len(group) for group in groups_of([first, beside, behind, after])] == [3, 1]
    # Eight tasks of 10 us; tasks of the third are done with those of the second.
    assert Schedule(8, FREE).run([first, beside, behind, after]) == pytest.approx(2e4 + 10)
    spent = Schedule(8, FREE).run([first, Serial("aten.sort", 5.0), after])
    assert spent == pytest.approx(1e4 + 5 + 10)


def test_a_compiled_model_is_measured_and_told_in_tables() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)).eval()
    with torch.no_grad(), threads_set(1):
        found = measured(model, (torch.randn(256, 64),), Costs(), 3)
    works = [step for step in found.steps if isinstance(step, Work)]
    assert works and all(work.time > 0 and work.tasks > 0 for work in works)
    sorting = Serial("1 aten.sort", 500.0)
    made = Model([Work("0 matmul, mm", 8, 1e6, 10**6), sorting, sorting], 1e3, int)
    spent, lost = simulated(made, 1, FREE)
    assert spent == pytest.approx(made.alone) == 1e6 + 2e3
    assert not any(cause for each in lost for cause in each.causes.values())
    assert "| 64 | 0.127 ms | - | 7.9 | 12% | 86% |" in table(made, [1, 64], FREE, {})
    rows = worst(made, 64, FREE, 2).splitlines()
    assert rows[2] == "| matmul, mm | 1 | 8 | 8 | 125.0 us | 109.4 us | few tasks 100% |"
    assert rows[3].startswith("| aten.sort | 2 | 0 | 1 | 1.0 us |") and len(rows) == 4
