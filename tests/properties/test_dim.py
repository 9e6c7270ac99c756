"""Dims: whatever is simplified keeps its value, and whatever is proved holds."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from kernelmill.core.dim import (
    Dim,
    Sym,
    as_sym,
    bounds,
    evaluate,
    floordiv,
    linear_part,
    maximum,
    minimum,
    mod,
    parse,
    provably_less,
    provably_nonnegative,
    recombine,
    render,
    substitute,
    sym,
    symbols,
)

SIZES = {"s0": sym("s0", 1, 9), "s1": sym("s1", 1), "s2": sym("s2", 0, 5)}
SCOPE: dict[str, Dim] = {
    **SIZES,
    "i0": sym("i0", 0, 3),
    "i1": sym("i1", 0, SIZES["s0"] - 1),
    "i2": sym("i2", 0, SIZES["s0"] * SIZES["s1"] - 1),
    "n0": sym("n0", -4, 4),
}
"""Symbols as kernels have them: sizes, loops over sizes and products of them, a signed number."""

NAMES = st.sampled_from(sorted(SCOPE))
POSITIVE = st.one_of(
    st.integers(1, 12),
    st.sampled_from((SIZES["s0"], SIZES["s1"], SIZES["s0"] * SIZES["s1"], SIZES["s0"] + 1)),
)


@st.composite
def values(draw: st.DrawFn) -> dict[str, int]:
    """Values of all symbols inside their ranges."""
    chosen: dict[str, int] = {}
    for name, dim in SCOPE.items():
        symbol = as_sym(dim)
        assert symbol is not None
        high = symbol.lo + 12 if symbol.hi is None else evaluate(symbol.hi, chosen)
        chosen[name] = draw(st.integers(symbol.lo, high))
    return chosen


class Written:
    """A dim together with an independent way to its value."""

    def __init__(self, dim: Dim, value: Callable[[dict[str, int]], int]) -> None:
        self.dim, self.value = dim, value


def _leaf(dim: Dim) -> Written:
    return Written(dim, lambda at: dim if isinstance(dim, int) else at[str(dim)])


def _joined(kind: str, a: Written, b: Written) -> Written:
    build, compute = {
        "+": (lambda x, y: x + y, lambda x, y: x + y),
        "-": (lambda x, y: x - y, lambda x, y: x - y),
        "*": (lambda x, y: x * y, lambda x, y: x * y),
        "min": (minimum, min),
        "max": (maximum, max),
    }[kind]
    return Written(build(a.dim, b.dim), lambda at: compute(a.value(at), b.value(at)))


def _divided(kind: str, a: Written, b: Dim) -> Written:
    dim = floordiv(a.dim, b) if kind == "//" else mod(a.dim, b)
    if kind == "//":
        return Written(dim, lambda at: a.value(at) // evaluate(b, at))
    return Written(dim, lambda at: a.value(at) % evaluate(b, at))


LEAVES = st.one_of(
    st.integers(-20, 20).map(_leaf),
    NAMES.map(lambda name: _leaf(SCOPE[name])),
)
WRITTEN = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(_joined, st.sampled_from(("+", "-", "*", "min", "max")), inner, inner),
        st.builds(_divided, st.sampled_from(("//", "%")), inner, POSITIVE),
    ),
    max_leaves=10,
)


@given(WRITTEN, values())
def test_simplified_expressions_keep_their_value(written: Written, at: dict[str, int]) -> None:
    assert evaluate(written.dim, at) == written.value(at)


@given(WRITTEN, values())
def test_bounds_hold(written: Written, at: dict[str, int]) -> None:
    low, high = bounds(written.dim)
    value = written.value(at)
    assert low is None or low <= value
    assert high is None or value <= high


@given(WRITTEN, WRITTEN, values())
def test_what_is_proved_holds(a: Written, b: Written, at: dict[str, int]) -> None:
    if provably_nonnegative(a.dim):
        assert a.value(at) >= 0
    if provably_less(a.dim, b.dim):
        assert a.value(at) < b.value(at)


@given(WRITTEN)
def test_text_reads_back(written: Written) -> None:
    assert parse(str(written.dim), SCOPE) == written.dim
    assert str(parse(str(written.dim), SCOPE)) == str(written.dim)


@given(WRITTEN, st.permutations(sorted(SCOPE)), values())
def test_renamed_text_has_the_same_value(
    written: Written, order: list[str], at: dict[str, int]
) -> None:
    names = {name: f"z{number}" for number, name in enumerate(order)}
    text = render(written.dim, names)
    renamed = {names[name]: sym(names[name]) for name in SCOPE}
    again = parse(text, renamed)
    assert str(again) == text
    assert evaluate(again, {names[name]: value for name, value in at.items()}) == written.value(at)


@given(WRITTEN, WRITTEN, NAMES, values())
def test_substitution_agrees_with_evaluation(
    written: Written, other: Written, name: str, at: dict[str, int]
) -> None:
    whole = substitute(written.dim, dict(at))
    assert whole == written.value(at)
    # With a value inside the symbol's range only: what was simplified rests on it.
    fixed = substitute(written.dim, {name: at[name]})
    assert name not in symbols(fixed)
    assert evaluate(fixed, at) == written.value(at)


@given(WRITTEN, NAMES, values())
def test_the_linear_part_adds_up(written: Written, name: str, at: dict[str, int]) -> None:
    parts = linear_part(written.dim, name)
    if parts is not None:
        coefficient, rest = parts
        assert name not in symbols(coefficient) and name not in symbols(rest)
        value = evaluate(coefficient, at) * at[name] + evaluate(rest, at)
        assert value == written.value(at)


@given(WRITTEN, WRITTEN, POSITIVE, values())
def test_recombining_keeps_the_value(
    a: Written, b: Written, divisor: Dim, at: dict[str, int]
) -> None:
    split = b.dim + (a.dim // divisor) * divisor * 3 + (a.dim % divisor) * 3
    assert evaluate(recombine(split), at) == b.value(at) + 3 * a.value(at)


@settings(max_examples=50)
@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 30))
def test_a_proof_is_not_kept_for_another_range(high: int, other: int, divisor: int) -> None:
    for top in (high, other):
        index = sym("i", 0, top)
        assert evaluate(index // divisor, {"i": top}) == top // divisor
        assert evaluate(index % divisor, {"i": top}) == top % divisor


def test_symbols_with_symbolic_ranges_are_declared_above() -> None:
    # `values` relies on it.
    seen: set[str] = set()
    for name, dim in SCOPE.items():
        symbol = as_sym(dim)
        assert isinstance(symbol, Sym)
        assert set(symbols(symbol.hi or 0)) <= seen
        seen.add(name)
