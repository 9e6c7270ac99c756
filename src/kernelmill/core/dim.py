"""Dims: integers or symbolic integer expressions, for shapes, strides and buffer indices alike.

Grammar of the text form (`str(dim)` prints it, `parse` reads it):

    dim  = term { ("+" | "-") term }
    term = fact { ("*" | "//" | "%") fact }
    fact = INT | NAME | "-" fact | "(" dim ")" | ("min" | "max") "(" dim "," dim ")"

This file is what other code imports; the expressions themselves are in expr.py.

Equations between dims that are known to hold, as rules that rewrite other dims.

A rule replaces one operation (`//`, `%`, `min`, `max`) by an equal dim, wherever it occurs: from
2*((n//4)//2) == n//4 follows that n//4 may be written as 2*(n//8). Symbols and products are never
replaced, so that strides computed from rewritten sizes equal rewritten strides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import gcd

from kernelmill.core.expr import (
    Atom,
    Dim,
    Expr,
    Monomial,
    Op,
    Sym,
    as_sym,
    bounds,
    build,
    ceildiv,
    floordiv,
    maximum,
    minimum,
    mod,
    of_atom,
    product,
    provably_less,
    provably_nonnegative,
    render,
    sym,
    symbols,
    symbols_of,
    terms_of,
)  # fmt: skip
from kernelmill.core.text import Reader

# ---- queries and substitution ---------------------------------------------------------------


FOLD: dict[str, Callable[[Dim, Dim], Dim]] = {
    "div": floordiv,
    "mod": mod,
    "min": minimum,
    "max": maximum,
}
"""The simplifying function for each kind of `Op`."""


def substitute(dim: Dim, values: Mapping[str, Dim]) -> Dim:
    """Return `dim` with each named symbol replaced, and simplified anew."""
    if not isinstance(dim, Expr) or not values:
        return dim
    kept: dict[Monomial, int] = {}
    result: Dim = 0
    for monomial, c in dim.terms:
        if all(isinstance(atom, Sym) and atom not in values for atom in monomial):
            kept[monomial] = c
            continue
        part: Dim = c
        for atom in monomial:
            if isinstance(atom, Sym):
                value = values.get(atom.name)
                part = part * (of_atom(atom) if value is None else value)
            else:
                assert isinstance(atom, Op)
                folded = FOLD[atom.kind](substitute(atom.a, values), substitute(atom.b, values))
                part = part * folded
        result = result + part
    return result + build(kept)


def evaluate(dim: Dim, values: Mapping[str, int]) -> int:
    """Return the integer value of `dim` for these values. KeyError names a symbol without a value.
    A divisor is positive wherever its quotient or rest is used; elsewhere 1 replaces it."""
    if isinstance(dim, int):
        return dim
    total = 0
    for monomial, c in dim.terms:
        for atom in monomial:
            c *= _evaluate_atom(atom, values)
        total += c
    return total


def _evaluate_atom(atom: Atom, values: Mapping[str, int]) -> int:
    if isinstance(atom, Sym):
        return values[atom.name]
    assert isinstance(atom, Op)
    a, b = evaluate(atom.a, values), evaluate(atom.b, values)
    if atom.kind == "div":
        return a // max(b, 1)
    if atom.kind == "mod":
        return a % max(b, 1)
    return min(a, b) if atom.kind == "min" else max(a, b)


def linear_part(dim: Dim, name: str) -> tuple[Dim, Dim] | None:
    """Return (coefficient, rest), neither with `name`: dim = coefficient * name + rest; or None."""
    if not isinstance(dim, Expr):
        return 0, dim
    coefficient: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for monomial, c in dim.terms:
        uses = [i for i, atom in enumerate(monomial) if _uses(atom, name)]
        if not uses:
            rest[monomial] = c
        elif len(uses) == 1 and isinstance(monomial[uses[0]], Sym):
            others = monomial[: uses[0]] + monomial[uses[0] + 1 :]
            coefficient[others] = coefficient.get(others, 0) + c
        else:
            return None
    return build(coefficient), build(rest)


def _uses(atom: Atom, name: str) -> bool:
    if isinstance(atom, Sym):
        return atom.name == name
    assert isinstance(atom, Op)
    return name in symbols_of(atom)


def recombine(dim: Dim) -> Dim:
    """Return `dim` with every `k*b*(x//b) + k*(x % b)` recombined as `k*x`.

    Splitting one loop over several dims leaves such pairs in addresses; together they are linear.
    """
    while isinstance(dim, Expr):
        merged = _recombine_once(dim)
        if merged is None:
            return dim
        dim = merged
    return dim


def _recombine_once(expr: Expr) -> Dim | None:
    coefficients = dict(expr.terms)
    for monomial, c in expr.terms:
        for position, atom in enumerate(monomial):
            if not (isinstance(atom, Op) and atom.kind == "mod"):
                continue
            rest = Expr(((monomial[:position] + monomial[position + 1 :], c),))
            quotient = floordiv(atom.a, atom.b) * atom.b * rest
            if all(coefficients.get(m) == k for m, k in terms_of(quotient)):
                return expr - quotient - of_atom(atom) * rest + atom.a * rest
    return None


# ---- text -----------------------------------------------------------------------------------


def range_text(symbol: Sym, names: Mapping[str, str]) -> str:
    """Return " in [LO, HI]" with HI a dim or "inf"; "" for the default range."""
    if symbol.lo == 0 and symbol.hi is None:
        return ""
    return f" in [{symbol.lo}, {'inf' if symbol.hi is None else render(symbol.hi, names)}]"


def read_symbol(reader: Reader, scope: Mapping[str, Dim]) -> Sym:
    """Read NAME, with its range if one follows."""
    return read_range(reader, reader.name("a symbol"), scope)


def read_range(reader: Reader, name: str, scope: Mapping[str, Dim]) -> Sym:
    """Read the range that comes next, if one does; return the symbol called `name`."""
    if not reader.accept("in"):
        return Sym(name)
    reader.expect("[")
    low = reader.integer()
    reader.expect(",")
    high = None if reader.accept("inf") else read_dim(reader, scope)
    reader.expect("]")
    return Sym(name, low, high)


def parse(text: str, scope: Mapping[str, Dim] | None = None) -> Dim:
    """Read the text form exactly as written: a division that could be simplified stays.

    Names are looked up in `scope`. Raises ValueError for one that is not there, and for a text
    that does not fit the grammar.
    """
    reader = Reader(text)
    result = read_dim(reader, scope or {})
    reader.expect_end()
    return result


def read_dim(reader: Reader, scope: Mapping[str, Dim]) -> Dim:
    """Read a dim that stands inside a longer text."""
    number = reader.accept_item()  # nearly all of a static program's
    if number is not None:
        return number
    result = _read_term(reader, scope)
    while reader.at("+", "-") and not reader.next_is_value():
        if reader.take() == "+":
            result = result + _read_term(reader, scope)
        else:
            result = result - _read_term(reader, scope)
    return result


def _read_term(reader: Reader, scope: Mapping[str, Dim]) -> Dim:
    result = _read_factor(reader, scope)
    while reader.at("*", "//", "%"):
        operator = reader.take()
        right = _read_factor(reader, scope)
        result = result * right if operator == "*" else _operation(operator, result, right)
    return result


def _read_factor(reader: Reader, scope: Mapping[str, Dim]) -> Dim:
    if reader.accept("-"):
        return -_read_factor(reader, scope)
    if reader.accept("("):
        result = read_dim(reader, scope)
        reader.expect(")")
        return result
    if reader.at_kind("int"):
        return reader.integer()
    name = reader.name("a dim")
    if name in ("min", "max") and reader.accept("("):
        first = read_dim(reader, scope)
        reader.expect(",")
        second = read_dim(reader, scope)
        reader.expect(")")
        return _operation(name, first, second)
    if name not in scope:
        reader.fail_before(f"a known symbol, not {name!r}")
    return scope[name]


_KINDS = {"//": "div", "%": "mod", "min": "min", "max": "max"}


def _operation(operator: str, a: Dim, b: Dim) -> Dim:
    kind = _KINDS[operator]
    if isinstance(a, int) and isinstance(b, int):
        return FOLD[kind](a, b)
    return of_atom(Op(kind, a, b))


__all__ = [
    "FOLD", "Atom", "Dim", "Expr", "Op", "Sym", "as_sym", "bounds", "ceildiv", "evaluate",
    "floordiv", "linear_part", "maximum", "minimum", "mod", "of_atom", "parse", "product",
    "provably_less", "provably_nonnegative", "range_text", "read_dim", "read_range",
    "read_symbol", "recombine", "render", "substitute", "sym", "symbols",
    "symbols_of", "terms_of",
]  # fmt: skip


Pair = tuple[Dim, Dim]

_STEPS = 8
"""Most rewrites of a dim: a limit for rules that lead in circles."""


class Equations:
    """Known equations of dims. `used` are those that `reduce` has relied on so far."""

    def __init__(self, pairs: Iterable[Pair] = ()) -> None:
        self.used: dict[Pair, None] = {}
        self._rules: dict[Atom, tuple[Dim, Pair]] = {}
        self._reduced: dict[Dim, Dim] = {}
        self._pairs: list[Pair] = []
        self._differences: dict[Dim, Pair] | None = None
        for pair in pairs:
            self.add(*pair)

    def add(self, a: Dim, b: Dim) -> None:
        """Assume a == b from now on."""
        self._reduced.clear()
        self._pairs.append((a, b))
        self._differences = None
        whole = a - b
        for atom in _quotients(whole):
            if whole in (of_atom(atom) * atom.b - atom.a, atom.a - of_atom(atom) * atom.b):
                self._rule(of_atom(Op("mod", atom.a, atom.b)), (a, b))
        self._rule(self.reduce(a) - self.reduce(b), (a, b))

    def _rule(self, difference: Dim, pair: Pair) -> None:
        if not isinstance(difference, Expr):
            return
        common = gcd(*(c for _, c in difference.terms))
        difference = Expr(tuple((monomial, c // common) for monomial, c in difference.terms))
        replaceable: dict[Atom, Dim] = {}
        for monomial, c in difference.terms:
            if len(monomial) == 1 and abs(c) == 1 and isinstance(monomial[0], Op):
                rest = (of_atom(monomial[0]) * c - difference) * c
                if monomial[0] not in _atoms(rest):
                    replaceable[monomial[0]] = rest
        if replaceable:
            atom = max(replaceable, key=lambda atom: (_weight(atom), atom))
            self._rules[atom] = replaceable[atom], pair

    def equal(self, a: Dim, b: Dim) -> bool:
        """Return whether a == b is one of the equations or follows from them."""
        difference = self.reduce(a - b)
        if difference == 0:
            return True
        if self._differences is None:
            rewritten = [(self.reduce(left - right), (left, right)) for left, right in self._pairs]
            known = [(d, pair) for d, pair in rewritten if d != 0]
            self._differences = dict(known) | {-d: pair for d, pair in known}
        stated = self._differences.get(difference)
        if stated is not None:
            self.used[stated] = None
        return stated is not None

    def reduce(self, dim: Dim) -> Dim:
        """Return `dim` rewritten; it has the same value wherever the equations hold."""
        if not self._rules or isinstance(dim, int):
            return dim
        found = self._reduced.get(dim)
        if found is None:
            found = dim
            for _ in range(_STEPS):
                before, found = found, self._once(found)
                if found == before:
                    break
            self._reduced[dim] = found
        return found

    def _once(self, dim: Dim) -> Dim:
        if isinstance(dim, int):
            return dim
        result: Dim = 0
        for monomial, c in dim.terms:
            part: Dim = c
            for atom in monomial:
                part = part * self._atom(atom)
            result = result + part
        return result

    def _atom(self, atom: Atom) -> Dim:
        rule = self._rules.get(atom)
        if rule is not None:
            self.used[rule[1]] = None
            return rule[0]
        if not isinstance(atom, Op):
            return of_atom(atom)
        a, b = self._once(atom.a), self._once(atom.b)
        return of_atom(atom) if (a, b) == (atom.a, atom.b) else FOLD[atom.kind](a, b)


def _quotients(dim: Dim) -> list[Op]:
    atoms = _atoms(dim)
    return [atom for atom in atoms if isinstance(atom, Op) and atom.kind == "div"]


def _atoms(dim: Dim) -> set[Atom]:
    """Return all atoms in a dim, those inside operations too."""
    found: set[Atom] = set()
    for monomial, _ in dim.terms if isinstance(dim, Expr) else ():
        for atom in monomial:
            found.add(atom)
            if isinstance(atom, Op):
                found |= _atoms(atom.a) | _atoms(atom.b)
    return found


def _weight(atom: Atom) -> int:
    """Return the complexity of an atom, greater than that of any atom inside it."""
    if not isinstance(atom, Op):
        return 1
    return 1 + sum(
        1 + sum(map(_weight, monomial))
        for dim in (atom.a, atom.b)
        if isinstance(dim, Expr)
        for monomial, _ in dim.terms
    )
