"""Equations between dims: whatever is rewritten by them keeps its value where they hold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kernelmill.core.dim import Dim, Equations, Expr, evaluate, floordiv, maximum, minimum, mod, sym

SIZES = {name: sym(name, low) for name, low in (("s0", 2), ("s1", 2), ("s2", 0))}
POSITIVE = st.one_of(st.integers(1, 9), st.sampled_from((SIZES["s0"], SIZES["s1"])))
VALUES = st.fixed_dictionaries({name: st.integers(2, 40) for name in SIZES})


def _joined(kind: int, a: Dim, b: Dim) -> Dim:
    return (a + b, a - b, a * b, maximum(a, b), minimum(a, b))[kind]


def _divided(quotient: bool, a: Dim, b: Dim) -> Dim:
    return floordiv(a, b) if quotient else mod(a, b)


def _written(leaves: st.SearchStrategy[Dim]) -> st.SearchStrategy[Dim]:
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(_joined, st.integers(0, 4), inner, inner),
            st.builds(_divided, st.booleans(), inner, POSITIVE),
        ),
        max_leaves=6,
    )


LEAVES = st.one_of(st.integers(-9, 9), st.sampled_from(tuple(SIZES.values())))
WRITTEN = _written(LEAVES)


@given(st.lists(st.tuples(WRITTEN, WRITTEN), min_size=1, max_size=4), VALUES, st.data())
def test_rewritten_dims_keep_their_value(
    pairs: list[tuple[Dim, Dim]], at: dict[str, int], data: st.DataObject
) -> None:
    true = [(a, b + (evaluate(a, at) - evaluate(b, at))) for a, b in pairs]
    true += [(a, floordiv(a, 3) * 3) for a, _ in pairs if evaluate(a, at) % 3 == 0]
    equations = Equations(true)
    parts = st.sampled_from([side for pair in true for side in pair])
    dim = data.draw(_written(st.one_of(LEAVES, parts)))
    assert evaluate(equations.reduce(dim), at) == evaluate(dim, at)
    other = data.draw(st.sampled_from([dim, *[side for pair in true for side in pair]]))
    if equations.equal(dim, other):
        assert evaluate(dim, at) == evaluate(other, at)
    assert set(equations.used) <= set(true)


@given(WRITTEN, WRITTEN, VALUES)
def test_both_sides_become_one(a: Dim, b: Dim, at: dict[str, int]) -> None:
    equations = Equations()
    b = b + (evaluate(a, at) - evaluate(b, at))
    equations.add(a, b)
    if isinstance(a - b, Expr) and equations.reduce(a - b) != a - b:
        assert equations.used
        assert equations.reduce(a) == equations.reduce(b)
