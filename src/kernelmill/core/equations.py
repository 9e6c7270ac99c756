"""Equations between dims that are known to hold, as rules that rewrite other dims.

A rule replaces one operation (`//`, `%`, `min`, `max`) by an equal dim, wherever it occurs: from
2*((n//4)//2) == n//4 follows that n//4 may be written as 2*(n//8). Symbols and products are never
replaced, so that strides computed from rewritten sizes equal rewritten strides.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd

from kernelmill.core.dim import FOLD, Atom, Dim, Expr, Op, of_atom

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
