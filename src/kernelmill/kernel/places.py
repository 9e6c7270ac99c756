"""Places that stores write, as numbers with digits, and the proof that no two are one.

What a store writes is a base and, for each loop around it and for its lanes, a digit: a worth times
what is counted. Where each digit is worth at least as much as all smaller ones can come to, no two
numbers are the same. What is not proven counts as the same element.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import (
    Dim,
    Op,
    Sym,
    evaluate,
    mod,
    of_atom,
    provably_nonnegative,
    symbols,
    terms_of,
)

_SAMPLE = 1 << 10
"""What a symbol is taken to be when digits are put in order."""


@dataclass(frozen=True)
class Digit:
    """`worth` times `symbol`, which counts from 0 to below `count` (None: unbounded)."""

    symbol: Sym
    worth: Dim
    count: Dim | None


@dataclass(frozen=True)
class Place:
    """The elements that one store writes: `base` plus digits; where a mask gives a bound, all are
    below `end`, an expression over their symbols."""

    base: Dim
    digits: tuple[Digit, ...]
    end: Dim | None = None

    def widths(self, inner: Iterable[Digit]) -> list[Dim]:
        """Return bounds of how many elements these digits span; an empty list if none is known."""
        found: list[Dim] = [1]
        below: list[Digit] = []
        for digit in _in_order(inner):
            found = _spans(found, [digit])
            below.append(digit)
            if self.end is not None:
                above = (other for other in self.digits if other not in below)
                found.append(self.end - self.base - _value(above))
        names = {digit.symbol.name for digit in self.digits}
        return [width for width in found if names.isdisjoint(symbols(width))]


def write_once(places: Sequence[Place]) -> bool:
    """Return whether stores at these places write no element twice."""
    return all(map(_is_injective, places)) and all(
        _are_apart(a, b) for a, b in combinations(places, 2)
    )


def _is_injective(place: Place) -> bool:
    digits = _in_order(place.digits)
    return all(_reaches(digit.worth, place.widths(digits[:n])) for n, digit in enumerate(digits))


def _are_apart(a: Place, b: Place) -> bool:
    """Return whether two places share no element: the large digits of both tell them apart or,
    where these are equal, the rest of one is all below the rest of the other."""
    same = _in_order(digit for digit in a.digits if _counterpart(digit, b.digits) is not None)
    for first in range(len(same) + 1):
        outer = same[first:]
        others = [_counterpart(digit, b.digits) for digit in outer]
        near = a.widths([digit for digit in a.digits if digit not in outer])
        far = b.widths([digit for digit in b.digits if digit not in others])
        distance = b.base - a.base
        for way, before, behind in ((distance, near, far), (-distance, far, near)):
            if _reaches(way, before) and _tell_apart(outer, [way + width for width in behind]):
                return True
    return False


def _counterpart(digit: Digit, others: Iterable[Digit]) -> Digit | None:
    """Return the digit of the same loop, or of another one that counts as far in equal steps."""
    alike = [o for o in others if (o.worth, o.count) == (digit.worth, digit.count)]
    own = (other for other in alike if other.symbol == digit.symbol)
    return next(own, alike[0] if len(alike) == 1 else None)


def _tell_apart(digits: Sequence[Digit], widths: list[Dim]) -> bool:
    """Return whether each digit is worth what those before it span, above one of `widths`."""
    return all(_reaches(digit.worth, _spans(widths, digits[:n])) for n, digit in enumerate(digits))


def _value(digits: Iterable[Digit]) -> Dim:
    total: Dim = 0
    for digit in digits:
        total = total + digit.worth * of_atom(digit.symbol)
    return total


def _spans(widths: Iterable[Dim], digits: Iterable[Digit]) -> list[Dim]:
    """Return bounds of the span of numbers with these digits above one of the `widths`."""
    further: Dim = 0
    for digit in digits:
        if digit.count is None:
            return []
        further = further + digit.worth * (digit.count - 1)
    return [width + further for width in widths]


def _reaches(distance: Dim, widths: Iterable[Dim]) -> bool:
    rests = (distance - width for width in widths)
    return any(provably_nonnegative(rest) or provably_nonnegative(_divided(rest)) for rest in rests)


def _divided(dim: Dim) -> Dim:
    """Replace `x - x % k` by `x // k * k` in `dim`, since the ranges of remainders are known."""
    for monomial, factor in terms_of(dim):
        match monomial:
            case (Op(kind="div", a=a, b=int(b)) as quotient,) if factor % b == 0:
                dim = dim + factor // b * (a - mod(a, b)) - factor * of_atom(quotient)
            case _:
                pass
    return dim


def _in_order(digits: Iterable[Digit]) -> list[Digit]:
    def size(digit: Digit) -> int:
        return evaluate(digit.worth, dict.fromkeys(symbols(digit.worth), _SAMPLE))

    return sorted(digits, key=size)
