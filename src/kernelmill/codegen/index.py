"""Dims as i64 arithmetic, each part computed at the loop level where its symbols are known."""

from __future__ import annotations

from typing import Any

from kernelmill.codegen.code import Code, in_memory
from kernelmill.core.dim import (
    Atom,
    Dim,
    Expr,
    Monomial,
    Op,
    Sym,
    of_atom,
    provably_nonnegative,
    substitute,
    symbols,
    symbols_of,
    terms_of,
)  # fmt: skip
from kernelmill.core.dtype import DType


class Indices:
    """The symbols in scope, and the arithmetic on them that was already written.

    A result is remembered in the region where it was computed, so that it is found again exactly
    where it may be used. What is added or multiplied at one level comes in the order in which the
    symbols were bound, not in that of their names, which a kernel does not keep when it is printed.
    """

    def __init__(self, code: Code) -> None:
        self.code = code
        self._bound: dict[str, tuple[str, int, int]] = {}  # text, region, number
        self._replaced: dict[str, Dim] = {}

    def bind(self, symbol: Sym, text: str) -> None:
        """Bind `symbol` to the i64 `text`, defined in the current region, from here on."""
        name = symbol.name
        if name in self._bound:
            # The same binding again, in a later copy of an unrolled body: its old results must
            # not be found, so the symbol goes by another name.
            count = sum(1 for bound in self._bound if bound.partition("'")[0] == name)
            renamed = Sym(f"{name}'{count}", symbol.lo, symbol.hi)
            self._replaced[name] = of_atom(renamed)
            name = renamed.name
        self._bound[name] = text, len(self.code.regions) - 1, len(self._bound)

    def replace(self, symbol: Sym, value: int) -> None:
        """Replace `symbol` by this number from here on: one pass of an unrolled loop."""
        self._replaced[symbol.name] = value

    def resolve(self, dim: Dim) -> Dim:
        """Return the dim with the numbers of unrolled loops put in."""
        replaced = self._replaced
        if not replaced or not isinstance(dim, Expr) or replaced.keys().isdisjoint(symbols(dim)):
            return dim
        return substitute(dim, replaced)

    def value(self, dim: Dim) -> str:
        """Return the i64 operand that is this dim's value."""
        return self._value(self.resolve(dim))

    def pointer(self, base: str, dtype: DType, dim: Dim) -> str:
        """Return the address of element `dim` of the memory at `base`."""
        dim = self.resolve(dim)
        constant = dim if isinstance(dim, int) else _constant(dim)
        if constant == 0:
            return self._address(base, dtype, dim)
        address = self._address(base, dtype, dim - constant)
        here = len(self.code.regions) - 1
        return self._offset(address, dtype, str(constant), here)

    def depth(self, dim: Dim) -> int:
        """Return the number of the outermost region in which this dim is known."""
        return self._depth(self.resolve(dim))

    # ---- addresses --------------------------------------------------------------------------

    def _address(self, base: str, dtype: DType, dim: Dim) -> str:
        if isinstance(dim, int):
            return base
        depth = self._depth(dim)
        known = self.code.regions[depth].known
        key = (base, dtype, dim)
        found = known.get(key)
        if found is None:
            inner, outer = self._split(dim, depth)
            outer_address = self._address(base, dtype, outer)
            found = self._offset(outer_address, dtype, self._value(inner), depth)
            known[key] = found
        return found

    def _offset(self, address: str, dtype: DType, index: str, depth: int) -> str:
        text = f"getelementptr {in_memory(dtype)}, ptr {address}, i64 {index}"
        return self.code.hoisted(text, depth)

    # ---- sums and products ------------------------------------------------------------------

    def _depth(self, dim: Dim) -> int:
        bound = self._bound
        return max([bound[name][1] for name in symbols(dim)], default=0)

    def _atom_depth(self, atom: Atom) -> int:
        if isinstance(atom, Sym):
            return self._bound[atom][1]
        return max([self._bound[name][1] for name in symbols_of(atom)], default=0)

    def _split(self, dim: Expr, depth: int) -> tuple[Expr, Dim]:
        """`dim`, which has no constant, as the terms that need region `depth` plus those that are
        known further out."""
        inner: list[tuple[Monomial, int]] = []
        outer: list[tuple[Monomial, int]] = []
        for term in dim.terms:
            needed = any(self._atom_depth(atom) == depth for atom in term[0])
            (inner if needed else outer).append(term)
        return (Expr(tuple(inner)), Expr(tuple(outer))) if outer else (dim, 0)

    def _value(self, dim: Dim) -> str:
        if isinstance(dim, int):
            return str(dim)
        depth = self._depth(dim)
        known = self.code.regions[depth].known
        found = known.get(dim)
        if found is None:
            found = known[dim] = self._compute(dim, depth)
        return found

    def _compute(self, dim: Expr, depth: int) -> str:
        if len(dim.terms) == 1:
            monomial, coefficient = dim.terms[0]
            return self._product(monomial, coefficient, depth)
        constant = _constant(dim)
        if constant:
            return self._write("add", self._value(dim - constant), str(constant), depth)
        inner, outer = self._split(dim, depth)
        terms = inner.terms
        if len(terms) > 1:
            terms = sorted(terms, key=self._order)
        total = self._value(outer) if outer != 0 else ""
        for monomial, coefficient in terms:
            part = self._value(Expr(((monomial, coefficient),)))
            total = self._write("add", total, part, depth) if total else part
        return total

    def _product(self, monomial: Monomial, coefficient: int, depth: int) -> str:
        outer = tuple(atom for atom in monomial if self._atom_depth(atom) < depth)
        inner = [atom for atom in monomial if self._atom_depth(atom) == depth]
        if len(inner) > 1:
            inner.sort(key=self._atom_order)
        total = ""
        if outer:
            total = self._value(Expr(((outer, coefficient),)))
        elif coefficient != 1:
            total = str(coefficient)
        for atom in inner:
            alone = coefficient == 1 and len(monomial) == 1
            part = self._atom(atom, depth) if alone else self._value(of_atom(atom))
            total = self._write("mul", part, total, depth) if total else part
        return total

    def _order(self, term: tuple[Monomial, int]) -> tuple[Any, ...]:
        """Return a key of a term's structure, independent of the names of symbols."""
        monomial, coefficient = term
        return -len(monomial), sorted(map(self._atom_order, monomial)), coefficient

    def _atom_order(self, atom: Atom) -> tuple[Any, ...]:
        if isinstance(atom, Sym):
            return 0, self._bound[atom][2]
        assert isinstance(atom, Op)
        return (
            1,
            atom.kind,
            *(sorted(map(self._order, terms_of(side))) for side in (atom.a, atom.b)),
        )

    # ---- atoms ------------------------------------------------------------------------------

    def _atom(self, atom: Atom, depth: int) -> str:
        if isinstance(atom, Sym):
            return self._bound[atom][0]
        assert isinstance(atom, Op)
        a, b = self._value(atom.a), self._value(atom.b)
        if atom.kind in ("min", "max"):
            return self._extreme(atom.kind, a, b, depth)
        if isinstance(atom.b, int) and atom.b & (atom.b - 1) == 0:
            if atom.kind == "div":
                return self._write("ashr", a, str(atom.b.bit_length() - 1), depth)
            return self._write("and", a, str(atom.b - 1), depth)
        if not isinstance(atom.b, int):
            # A divisor is positive wherever the result is used; computed early it may not be, and
            # a number outside its promised range must not end the process.
            b = self._extreme("max", b, "1", depth)
        if provably_nonnegative(atom.a):
            found = self._write("udiv" if atom.kind == "div" else "urem", a, b, depth)
        else:
            found = self._floor(atom.kind, a, b, depth)
        if isinstance(atom.b, int):
            return found
        # LLVM would write steps and bounds of loops as expressions of this, and divide in each pass
        # of an inner loop. What is frozen is a number to it that it knows nothing of.
        return self.code.hoisted(f"freeze i64 {found}", depth)

    def _extreme(self, kind: str, a: str, b: str, depth: int) -> str:
        name = f"llvm.s{kind}.i64"
        self.code.module.declare(name, "i64", ["i64", "i64"])
        return self.code.hoisted(f"call i64 @{name}(i64 {a}, i64 {b})", depth)

    def _floor(self, kind: str, a: str, b: str, depth: int) -> str:
        rest = self._write("srem", a, b, depth)
        negative = self.code.hoisted(f"icmp slt i64 {rest}, 0", depth)
        if kind == "mod":
            added = self._write("add", rest, b, depth)
            choice = f"select i1 {negative}, i64 {added}, i64 {rest}"
            return self.code.hoisted(choice, depth)
        quotient = self._write("sdiv", a, b, depth)
        borrow = self.code.hoisted(f"sext i1 {negative} to i64", depth)
        return self._write("add", quotient, borrow, depth)

    def _write(self, operation: str, a: str, b: str, depth: int) -> str:
        return self.code.hoisted(f"{operation} i64 {a}, {b}", depth)


def _constant(dim: Expr) -> int:
    monomial, coefficient = dim.terms[-1]
    return 0 if monomial else coefficient
