"""Plans as text: what is printed parses to an equal plan, and bad text is refused by line."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from kernelmill.plan.ir import AtenCall, Plan
from kernelmill.plan.text import parse_plan, print_plan
from tests.unit.plan.plans import everything


def test_every_construct_survives_print_and_parse(golden: Callable[[str, str], None]) -> None:
    plan = everything()
    text = print_plan(plan)
    again = parse_plan(text)
    assert again == plan
    assert print_plan(again) == text
    ranges = [(s.lo, s.hi) for s in plan.symbols]
    assert [(s.lo, s.hi) for s in again.symbols] == ranges
    golden("plan/everything.txt", text)


def test_the_empty_plan() -> None:
    plan = Plan("", (), (), (), (), (), (), ())
    assert parse_plan(print_plan(plan)) == plan


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("f32[s0, 4]", "f99[s0, 4]", "line 3: expected a dtype"),
        ("tasks(4)", "tasks(q)", "known symbol, not 'q'"),
        ("tasks(4)", "", "expected 'tasks'"),
        ("launch other(%3", "launch other(%x", "buffer's number"),
        ("return(", "leave(", "expected 'return'"),
        ('dtype "f32"', "whatever", "an argument, not 'whatever'"),
    ],
)
def test_bad_text_is_refused_with_its_line(old: str, new: str, message: str) -> None:
    text = print_plan(everything())
    assert old in text
    with pytest.raises(ValueError, match="line") as caught:
        parse_plan(text.replace(old, new, 1))
    assert message in str(caught.value)


def test_an_unknown_kind_of_argument_is_not_printed() -> None:
    step = AtenCall("aten.x.default", (("number", 3),), (), ())
    with pytest.raises(ValueError, match="number"):
        print_plan(replace(everything(), steps=(step,)))
