"""Where stores write, as numbers with digits, and whether two of them may write one element.

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
    """What `symbol` counts, from 0 to below `count`, if a bound is known. No worth is negative."""

    symbol: Sym
    worth: Dim
    count: Dim | None


@dataclass(frozen=True)
class Place:
    """What one store writes: `base` and digits; all of it below `end` where a mask says so, which
    is written with their symbols."""

    base: Dim
    digits: tuple[Digit, ...]
    end: Dim | None = None

    def widths(self, inner: Iterable[Digit]) -> list[Dim]:
        """Bounds of how many elements these digits span; none is known where the list is empty."""
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
    """Whether stores at these places write no element twice."""
    return all(map(_is_injective, places)) and all(
        _are_apart(a, b) for a, b in combinations(places, 2)
    )


def _is_injective(place: Place) -> bool:
    digits = _in_order(place.digits)
    return all(_reaches(digit.worth, place.widths(digits[:n])) for n, digit in enumerate(digits))


def _are_apart(a: Place, b: Place) -> bool:
    """Whether the large digits that both have tell them apart, or, where these are the same, what
    is left of each lies on one side of the other's."""
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
    """That of the same loop, or of another one that counts as far in equal steps."""
    alike = [o for o in others if (o.worth, o.count) == (digit.worth, digit.count)]
    own = (other for other in alike if other.symbol == digit.symbol)
    return next(own, alike[0] if len(alike) == 1 else None)


def _tell_apart(digits: Sequence[Digit], widths: list[Dim]) -> bool:
    """Whether each is worth as much as those before it, above what spans one of these `widths`."""
    return all(_reaches(digit.worth, _spans(widths, digits[:n])) for n, digit in enumerate(digits))


def _value(digits: Iterable[Digit]) -> Dim:
    total: Dim = 0
    for digit in digits:
        total = total + digit.worth * of_atom(digit.symbol)
    return total


def _spans(widths: Iterable[Dim], digits: Iterable[Digit]) -> list[Dim]:
    """What numbers span that have these digits above what spans one of the `widths`."""
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
    """`dim` with `x - x % k` for `x // k * k`, since the ranges of rests are known."""
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
