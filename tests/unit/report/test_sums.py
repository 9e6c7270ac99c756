"""Sums of a report's steps by kernel and by module, and the changes between two reports."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernelmill.core.errors import InputError
from kernelmill.report.facts import Memory, ProgramFacts, Step
from kernelmill.report.gather import _module
from kernelmill.report.sums import changes, kernel_sums, module_sums
from kernelmill.report.text import left_text

STEP = Step(0, "kernel", "MatMul_1", "matmul", ("matmul",), "", "", (), (), ())


def steps(*rows: tuple[str, str, float | None, float]) -> ProgramFacts:
    """A program with a step for each title, module, time and limit."""
    made = tuple(
        replace(STEP, number=n, title=title, module=module, time=time, limit=limit, bound="bytes")
        for n, (title, module, time, limit) in enumerate(rows)
    )
    memory = Memory(None, (), (), 0, 0)
    return ProgramFacts("p", "isa", (), {}, (), made, (), (), memory, (), 0, 0, 0)


def test_launches_of_a_kernel_are_one_row_and_the_longest_is_first() -> None:
    facts = steps(("a", "", 10, 9), ("b", "", 70, 7), ("a", "", 20, 19), ("c", "", None, 1))
    first, second = kernel_sums([facts])
    assert (first.title, first.launches, first.time, first.part) == ("b", 1, 70, 0.7)
    assert (second.title, second.launches, second.time) == ("a", 2, 30)
    assert second.share == pytest.approx(28 / 30)
    assert left_text(first) == "10% of limit by bytes"
    assert left_text(second) == "nothing left here: 93% of limit by bytes"


def test_a_module_has_the_time_of_its_children() -> None:
    facts = steps(
        ("a", "layers.0.up", 10, 1), ("a", "layers.10.up", 20, 1), ("a", "layers.9", 30, 1),
        ("b", "layers.9.up", 20, 1), ("b", "", 20, 1),
    )  # fmt: skip
    found = {each.path: (each.steps, each.time) for each in module_sums([facts])}
    assert list(found) == ["", "layers", "layers.0.up", "layers.9", "layers.9.up", "layers.10.up"]
    assert found["layers"] == (4, 80) and found["layers.9"] == (2, 50) and found[""] == (1, 20)


def test_small_modules_have_no_row() -> None:
    facts = steps(("a", "large", 1000, 1), ("a", "small", 1, 1))
    assert [each.path for each in module_sums([facts])] == ["large"]


@pytest.mark.parametrize(
    ("origin", "module"),
    [("model.py:7 in forward (Linear fc.0)", "fc.0"), ("Linear fc.0", "fc.0"),
     ("model.py:7 in forward", ""), ("", "")],
)  # fmt: skip
def test_the_module_is_part_of_the_origin(origin: str, module: str) -> None:
    assert _module(origin) == module


def report(call: float, *rows: tuple[str, float | None]) -> dict[str, object]:
    made = [
        {"operators": [name], "writes": [{"tensor": "f32[4]"}], "time": time} for name, time in rows
    ]
    return {"call": {"compiled": call}, "programs": [{"steps": made}]}


def test_changes_begin_with_the_call_and_the_largest() -> None:
    before = report(100, ("mul", 10), ("mul", 20), ("add", 5), ("sin", None))
    rows = changes(before, report(70, ("add", 6), ("mul", 4), ("cos", 2)))
    assert [(row.what, row.before, row.after, row.saved) for row in rows] == [
        ("a call", 100, 70, 30),
        ("mul -> f32[4]", 30, 4, 26),
        ("cos -> f32[4]", None, 2, -2),
        ("add -> f32[4]", 5, 6, -1),
    ]


@pytest.mark.parametrize("other", [{}, [], 3, {"call": {"compiled": 1}}, {"call": 1}])
def test_what_is_no_report_is_refused(other: object) -> None:
    with pytest.raises(InputError, match="no report of explain"):
        changes(other, report(1))  # type: ignore[reportArgumentType]
