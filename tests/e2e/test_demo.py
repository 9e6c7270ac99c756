"""`make demo`: it runs, and says how fast it was on what."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from examples import demo
from examples.demo import Times
from kernelmill.core.target.machine import host
from tools.machine import processor


def test_it_prints_processor_times_and_rates(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    finish, turns = demo.finish_packing, demo.take_turns

    def told(*calls: Callable[[], Any], rounds: int) -> list[Times]:
        order.append("turns")
        return turns(*calls, rounds=rounds)

    monkeypatch.setattr(demo, "finish_packing", lambda: order.append("finish") or finish())
    monkeypatch.setattr(demo, "take_turns", told)
    demo.main(rounds=3)
    assert order == ["finish", "turns"]
    shown = capsys.readouterr().out
    assert f"{processor()}, {torch.get_num_threads()} threads, compiled for {host()}" in shown
    assert re.search(r"eager call, median +\d+\.\d ms, at least \d+\.\d\n", shown)
    assert re.search(r"compiled call, median +\d+\.\d ms, at least \d+\.\d\n", shown)
    assert re.search(r"of the measured peak +\d+% of \d+ GFLOP/s\n", shown)
    (ratio,) = re.findall(r"times as fast as eager +(\d+\.\d+)\n", shown)
    assert ("Slower than eager" in shown) == (float(ratio) < 1) or float(ratio) == 1
    assert "She repaired the old clock" in shown


def test_contestants_take_turns() -> None:
    called: list[str] = []
    first, second = demo.take_turns(
        lambda: called.append("a"), lambda: called.append("b"), rounds=3
    )
    assert "".join(called) == "ab" + "ab" * 3
    for times in (first, second):
        assert len(times.seconds) == 3
        assert times.busy >= 0
        assert times.least == min(times.seconds) <= times.median <= max(times.seconds)


def test_a_compiled_call_that_is_slower_comes_with_hints() -> None:
    slow, fast = Times((0.064, 0.079, 0.09), 0.01), Times((0.05, 0.064, 0.07), 0.02)
    hints = demo.what_to_look_at(fast, slow, ["aten.sort"])
    for word in ("load", "eager 20.0 ms, compiled 10.0", "threads", str(host()), "1 fell back"):
        assert word in hints
    assert demo.what_to_look_at(slow, fast, []) == ""


def test_the_rate_is_that_of_the_matrix_products() -> None:
    x, y = torch.ones(3, 5), torch.ones(5, 7)
    work = demo.operations(lambda: torch.tanh(x) @ y)
    assert work == 2 * 3 * 5 * 7
    rows = dict(demo.speed(Times((2.0,), 2.0), Times((0.5,), 0.5), work * 10**9, work * 8 * 10**9))
    assert rows["times as fast as eager"] == "4.00"
    assert rows["matrix products, compiled"] == f"{2 * work:.1f} GFLOP/s"
    assert rows["of the measured peak"] == f"25% of {8 * work} GFLOP/s"
