"""Lists read by lines give what the parser gives, however the text is laid out."""

from dataclasses import replace

import pytest

from kernelmill.plan.ir import Launch, Plan
from kernelmill.plan.text import Lines, parse_plan, print_plan
from tests.unit.plan.plans import everything


def launches_only() -> Plan:
    plan = everything()
    steps = tuple(step for step in plan.steps if isinstance(step, Launch))
    return replace(plan, steps=steps, supers=())


def test_the_long_lists_are_taken_out() -> None:
    plan = launches_only()
    text = print_plan(plan)
    rest = Lines(text).rest
    assert len(plan.buffers) > 1 and plan.steps and plan.prepare
    assert "buffer" not in rest and "launch" not in rest
    assert parse_plan(text) == plan


@pytest.mark.parametrize("number", range(3, 12))
def test_other_layouts_mean_the_same(number: int) -> None:
    for plan in (everything(), launches_only()):
        lines = print_plan(plan).split("\n")
        spread = "\n".join([*lines[:number], "", *lines[number:]])
        wide = "\n".join([*lines[:number], f" {lines[number]}", *lines[number + 1 :]])
        assert parse_plan(spread) == parse_plan(wide) == plan


def test_steps_between_operators_stay_in_order() -> None:
    plan = everything()
    launch = next(step for step in plan.steps if isinstance(step, Launch))
    longer = replace(plan, steps=(*plan.steps, launch, launch), supers=())
    assert parse_plan(print_plan(longer)) == longer
