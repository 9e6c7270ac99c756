"""What was told to traced code about sizes, as conditions and least sizes."""

from __future__ import annotations

from typing import Any

import pytest
import sympy
from torch._dynamo.source import ConstantSource
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils._sympy.value_ranges import ValueRanges

from kernelmill.frontend.conditions import conditions_asked
from kernelmill.frontend.symbols import SymbolTable

ENV = ShapeEnv()


def symbol(name: str, low: int) -> Any:
    made: Any = ENV.create_symbol(7, ConstantSource(name), dynamic_dim=DimDynamic.DYNAMIC)
    ENV.var_to_range[made] = ValueRanges(low, 100)
    return made


N, M, MORE, HIDDEN = symbol("n", 0), symbol("m", 0), symbol("more", 2), symbol("hidden", 0)
KNOWN = frozenset(map(str, (N, M, MORE)))

DIMS = SymbolTable().as_written(N + M, ENV)

LEAST = [("<", 0, N), ("!=", N, 0), ("!=", 0, N), ("<=", 1, N), ("<", N, 3 * N), ("!=", 4 * N, 0)]
NOTHING: list[Any] = [
    ("<=", 0, N), ("<", -1, N), ("==", N, N), ("<", 0, N + 1), ("<", 1, MORE), ("!=", MORE, 1),
    ("<", 0, HIDDEN), ("!=", N, N + 1),
]  # fmt: skip
CONDITIONS: list[Any] = [
    (("<", 0, N + M), ("<", "0", str(DIMS))),
    (("<=", 1, N + M), ("<", "0", str(DIMS))),
    (("<=", 3, N), ("<", "2", str(N))),
    (("!=", N, M), ("!=", str(N), str(M))),
]


def asked(question: Any) -> Any:
    return conditions_asked([question], ENV, KNOWN)


@pytest.mark.parametrize("question", LEAST, ids=str)
def test_what_has_to_be_positive(question: Any) -> None:
    assert asked(question) == ((), {str(N)})


@pytest.mark.parametrize("question", NOTHING, ids=str)
def test_what_ranges_say_is_not_asked(question: Any) -> None:
    assert asked(question) == ((), frozenset())


@pytest.mark.parametrize(("question", "condition"), CONDITIONS, ids=str)
def test_the_rest_is_asked_of_calls(question: Any, condition: Any) -> None:
    conditions, positive = asked(question)
    assert [{relation, *sides} for relation, *sides in conditions] == [set(condition)]
    assert not positive


def test_sizes_that_were_found_to_be_others_are_asked_of_these() -> None:
    env = ShapeEnv()
    first, second = made = [
        env.create_symbol(7, ConstantSource(name), dynamic_dim=DimDynamic.DYNAMIC)
        for name in ("first", "second")
    ]
    ranges: Any = env.var_to_range
    ranges.update(dict.fromkeys(made, ValueRanges(0, 100)))
    env.evaluate_expr(sympy.Eq(first, second))
    (kept,) = {first, second} - set(env.replacements)
    (other,) = env.replacements
    found = conditions_asked([("<", 0, other)], env, frozenset({str(kept)}))
    assert found == ((), {str(kept)})
