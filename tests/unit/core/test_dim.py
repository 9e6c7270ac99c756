from __future__ import annotations

import pytest

from kernelmill.core.dim import (
    Sym,
    as_sym,
    bounds,
    ceildiv,
    evaluate,
    floordiv,
    linear_part,
    maximum,
    minimum,
    parse,
    product,
    provably_less,
    provably_nonnegative,
    range_text,
    read_symbol,
    recombine,
    substitute,
    sym,
    symbols,
)
from kernelmill.core.text import Reader

K, J = sym("i", 0, 15), sym("j", 0, 3)
S = sym("s0", 1)


def test_a_constant_result_is_a_plain_integer() -> None:
    assert K - K == 0
    assert isinstance(K * 0 + 7, int)
    assert (K + 1) - K == 1


def test_what_is_divided_by_nothing_is_divided_by_one() -> None:
    assert evaluate(K // J, {"i": 9, "j": 0}) == 9
    assert evaluate(K % J, {"i": 9, "j": 0}) == 0


def test_equal_expressions_are_equal_whatever_order_built_them() -> None:
    assert K * 4 + J == J + 4 * K
    assert (K + J) * (K - J) == K * K - J * J
    assert hash(K * 4 + J) == hash(J + 4 * K)


@pytest.mark.parametrize(
    ("dim", "text"),
    [
        (K * 64 + J + 1, "i*64+j+1"),
        (-K, "-i"),
        (3 - K * S, "-i*s0+3"),
        (K // 5, "(i//5)"),
        ((K + J) % S, "((i+j) % s0)"),
        (floordiv(K % 7, 5), "((i % 7)//5)"),
        (minimum(K, S), "min(i, s0)"),
        (maximum(K - J, S) * 2, "max(i-j, s0)*2"),
    ],
)
def test_text(dim: object, text: str) -> None:
    assert str(dim) == text
    assert parse(text, {"i": K, "j": J, "s0": S}) == dim


@pytest.mark.parametrize(
    ("dim", "expected"),
    [
        ((K * 4 + J) // 4, K),
        ((K * 4 + J) % 4, J),
        ((K * 8 + J) // 4, K * 2),
        ((K * 8 + J * 2 + 1) % 16, (K % 2) * 8 + J * 2 + 1),
        (K // 16, 0),
        (K % 16, K),
        ((K * S) // S, K),
        ((K * S) % S, 0),
        ((K * (S + 1) + S) // (S + 1), K),
        ((S - 1) // S, 0),
        ((K * S - 1) % S, S - 1),
        ((K // 2) // 3, K // 6),
        (ceildiv(S * 4 + 1, 4), S + 1),
        (minimum(J, 3), J),
        (maximum(J, 0), J),
    ],
)
def test_simplification(dim: object, expected: object) -> None:
    assert dim == expected


def test_an_index_into_a_symbolic_size_cancels() -> None:
    i = sym("i", 0, S - 1)
    k = sym("k")
    assert (k * S + i) // S == k
    assert (k * S + i) % S == i


def test_ranges_of_the_same_name_do_not_mix() -> None:
    narrow, wide = sym("k", 0, 3), sym("k", 0, 99)
    assert narrow // 4 == 0
    assert str(wide // 4) == "(k//4)"
    assert narrow % 4 == narrow
    assert evaluate(wide % 4, {"k": 7}) == 3


def test_bounds() -> None:
    assert bounds(K * 4 - J) == (-3, 60)
    assert bounds(S * 2) == (2, None)
    assert bounds(-S) == (None, -1)
    assert bounds(sym("n", -4, 4) * sym("m", -2, 3)) == (-12, 12)
    assert bounds((S * 8) % 5) == (0, 4)
    assert bounds(minimum(S, 9)) == (1, 9)


def test_proofs_use_symbolic_upper_bounds() -> None:
    i = sym("i", 0, S - 1)
    assert provably_less(i, S)
    assert provably_less(i * 64 + 63, S * 64)
    assert not provably_less(i, S - 1)
    assert not provably_nonnegative(K - J)


def test_symbols_substitution_and_evaluation() -> None:
    dim = (K * 3 + S) // 5 + minimum(J, S)
    assert set(symbols(dim)) == {"i", "j", "s0"}
    assert substitute(dim, {"i": 4, "s0": 2}) == 2 + minimum(J, 2)
    assert evaluate(dim, {"i": 4, "s0": 2, "j": 3}) == 4
    with pytest.raises(KeyError, match="j"):
        evaluate(dim, {"i": 4, "s0": 2})


def test_as_sym_takes_nothing_but_one_symbol() -> None:
    assert as_sym(K) == Sym("i")
    assert as_sym(K * 2) is None
    assert as_sym(K + 1) is None
    assert as_sym(K * J) is None
    assert as_sym(4) is None


def test_linear_part() -> None:
    assert linear_part(K * S * 4 + J, "i") == (S * 4, J)
    assert linear_part(K * K, "i") is None
    assert linear_part(K // 3, "i") is None
    assert linear_part(J, "i") == (0, J)


def test_recombine() -> None:
    assert recombine((K // 3) * 6 + (K % 3) * 2) == K * 2
    assert recombine((K // 3) * 6 + (K % 3)) == (K // 3) * 6 + (K % 3)


def test_product() -> None:
    assert product(()) == 1
    assert product((2, S, 3)) == S * 6


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("i + ", "line 1: expected a dim, found the end"),
        ("i + q", "line 1: expected a known symbol, not 'q'"),
        ("(i", "line 1: expected '\\)', found the end"),
        ("i j", "line 1: expected the end, found 'j'"),
        ("min(i)", "line 1: expected ',', found '\\)'"),
        ("i +\n\n ^", "line 3: unexpected character '\\^'"),
    ],
)
def test_texts_that_are_no_dims(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(text, {"i": K, "j": J})


def test_parsing_simplifies_nothing() -> None:
    assert str(parse("(i*4)//4", {"i": K})) == "((i*4)//4)"
    assert parse("7 // 2", {}) == 3


@pytest.mark.parametrize("text", ["s0", "s0 in [1, inf]", "s0 in [-3, 9]", "i in [0, s1-1]"])
def test_ranges_read_back(text: str) -> None:
    symbol = read_symbol(Reader(text), {"s1": sym("s1")})
    assert symbol.name + range_text(symbol, {}) == text
