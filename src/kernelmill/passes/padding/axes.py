"""Dims as row-major products of factors, each of which may be padded at its end.

A tensor of (batch, length) viewed as (batch * length) has padding inside of its dim. The list of
factors (batch, length) describes it exactly, and a view back splits the list again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, Expr, Op, Sym, bounds, floordiv, product
from kernelmill.core.scalar import roots
from kernelmill.graph.ir import Attr

Number = bool | int | float


class Unproven(Exception):
    """Raised where padding could change a kept value at the current node; the message says why."""


@dataclass(frozen=True)
class Factor:
    """One factor of a dim.

    kind     "clean": of a size that does not depend on padding; "padded": kept below its true
             size; "uniform": the value is the same along it, whatever its size
    fill     the value wherever this factor's index is not kept, where that is one known number;
             with `strong` whatever the other indices are, otherwise only where those are kept
    index    the value is this factor's index plus this number, and uniform along all others
    """

    size: Dim
    kind: str
    fill: Number | None = None
    strong: bool = True
    index: Dim | None = None


Axis = tuple[Factor, ...]
"""The factors of one dim, outermost first; none for a dim of size 1."""


@dataclass(frozen=True)
class Padded:
    """The symbols that are padded."""

    symbols: frozenset[str]

    def depends(self, *attrs: Attr) -> bool:
        """Return whether a size (or a tuple that holds some) changes with padding."""
        return any(
            self.depends(*attr)
            if isinstance(attr, tuple)
            else isinstance(attr, Expr) and not self.symbols.isdisjoint(roots((attr,)))
            for attr in attrs
        )

    def axis(self, size: Dim, fill: Number | None = None, strong: bool = True) -> Axis:
        """Return a dim of which the elements below the true size are kept."""
        if size == 1:
            return ()
        if not self.depends(size):
            return (Factor(size, "clean"),)
        if not self._grows(size):
            raise Unproven(f"has a dim of size {size}, which need not grow with the padded size")
        return (Factor(size, "padded", fill, strong),)

    def _grows(self, dim: Dim) -> bool:
        if not isinstance(dim, Expr):
            return True
        for monomial, coefficient in dim.terms:
            if not self.depends(Expr(((monomial, 1),))):
                continue
            low = all((bounds(Expr((((atom,), 1),)))[0] or 0) >= 0 for atom in monomial)
            if coefficient < 0 or not low or not all(map(self._atom_grows, monomial)):
                return False
        return True

    def _atom_grows(self, atom: object) -> bool:
        if isinstance(atom, Sym):
            return atom.lo >= 0 and atom.value is None
        assert isinstance(atom, Op)
        if atom.kind in ("div", "mod") and self.depends(atom.b):
            return False
        if atom.kind == "mod" and self.depends(atom.a):
            return False
        return self._grows(atom.a) and self._grows(atom.b)

    def split(self, factor: Factor, outer: Dim) -> tuple[Factor, Factor]:
        """Split the factor in two, the first of size `outer`, which divides it. Raises Refusal."""
        inner = floordiv(factor.size, outer)
        if factor.kind == "padded":
            if self.depends(inner):
                raise Unproven(f"takes apart a dim of size {factor.size} that is padded at its end")
            return replace(factor, size=outer, index=None), Factor(inner, "clean")
        return Factor(outer, factor.kind), Factor(inner, factor.kind)

    def prefix(self, axis: Axis) -> Factor | None:
        """Return the dim as one factor padded at its end; None for a dim without padding. Raises
        Refusal where the kept elements do not come first, one after the other."""
        if not any(self.depends(factor.size) for factor in axis):
            return None
        first, *rest = axis
        if not self.depends(first.size) or any(self.depends(factor.size) for factor in rest):
            raise Unproven("needs the kept elements of a dim one after the other")
        size = product(factor.size for factor in axis)
        (merged,) = self.axis(size, first.fill, first.strong)
        return merged if rest else replace(merged, index=first.index)


def align(padded: Padded, a: Axis, b: Axis) -> tuple[Axis, Axis]:
    """Cut two axes of one size into factors of equal sizes. Raises Refusal where the padding of one
    lies across the factors of the other."""
    left, right = list(a), list(b)
    done: list[tuple[Factor, Factor]] = []
    while left and right:
        x, y = left.pop(0), right.pop(0)
        if x.size == y.size:
            done.append((x, y))
        elif _quotient(x.size, y.size) is not None:
            x, rest = padded.split(x, y.size)
            left.insert(0, rest)
            done.append((x, y))
        elif _quotient(y.size, x.size) is not None:
            y, rest = padded.split(y, x.size)
            right.insert(0, rest)
            done.append((x, y))
        else:
            _widen(padded, x, left)
            _widen(padded, y, right)
    if left or right:
        raise Unproven("reads tensors that are padded in different ways")
    return tuple(x for x, _ in done), tuple(y for _, y in done)


def regroup(padded: Padded, axes: Sequence[Axis], shape: Sequence[Dim]) -> tuple[Axis, ...]:
    """Deal the factors of a whole tensor out to the dims of a reshape. Raises Refusal."""
    if product(shape) == 0:
        return tuple(() if size == 1 else (Factor(size, "uniform"),) for size in shape)
    rest = [factor for axis in axes for factor in axis]
    return tuple(tuple(_take(padded, rest, size)) for size in shape)


def _take(padded: Padded, rest: list[Factor], size: Dim) -> list[Factor]:
    found: list[Factor] = []
    while size != 1:
        if not rest:
            raise Unproven("takes its dims apart in a way that padding does not allow")
        head = rest.pop(0)
        if head.size == size:
            return [*found, head]
        quotient = _quotient(size, head.size)
        if quotient is not None:
            found.append(head)
            size = quotient
        elif _quotient(head.size, size) is not None:
            head, inner = padded.split(head, size)
            rest.insert(0, inner)
            return [*found, head]
        else:
            _widen(padded, head, rest)
    return found


def _widen(padded: Padded, head: Factor, rest: list[Factor]) -> None:
    """Put the head back merged with what follows it, where neither is padded."""
    uniform = bool(rest) and head.kind == rest[0].kind == "uniform"
    if not rest or (not uniform and padded.depends(head.size, rest[0].size)):
        raise Unproven("takes apart dims across the end of a padded one")
    rest[0] = Factor(head.size * rest[0].size, "uniform" if uniform else "clean")


def _quotient(a: Dim, b: Dim) -> Dim | None:
    """Return a / b where b divides a whatever the symbols stand for."""
    if b == 0 or a == 0:
        return None
    quotient = floordiv(a, b)
    return quotient if quotient * b == a else None


def holds(padded: Padded, axes: Sequence[Axis], first: Factor, value: Number) -> bool:
    """Return whether the elements behind the end of a dim of a tensor with these axes, of which
    `first` is the prefix, are this value. Where the tensor is padded elsewhere too, some of them
    lie in both paddings, for which only a strong fill holds."""
    others = sum(padded.depends(factor.size) for axis in axes for factor in axis) - 1
    return first.fill == value and (first.strong or not others)


def mapped(axes: Sequence[Axis], change: Callable[[Factor], Factor]) -> tuple[Axis, ...]:
    """Return the axes with every factor changed."""
    return tuple(tuple(change(factor) for factor in axis) for axis in axes)
