"""What the sizes of the traced call decide, and what torch is asked to guard for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import sympy
from torch import fx
from torch._dynamo.source import ConstantSource
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils._sympy import functions as sf
from torch.utils._sympy.value_ranges import ValueRanges

from kernelmill.core.dim import evaluate, floordiv, sym
from kernelmill.core.dtype import F32
from kernelmill.core.errors import UnsupportedError
from kernelmill.frontend.aten.contractions import matmul
from kernelmill.frontend.emitter import Emitter
from kernelmill.frontend.size_guards import SizeGuards
from kernelmill.frontend.symbols import SymbolTable
from kernelmill.graph.builder import GraphBuilder

S, T, U = sympy.symbols("s t u", integer=True)


class Env:
    """A ShapeEnv of a call with s = 12 and t = 3, that notes what it is asked to guard; u is a
    size that depends on data."""

    def __init__(self, frozen: bool = False, t: int = 3) -> None:
        self.frozen = frozen
        self.backed_var_to_val = {S: sympy.Integer(12), T: sympy.Integer(t)}
        self.var_to_range = {S: ValueRanges(2, 100), T: ValueRanges(-9, 9), U: ValueRanges(-9, 9)}
        self.guards: Sequence[Any] = ()
        self.asked: list[Any] = []

    def evaluate_expr(self, condition: Any) -> bool:
        self.asked.append(condition)
        return bool(condition.xreplace(self.backed_var_to_val))


def table(env: Env) -> SymbolTable:
    made = SymbolTable()
    made.guards.follow(env)
    return made


def test_a_divisor_that_was_positive_is_taken_for_it_and_guarded() -> None:
    env, divided = Env(), sf.FloorDiv(S, T - 1)
    symbols = table(env)
    dim = symbols.of_expr(divided, env)
    assert [evaluate(dim, {"s": 12, "t": t}) for t in (2, 3, 5)] == [12, 6, 3]
    ((left, right),) = symbols.assumed()
    assert evaluate(left, {"t": 3}) == evaluate(right, {"t": 3})
    assert evaluate(left, {"t": -3}) != evaluate(right, {"t": -3})
    assert env.asked == []
    symbols.guards.install()
    assert env.asked == [T - 1 >= 1]


@pytest.mark.parametrize(("expr", "t"), [(sf.FloorDiv(S, T), -3), (sf.Mod(S, U), 3)])
def test_a_divisor_that_was_not_is_refused(expr: Any, t: int) -> None:
    env = Env(t=t)
    with pytest.raises(UnsupportedError, match="may be negative"):
        table(env).of_expr(expr, env)


def test_equal_sizes_of_the_traced_call_are_equal_and_guarded() -> None:
    env = Env()
    symbols = table(env)
    s, t = (symbols.of_expr(each, env) for each in (S, T))
    assert symbols.equal(s, 4 * t)
    assert not symbols.equal(s, 5 * t)
    assert not symbols.equal(t - 2, s - 11), "both are 1, and one may be repeated"
    assert not symbols.equal(s, symbols.of_expr(U, env))
    assert symbols.assumed() == [(s, 4 * t)]
    symbols.guards.install()
    assert env.asked == [sympy.Eq(S, 4 * T)]


def test_an_index_below_a_size_in_the_traced_call_is_below_it() -> None:
    symbols = table(Env())
    s, t = sym("s", 2, 100), sym("t", -9, 9)
    assert symbols.less(t, 10) and symbols.assumed() == []
    assert symbols.less(t, s) and len(symbols.assumed()) == 1
    assert not symbols.less(s, t)


def test_nobody_guards_an_exported_program() -> None:
    env = Env(frozen=True)
    symbols = table(env)
    assert symbols.positive(symbols.of_expr(T, env))
    symbols.guards.install()
    assert env.asked == []
    assert len(symbols.assumed()) == 1


def test_a_number_that_sizes_are_divided_by_is_positive_from_then_on() -> None:
    env = ShapeEnv()
    n: Any = env.create_unspecified_symbol(4, ConstantSource("n"), DimDynamic.DYNAMIC)
    size = env.create_symintnode(sf.FloorDiv(96, n), hint=24)
    graph = fx.Graph()
    graph.placeholder("size").meta["val"] = size
    assert env.var_to_range[n].lower < 0
    guards = SizeGuards()
    guards.follow(env)
    guards.divisors(graph.nodes)
    assert env.var_to_range[n].lower == 1
    assert [str(guard.expr) for guard in env.guards] == [f"{n} >= 1"]


def test_sizes_that_a_product_needs_equal_are_written_alike() -> None:
    builder = GraphBuilder("product")
    s = sym("s", 2)
    size = floordiv(s, 3) * 3
    a, b = builder.input("a", F32, (2, 4, size)), builder.input("b", F32, (2, s, 5))
    product = matmul(Emitter(builder, SymbolTable()), a, b)
    assert product.shape == (2, 4, 5)
    assert builder.graph.equations == [(s, size)]
