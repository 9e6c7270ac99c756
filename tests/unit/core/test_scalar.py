"""Numbers that a call computes from its sizes: as text, and as values."""

import math

import pytest

from kernelmill.core.dim import of_atom, sym
from kernelmill.core.errors import InputError, VerificationError
from kernelmill.core.expr import Sym
from kernelmill.core.scalar import (
    DEEPEST,
    Apply,
    bits_of,
    completed,
    evaluate_scalar,
    float_of,
    in_order,
    parse_scalar,
    roots,
    scalar_text,
)

SCOPE = {"s0": sym("s0"), "s1": sym("s1")}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("math.trunc(mul(float(s0), 0.75))", 9),
        ("pow(s0, -0.5)", 12**-0.5),
        ("either(gt(s0, 15), true, false)", False),
        ("round(truediv(s0, 3.5))", 3),
        ("xor(and(s0, 7), lshift(1, mod(s1, 4)))", 4 ^ 2),
        ("sum(s0, s1, neg(5))", 12),
        ("from_bits(bits(0.1))", 0.1),
        ("2*s0+s1 // 2", 26),
        ("-1e-300", -1e-300),
        ("inf", math.inf),
    ],
)
def test_a_text_is_read_evaluated_and_printed(text: str, value: float) -> None:
    scalar = parse_scalar(text, SCOPE)
    found = evaluate_scalar(scalar, {"s0": 12, "s1": 5})
    assert type(found) is type(value)
    assert found == value
    assert parse_scalar(scalar_text(scalar), SCOPE) == scalar


@pytest.mark.parametrize("value", [0.0, -0.0, 0.1, math.inf, 5e-324])
def test_a_float_goes_as_its_bits(value: float) -> None:
    assert math.copysign(1, float_of(bits_of(value))) == math.copysign(1, value)
    assert float_of(bits_of(value)) == value


def test_computed_symbols_follow_from_others() -> None:
    half = Sym("half", 0, None, Apply("floordiv", (SCOPE["s0"], 2)))
    more = Sym("more", 0, None, Apply("add", (of_atom(half), SCOPE["s1"])))
    symbols = in_order([more, half, Sym("s0"), Sym("s1")])
    assert [symbol.name for symbol in symbols] == ["s0", "s1", "half", "more"]
    assert completed(symbols, {"s0": 9, "s1": 1}) == {"s0": 9, "s1": 1, "half": 4, "more": 5}
    assert "more" not in completed(symbols, {"s0": 9})
    assert roots((of_atom(more),)) == {"s0", "s1"}


def test_the_roots_of_a_long_chain_are_found_at_once() -> None:
    last = of_atom(Sym("s0"))
    before = last
    for number in range(200):
        symbol = Sym(f"calc{number}", 0, None, Apply("add", (last, before)))
        last, before = of_atom(symbol), last
    assert roots((last,)) == {"s0"}


def test_a_number_that_no_register_holds_is_refused() -> None:
    symbols = (Sym("s0"), Sym("calc0", 0, None, Apply("pow", (2, SCOPE["s0"]))))
    assert completed(symbols, {"s0": 62})["calc0"] == 2**62
    with pytest.raises(InputError, match="no integer of 64 bits"):
        completed(symbols, {"s0": 63})


def test_a_text_nested_too_deep_is_refused() -> None:
    assert parse_scalar("neg(" * DEEPEST + "s0" + ")" * DEEPEST, SCOPE) is not None
    for depth in (DEEPEST + 1, 100_000):
        with pytest.raises(ValueError, match="functions of one another"):
            parse_scalar("neg(" * depth + "s0" + ")" * depth, SCOPE)


@pytest.mark.parametrize(
    "text", ["pow(10, 1000000000)", "lshift(1, 100000000000)", "round(7, neg(1000000000))"]
)
def test_an_integer_that_would_fill_the_memory_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="4096 bits"):
        evaluate_scalar(parse_scalar(text, SCOPE), {})


@pytest.mark.parametrize("text", ["add(1)", "and(0.5, 2)", "from_bits(pow(2, 100))"])
def test_a_function_of_what_it_does_not_take_is_refused(text: str) -> None:
    with pytest.raises(VerificationError):
        evaluate_scalar(parse_scalar(text, SCOPE), {})


@pytest.mark.parametrize("text", ["exec(1)", "operator.add(1, 2)", "s9", "add(1, 2", "pow(1, 2) 3"])
def test_other_texts_are_no_scalars(text: str) -> None:
    with pytest.raises(ValueError, match="line 1"):
        parse_scalar(text, SCOPE)


def test_computed_symbols_of_one_name_are_told_apart_where_dims_are_divided():
    for name in ("s0", "s1"):
        value = Apply("math.trunc", (Apply("mul", (sym(name), 0.75)),))
        symbol = of_atom(Sym("calc0", 0, None, value))
        assert roots((symbol // 1, symbol * 3 // 2, symbol % 4)) == {name}
