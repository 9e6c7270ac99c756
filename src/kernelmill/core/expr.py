"""Symbolic integers: polynomials over symbols, `//`, `%`, `min` and `max`, with ranges.

An `Expr` is a polynomial with integer coefficients over atoms, in one canonical order, so that
equal expressions have equal texts and are `==`. Division and modulo are Python's (floor). A `Sym`
carries its range; `//` and `%` use ranges to cancel terms where that is provably right, which turns
reshapes and permutes into plain strides.

Other code imports from `core.dim`, which adds queries, substitution and text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import gcd
from typing import Union

from kernelmill.core.dataclass import dataclass

Monomial = tuple["Atom", ...]


class Atom(str):
    """A factor of a monomial: a symbol, or an operation that is not a polynomial. It is its own
    text, as strings are compared, ordered and hashed fast, by the thousand in each compile."""

    __slots__ = ()


class Sym(Atom):
    """A named integer with an inclusive range; `hi` may be symbolic, or None for no upper bound.

    `value` is its formula in other symbols (scalar.py); None where a call gives it. Two symbols are
    the same when their names are: within a graph or kernel names are unique.
    """

    __slots__ = ("hi", "lo", "name", "value")

    name: str
    lo: int
    hi: Dim | None
    value: Scalar | None

    def __new__(
        cls, name: str, lo: int = 0, hi: Dim | None = None, value: Scalar | None = None
    ) -> Sym:
        made = super().__new__(cls, name)
        made.name = name
        made.lo = lo
        made.hi = hi
        made.value = value
        return made


class Op(Atom):
    """`a // b`, `a % b`, `min(a, b)` or `max(a, b)` that did not simplify."""

    __slots__ = ("a", "b", "kind")

    kind: str
    a: Dim
    b: Dim

    def __new__(cls, kind: str, a: Dim, b: Dim) -> Op:
        made = super().__new__(cls, _render_op(kind, a, b, {}))
        made.kind, made.a, made.b = kind, a, b
        return made


class Expr:
    """A polynomial over atoms. Build with `sym()` and operators; a constant is a plain int."""

    __slots__ = ("_bounds", "_hash", "_ranges", "_symbols", "_text", "terms")

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self.terms = terms
        self._hash = hash(terms)
        self._text: str | None = None
        self._bounds: tuple[int | None, int | None] | None = None
        self._ranges: frozenset[_Range] | None = None
        self._symbols: dict[str, Sym] | None = None

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Expr) and self._hash == other._hash and self.terms == other.terms
        )

    def __hash__(self) -> int:
        return self._hash

    def __add__(self, other: Dim) -> Dim:
        return _combine(self, other, 1)

    __radd__ = __add__

    def __sub__(self, other: Dim) -> Dim:
        return _combine(self, other, -1)

    def __rsub__(self, other: Dim) -> Dim:
        return -self + other

    def __neg__(self) -> Dim:
        return _scale(self, -1)

    def __mul__(self, other: Dim) -> Dim:
        return _multiply(self, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return floordiv(self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return floordiv(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return mod(self, other)

    def __rmod__(self, other: Dim) -> Dim:
        return mod(other, self)

    def __str__(self) -> str:
        if self._text is None:
            self._text = render(self, {})
        return self._text

    def __repr__(self) -> str:
        return f"Expr({self})"


Dim = Union[int, Expr]


@dataclass(frozen=True)
class Apply:
    """A function applied to other scalars."""

    function: str
    arguments: tuple[Scalar, ...]


Scalar = Union[bool, int, float, Expr, Apply]
"""A number that a call computes from its sizes; its functions are in core/scalar.py."""
_Range = tuple[str, int, Union[Dim, None], int]


def sym(name: str, lo: int = 0, hi: Dim | None = None) -> Expr:
    """Return the expression of the symbol `name` alone, with inclusive range [lo, hi]."""
    return of_atom(Sym(name, lo, hi))


def of_atom(atom: Atom) -> Expr:
    return Expr((((atom,), 1),))


def as_sym(dim: Dim) -> Sym | None:
    """Return the symbol if `dim` is exactly one."""
    if isinstance(dim, Expr) and len(dim.terms) == 1:
        monomial, coefficient = dim.terms[0]
        if coefficient == 1 and len(monomial) == 1 and isinstance(monomial[0], Sym):
            return monomial[0]
    return None


def terms_of(dim: Dim) -> tuple[tuple[Monomial, int], ...]:
    if isinstance(dim, Expr):
        return dim.terms
    return (((), dim),) if dim else ()


def _monomial_key(item: tuple[Monomial, int]) -> tuple[int, Monomial]:
    # Constants last, then by length and name: "i*64+j+1".
    monomial = item[0]
    return -len(monomial), monomial


def build(terms: dict[Monomial, int]) -> Dim:
    kept = [item for item in terms.items() if item[1]]
    if len(kept) > 1:
        kept.sort(key=_monomial_key)
    elif not kept:
        return 0
    elif not kept[0][0]:
        return kept[0][1]
    return Expr(tuple(kept))


def _combine(a: Expr, b: Dim, sign: int) -> Dim:
    if isinstance(b, int):
        return _plus_constant(a, sign * b) if b else a
    terms = dict(a.terms)
    for monomial, c in b.terms:
        terms[monomial] = terms.get(monomial, 0) + sign * c
    return build(terms)


def _plus_constant(a: Expr, constant: int) -> Dim:
    monomial, c = a.terms[-1]
    if monomial:
        return Expr((*a.terms, ((), constant)))
    if c + constant:
        return Expr((*a.terms[:-1], ((), c + constant)))
    return Expr(a.terms[:-1])


def _scale(a: Expr, factor: int) -> Dim:
    return Expr(tuple([(monomial, c * factor) for monomial, c in a.terms])) if factor else 0


def _multiply(a: Expr, b: Dim) -> Dim:
    if isinstance(b, int):
        return a if b == 1 else _scale(a, b)
    terms: dict[Monomial, int] = {}
    for left, c in a.terms:
        for right, d in b.terms:
            monomial = tuple(sorted(left + right))
            terms[monomial] = terms.get(monomial, 0) + c * d
    return build(terms)


def product(dims: Iterable[Dim]) -> Dim:
    """Return the product of all dims; 1 for none."""
    result: Dim = 1
    for dim in dims:
        result = result * dim
    return result


def symbols(dim: Dim) -> Mapping[str, Sym]:
    """Return every symbol in `dim` by name, those inside divisions too."""
    if not isinstance(dim, Expr):
        return {}
    if dim._symbols is None:
        dim._symbols = {}
        for monomial, _ in dim.terms:
            for atom in monomial:
                dim._symbols.update(symbols_of(atom))
    return dim._symbols


def symbols_of(atom: Atom) -> Mapping[str, Sym]:
    """Return every symbol in one factor by name."""
    if isinstance(atom, Sym):
        return {atom.name: atom}
    assert isinstance(atom, Op)
    return {**symbols(atom.a), **symbols(atom.b)}


# ---- text -----------------------------------------------------------------------------------


def render(dim: Dim, names: Mapping[str, str]) -> str:
    """Return the text of `dim` with symbols renamed by `names`, where it has them.

    Terms are put in the order of the new names, so the text does not depend on the old ones.
    """
    if isinstance(dim, int):
        return str(dim)
    terms: Iterable[tuple[Sequence[str], int]] = dim.terms
    if names:
        renamed = [(sorted([_render_atom(atom, names) for atom in m]), c) for m, c in dim.terms]
        if len(renamed) > 1:
            renamed.sort(key=lambda row: (-len(row[0]), row[0]))
        terms = renamed
    text = ""
    for factors, c in terms:
        if c < 0:
            text += "-"
        elif text:
            text += "+"
        text += "*".join(factors)
        if not factors:
            text += str(abs(c))
        elif abs(c) != 1:
            text += f"*{abs(c)}"
    return text


def _render_atom(atom: Atom, names: Mapping[str, str]) -> str:
    if isinstance(atom, Op):
        return _render_op(atom.kind, atom.a, atom.b, names)
    return names.get(atom, atom)


def _render_op(kind: str, a: Dim, b: Dim, names: Mapping[str, str]) -> str:
    if kind in ("min", "max"):
        return f"{kind}({render(a, names)}, {render(b, names)})"
    return f"({_wrap(a, names)}{'//' if kind == 'div' else ' % '}{_wrap(b, names)})"


def _wrap(dim: Dim, names: Mapping[str, str]) -> str:
    text = render(dim, names)
    if isinstance(dim, int):
        return text if dim >= 0 else f"({text})"
    monomial, c = dim.terms[0]
    return text if len(dim.terms) == 1 and c == 1 and len(monomial) == 1 else f"({text})"


# ---- bounds ---------------------------------------------------------------------------------


def bounds(dim: Dim) -> tuple[int | None, int | None]:
    """Return inclusive bounds that hold for every value of the symbols; None where unknown."""
    if isinstance(dim, int):
        return dim, dim
    if dim._bounds is None:
        dim._bounds = _expr_bounds(dim)
    return dim._bounds


def _expr_bounds(expr: Expr) -> tuple[int | None, int | None]:
    low: int | None = 0
    high: int | None = 0
    for monomial, c in expr.terms:
        mono_low, mono_high = _monomial_bounds(monomial)
        if c < 0:
            mono_low, mono_high = mono_high, mono_low
        low = None if low is None or mono_low is None else low + c * mono_low
        high = None if high is None or mono_high is None else high + c * mono_high
    return low, high


def _monomial_bounds(monomial: Monomial) -> tuple[int | None, int | None]:
    low = 1
    high: int | None = 1
    for atom in monomial:
        atom_low, atom_high = _atom_bounds(atom)
        if low < 0 or atom_low is None or atom_low < 0:
            if high is None or atom_low is None or atom_high is None:
                return None, None
            corners = [x * y for x in (low, high) for y in (atom_low, atom_high)]
            low, high = min(corners), max(corners)
            continue
        low = low * atom_low
        high = None if high is None or atom_high is None else high * atom_high
    return low, high


def _atom_bounds(atom: Atom) -> tuple[int | None, int | None]:
    if isinstance(atom, Sym):
        return atom.lo, None if atom.hi is None else bounds(atom.hi)[1]
    assert isinstance(atom, Op)
    (alo, ahi), (blo, bhi) = bounds(atom.a), bounds(atom.b)
    if atom.kind == "mod":
        if blo is not None and blo > 0:
            high = None if bhi is None else bhi - 1
            if alo is not None and alo >= 0 and ahi is not None:
                high = ahi if high is None else min(high, ahi)
            return 0, high
        return None, None
    if atom.kind == "div":
        if blo is None or blo <= 0:
            return None, None
        low = None if alo is None else (alo // blo if alo < 0 else (alo // bhi if bhi else 0))
        high = None if ahi is None else (ahi // blo if ahi >= 0 else (ahi // bhi if bhi else -1))
        return low, high
    pick = min if atom.kind == "min" else max
    low = pick(alo, blo) if alo is not None and blo is not None else None
    high = pick(ahi, bhi) if ahi is not None and bhi is not None else None
    if atom.kind == "min" and high is None:
        high = ahi if bhi is None else bhi
    if atom.kind == "max" and low is None:
        low = alo if blo is None else blo
    return low, high


def _relax(dim: Dim, sign: int) -> Dim:
    """Return an expression >= dim (sign 1) or <= dim (sign -1) without symbolic ranges."""
    for _ in range(8):
        if not isinstance(dim, Expr):
            return dim
        changed: dict[Monomial, int] = {}
        replaced: Dim = 0
        found = False
        for monomial, c in dim.terms:
            position = next(
                (
                    i
                    for i, atom in enumerate(monomial)
                    if isinstance(atom, Sym) and isinstance(atom.hi, Expr) and atom.lo >= 0
                ),
                None,
            )
            others = monomial[:position] + monomial[position + 1 :] if position is not None else ()
            if position is None or _monomial_low(others) < 0:
                changed[monomial] = changed.get(monomial, 0) + c
                continue
            atom = monomial[position]
            assert isinstance(atom, Sym) and atom.hi is not None
            limit: Dim = atom.hi if (c > 0) == (sign > 0) else atom.lo
            rest = Expr(((others, 1),)) if others else 1
            replaced = replaced + limit * rest * c
            found = True
        if not found:
            return dim
        dim = build(changed) + replaced
    return dim


def _monomial_low(monomial: Monomial) -> int:
    """Return 0 if every factor is known not to be negative, else -1."""
    lows = [_atom_bounds(atom)[0] for atom in monomial]
    return 0 if all(low is not None and low >= 0 for low in lows) else -1


def provably_nonnegative(dim: Dim) -> bool:
    """Return True when `dim >= 0` for every value of its symbols; False when that is not known."""
    low = bounds(dim)[0]
    if low is not None and low >= 0:
        return True
    low = bounds(_relax(dim, -1))[0]
    return low is not None and low >= 0


def provably_less(a: Dim, b: Dim) -> bool:
    """Return True when `a < b` for every value of the symbols; False when that is not known."""
    return provably_nonnegative(b - a - 1)


# ---- division -------------------------------------------------------------------------------


def floordiv(a: Dim, b: Dim) -> Dim:
    """Return `a // b`, simplified where the ranges prove it. b must be positive."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    return _divmod(a, b, _ranges(a) | _ranges(b))[0]


def mod(a: Dim, b: Dim) -> Dim:
    """Return `a % b`, simplified where the ranges prove it. b must be positive."""
    if isinstance(a, int) and isinstance(b, int):
        return a % b
    return _divmod(a, b, _ranges(a) | _ranges(b))[1]


def _ranges(dim: Dim) -> frozenset[_Range]:
    """Return every symbol of `dim` with its range and formula: all that a proof about `dim` relies
    on, and that distinguishes symbols of one name in different graphs."""
    if isinstance(dim, int):
        return frozenset()
    if dim._ranges is None:
        found: frozenset[_Range] = frozenset()
        for atom in {atom for monomial, _ in dim.terms for atom in monomial}:
            if isinstance(atom, Sym):
                found |= {(atom.name, atom.lo, atom.hi, id(atom.value))} | _ranges(atom.hi or 0)
            else:
                assert isinstance(atom, Op)
                found |= _ranges(atom.a) | _ranges(atom.b)
        dim._ranges = found
    return dim._ranges


@lru_cache(maxsize=65536)
def _divmod(a: Dim, b: Dim, ranges: frozenset[_Range]) -> tuple[Dim, Dim]:
    # `ranges` is in the key only: a symbol's name alone does not say what can be proved. Results
    # that are kept hold their symbols, so that no other definition gets the id of one of theirs.
    if b == 1:
        return a, 0
    if a == b:
        return 1, 0
    quotient, rest = _split_multiple(a, b)
    if _is_remainder(rest, b):
        return quotient, rest
    if _is_remainder(rest + b, b):
        return quotient - 1, rest + b
    if isinstance(b, int):
        for factor in _common_factors(rest, b):
            high, low = _split_multiple(rest, factor)
            if _is_remainder(low, factor):
                inner = b // factor
                return quotient + floordiv(high, inner), mod(high, inner) * factor + low
    nested = _nested_division(rest, b)
    div = nested if nested is not None else of_atom(Op("div", rest, b))
    return quotient + div, of_atom(Op("mod", rest, b))


def _is_remainder(rest: Dim, b: Dim) -> bool:
    return provably_nonnegative(rest) and provably_less(rest, b)


def _nested_division(a: Dim, b: Dim) -> Dim | None:
    """Simplify (x // c) // b to x // (c * b)."""
    if isinstance(a, Expr) and len(a.terms) == 1:
        monomial, c = a.terms[0]
        if c == 1 and len(monomial) == 1:
            atom = monomial[0]
            if isinstance(atom, Op) and atom.kind == "div":
                return floordiv(atom.a, atom.b * b)
    return None


def _common_factors(rest: Dim, b: int) -> list[int]:
    factors = {gcd(c, b) for monomial, c in terms_of(rest) if monomial}
    return sorted((f for f in factors if 1 < f < b), reverse=True)


def _split_multiple(a: Dim, b: Dim) -> tuple[Dim, Dim]:
    """Return (q, r) with a == q * b + r, where r has no term that is visibly a multiple of b."""
    if isinstance(b, int):
        quotient: dict[Monomial, int] = {}
        rest: dict[Monomial, int] = {}
        for monomial, c in terms_of(a):
            q, r = divmod(c, b)
            # A symbol's own coefficient is split only when that leaves nothing: 5*i is not 4*i + i.
            if r and monomial:
                q, r = 0, c
            quotient[monomial] = q
            rest[monomial] = r
        return build(quotient), build(rest)
    if len(b.terms) != 1:
        # A sum as divisor: only whole multiples of it are seen, as in ((s0+1)*i + j) // (s0+1).
        return _split_polynomial(a, b)
    factor, scale = b.terms[0]
    quotient, rest = {}, {}
    for monomial, c in terms_of(a):
        remaining = _without(monomial, factor)
        if remaining is not None and c % scale == 0:
            quotient[remaining] = quotient.get(remaining, 0) + c // scale
        else:
            rest[monomial] = rest.get(monomial, 0) + c
    return build(quotient), build(rest)


def _split_polynomial(a: Dim, b: Expr) -> tuple[Dim, Dim]:
    lead, scale = b.terms[0]
    quotient: Dim = 0
    for _ in range(8):
        if _is_remainder(a, b):
            break
        for monomial, c in terms_of(a):
            remaining = _without(monomial, lead)
            if remaining is not None and c % scale == 0:
                part = build({remaining: c // scale})
                quotient, a = quotient + part, a - part * b
                break
        else:
            break
    return quotient, a


def _without(monomial: Monomial, factor: Monomial) -> Monomial | None:
    left = list(monomial)
    for atom in factor:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def minimum(a: Dim, b: Dim) -> Dim:
    """Return min(a, b), simplified where the ranges prove it."""
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    if provably_nonnegative(b - a):
        return a
    if provably_nonnegative(a - b):
        return b
    return of_atom(Op("min", a, b))


def maximum(a: Dim, b: Dim) -> Dim:
    """Return max(a, b), simplified where the ranges prove it."""
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    if provably_nonnegative(b - a):
        return b
    if provably_nonnegative(a - b):
        return a
    return of_atom(Op("max", a, b))


def ceildiv(a: Dim, b: Dim) -> Dim:
    """Return the smallest integer that is at least a / b."""
    return floordiv(a + (b - 1), b)
