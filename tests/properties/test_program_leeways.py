"""What eager makes of overflow and NaN by where an element lies is taken either way by the check of
random programs, and nothing else is."""

import math

import torch
from torch.nn import functional as F

from tests.programs.check import check
from tests.programs.program import Program, Ref, Step
from tests.properties.test_programs import changed_gradient, spoiled, with_gradient


def test_eager_itself_gives_nan_a_gradient_in_few_elements_and_none_in_many() -> None:
    found: set[float] = set()
    for count in (1, 64):
        x = torch.full((count,), math.nan, requires_grad=True)
        F.hardtanh(x).sum().backward()
        assert x.grad is not None
        found |= {float(x.grad[0])}
    assert found == {0.0, 1.0}


def test_the_gradient_of_a_clipped_nan_is_open_and_others_are_not() -> None:
    def status(number: float, changed: float) -> str:
        steps = (
            Step(("v0",), "torch.log", (Ref("a0"),), rounds=True),
            Step(("v1",), "F.hardtanh", (Ref("v0"),), rounds=True),
        )
        wanted = with_gradient({"a0": ((number,), (number,))}, *steps)
        return check(wanted, changed_gradient(lambda g: torch.full_like(g, changed))).status

    assert status(-1.0, 0.0) == status(-1.0, -4.0) == "right"
    assert status(1.2, 0.0) == status(9.0, -4.0) == "wrong"


def test_an_added_product_that_overflows_in_some_order_may_and_others_may_not() -> None:
    def status(numbers: tuple[float, ...], found: float) -> str:
        inputs = (
            Step(("a1",), "torch.tensor", (((1.0,), (-1.0,), (1.0,)),)),
            Step(("a2",), "torch.tensor", ((1.0,),)),
        )
        added = Step(
            ("v0",), "torch.addmm", (Ref("a2"), Ref("a0"), Ref("a1")),
            (("beta", 0.5), ("alpha", -2)), rounds=True,
        )  # fmt: skip
        fixed = Step(("a0",), "torch.tensor", ((numbers,),))
        wanted = Program((fixed, *inputs), ("a0", "a1", "a2"), (), (), (added,), ("v0",), (3, 5))
        return check(wanted, spoiled(lambda t: torch.full_like(t, found))).status

    assert status((3e38, 3e38, 1.0), math.inf) == status((3e38, 3e38, 1.0), -math.inf) == "right"
    assert status((1.0, 2.0, 3.0), math.inf) == status((1.0, 2.0, 3.0), math.nan) == "wrong"


def _attention(query: float, keys: int) -> torch.Tensor:
    """The first row, whose scores are all `query` times 0."""
    rows, zeros = torch.full((1, 1, 1, 8), query), torch.zeros(1, 1, keys, 8)
    return F.scaled_dot_product_attention(rows, zeros, torch.ones(1, 1, keys, 8))[0, 0, 0]


def test_eager_itself_takes_scores_of_nan_for_masked_here_and_not_there() -> None:
    found = [_attention(math.inf, keys) for keys in range(1, 40)]
    assert any(row.isnan().all() for row in found)
    assert any((row == 0).all() for row in found)


def test_rows_of_attention_with_a_score_of_nan_are_open_and_others_are_not() -> None:
    def status(query: float, changed: float) -> str:
        inputs = tuple(
            Step((name,), "torch.full", ((1, 2, rows, 8), number))
            for name, rows, number in (("a0", 1, query), ("a1", 3, 0.0), ("a2", 3, 1.0))
        )
        step = Step(
            ("v0",), "F.scaled_dot_product_attention", (Ref("a0"), Ref("a1"), Ref("a2")),
            rounds=True,
        )  # fmt: skip
        names = ("a0", "a1", "a2")
        wanted = Program(inputs, names, (), (), (step,), ("v0",), (3, 5))
        return check(wanted, spoiled(lambda t: torch.full_like(t, changed))).status

    assert status(math.inf, math.nan) == status(math.inf, 0.0) == "right"
    assert status(1.0, math.nan) == status(1.0, 0.0) == "wrong"
