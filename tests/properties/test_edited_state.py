"""Cached methods of random models give what eager gives, whatever is edited between their calls.

`python -m tools.state` (`make sweep`) runs many more.
"""

from __future__ import annotations

import pytest

from tests.kept_methods import KEPT
from tests.state.check import check
from tests.state.model import Part, Program, Step, generate, model_text, steps_text

pytestmark = KEPT
SEEDS = range(24)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_model_is_as_in_eager(seed: int) -> None:
    program = generate(seed)
    verdict = check(program)
    text = f"{model_text(program, 'H')}\n{steps_text(program)}\n{program.steps}"
    assert verdict.status in ("right", "torch"), f"{verdict.detail}\n{text}"
    assert verdict.status == "torch" or verdict.counts["calls"] >= len(program.steps)


def test_most_methods_are_kept() -> None:
    found = [check(generate(seed)).counts for seed in SEEDS[:6]]
    assert sum(counts["traced"] for counts in found) > 6
    assert sum(counts["loaded"] for counts in found) > 6


@pytest.mark.parametrize(("edit", "status"), [("M.A.k = 3", "right"), ("M.Kind.k = 3", "torch")])
def test_whose_fault_it_is(edit: str, status: str) -> None:
    """Dynamo does not guard what a class has of its metaclass."""
    setup = "class Kind(type):\n    k = 1\nclass A(metaclass=Kind):\n"
    setup += "    k = 2\n" if status == "right" else "    pass\n"
    part = Part(0, "state", "here", setup, "", "out = out * A.k")
    assert check(Program(0, (part,), (Step(), Step((edit,))), dynamic=False)).status == status
