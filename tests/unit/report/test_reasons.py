"""What a report says of a slow call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kernelmill.report.facts import (
    CallFacts,
    GraphCounts,
    MachineFacts,
    Memory,
    ProgramFacts,
    Step,
)
from kernelmill.report.sums import reasons_of
from kernelmill.report.text import bytes_text, call_lines, count_text, time_text

MACHINE = MachineFacts("a processor", "x86-64-v3", 2, False, 16.0)
CALL = CallFacts(5, 120_000.0, 100_000.0, 120_000.0, 100_000.0)
STEP = Step(0, "kernel", "K_1", "map_reduce", ("add",), "a.py:1", "", (), (), (), time=1e5)
PROGRAM = ProgramFacts(
    "graph", "x86-64-v3", (), {}, (), (STEP,), (), (), Memory(0, (), (), 0, 0), (), 1, 0, 0, calls=1
)


GRAPHS = GraphCounts(1, 0, 0)


def kinds(call: CallFacts = CALL, grown: int = 0, **changes: Any) -> list[str]:
    program = replace(PROGRAM, **changes)
    before = replace(program, repacks=program.repacks - grown)
    return [reason.kind for reason in reasons_of(call, [program], MACHINE, [before], GRAPHS)]


@pytest.mark.parametrize(
    ("graphs", "kind", "text"),
    [
        (GraphCounts(0, 0, 1), "not compiled", "all of the model runs in torch"),
        (GraphCounts(1, 1, 0), "not compiled", "all of the model runs in torch"),
        (GraphCounts(3, 1, 2), "not compiled", "Dynamo broke (2 times)"),
        (GraphCounts(1, 0, 0), "call overhead", "Dynamo's guards"),
    ],
)
def test_time_outside_of_programs_is_named_by_what_it_is(
    graphs: GraphCounts, kind: str, text: str
) -> None:
    call = replace(CALL, kernels=0.0, outside=120_000.0)
    (reason,) = reasons_of(call, [], None, [], graphs)
    assert reason.kind == kind and text in reason.text


def step(**changes: Any) -> tuple[Step, ...]:
    return (replace(STEP, **changes),)


@pytest.mark.parametrize(
    ("expected", "call", "changes"),
    [
        ([], {}, {}),
        (["fallbacks"], {"aten": 9e4}, {"steps": step(kind="aten", title="aten.qr.default")}),
        (["call overhead"], {"outside": 5e4}, {}),
        (["launches"], {"between": 5e4}, {}),
        (["launches"], {}, {"steps": step(time=4e3) * 9}),
        (["memory"], {}, {"steps": step(bound="bytes", limit=8e4)}),
        ([], {}, {"steps": step(bound="bytes", limit=3e4)}),
        (["threads"], {}, {"steps": step(threads=1)}),
        (["packing"], {}, {"grown": 2}),
        (["padding"], {}, {"padded": 0.5}),
    ],
)
def test_each_reason_is_found(
    expected: list[str], call: dict[str, float], changes: dict[str, Any]
) -> None:
    assert kinds(replace(CALL, **call), **changes) == expected


def test_the_longest_reason_comes_first_and_small_ones_are_left_out() -> None:
    call = replace(CALL, outside=2e4, between=6e4)
    assert kinds(call) == ["launches", "call overhead"]
    assert kinds(replace(CALL, outside=5e3)) == []


@pytest.mark.parametrize(
    ("compiled", "outcome", "line"),
    [
        (120_000.0, "slower", "1.20 times slower than eager: 120 us a call, eager 100 us"),
        (50_000.0, "faster", "2.00 times as fast as eager: 50 us a call, eager 100 us"),
        (98_000.0, "as fast", "as fast as eager: 98 us a call, eager 100 us"),
    ],
)
def test_a_call_beside_eager(compiled: float, outcome: str, line: str) -> None:
    call = CallFacts(5, compiled, 100_000.0)
    assert call.outcome == outcome
    assert call_lines(call) == [f"{line}; medians of 5 calls of each in turns"]


def test_what_was_not_measured_is_said() -> None:
    assert CallFacts().outcome == "not measured"
    assert call_lines(CallFacts(error="ValueError: no")) == ["not measured: ValueError: no"]
    assert call_lines(CallFacts()) == []


def test_numbers_have_units() -> None:
    assert [time_text(t) for t in (None, 12.0, 1500.0, 2e6, 3e9)] == [
        "-", "12 ns", "1.5 us", "2 ms", "3 s",
    ]  # fmt: skip
    assert [bytes_text(n) for n in (None, 3, 2048, 3 << 20)] == ["-", "3 B", "2 KiB", "3 MiB"]
    assert [count_text(n) for n in (None, 9, 2100, 5e9)] == ["-", "9", "2.1 k", "5 G"]


def test_the_shortest_calls_and_other_work_are_said() -> None:
    call = CallFacts(
        5, 50_000.0, 100_000.0, least_compiled=40_000.0, least_eager=70_000.0, other_work=0.25
    )
    times, meanwhile = call_lines(call)
    assert "50 us (least 40 us) a call, eager 100 us (least 70 us); medians of 5" in times
    assert meanwhile == "meanwhile other work took 25% of the processors' time"
