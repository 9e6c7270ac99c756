"""Finds the polynomial coefficients of codegen/math: `python -m tools.minimax NAME...` prints them.

Each entry is a weighted minimax problem: the polynomial P of a given degree for which the largest
weight(t) * |P(t) - f(t)| on an interval is smallest. Found by the exchange algorithm of Remez
(E. Remez, 1934; M. J. D. Powell, Approximation Theory and Methods, chapter 8) in 60-digit numbers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

from mpmath import mp, mpf

mp.dps = 60
Function = Callable[[mpf], mpf]
SAMPLES = 4001
"""Odd, so that no sample is the middle, where a weight may be zero."""


@dataclass(frozen=True)
class Problem:
    """Approximate `function` on [low, high] by `degree`; errors count `weight` times."""

    function: Function
    weight: Function
    low: float
    high: float
    degree: int


def solve(problem: Problem) -> tuple[list[mpf], mpf]:
    """(coefficients from the constant on, the largest weighted error)."""
    low, high, count = mpf(problem.low), mpf(problem.high), problem.degree + 2
    grid = [
        (low + high) / 2 - (high - low) / 2 * mp.cos(mp.pi * i / SAMPLES)
        for i in range(SAMPLES + 1)
    ]
    values = [problem.function(t) for t in grid]
    weights = [problem.weight(t) for t in grid]
    reference = [round(i * SAMPLES / (count - 1)) for i in range(count)]
    for _ in range(40):
        coefficients, level = _levelled(grid, values, weights, reference, problem.degree)
        errors = [
            weight * (mp.polyval(coefficients[::-1], t) - value)
            for t, value, weight in zip(grid, values, weights, strict=True)
        ]
        largest = max(abs(error) for error in errors)
        if largest < abs(level) * mpf("1.0001"):
            break
        reference = _extrema(errors, count)
    return coefficients, largest


def _levelled(
    grid: list[mpf], values: list[mpf], weights: list[mpf], reference: list[int], degree: int
) -> tuple[list[mpf], mpf]:
    """The polynomial whose weighted errors at the reference are equal and alternate."""
    rows = mp.matrix(len(reference), len(reference))
    right = mp.matrix(len(reference), 1)
    for row, index in enumerate(reference):
        for power in range(degree + 1):
            rows[row, power] = weights[index] * grid[index] ** power
        rows[row, degree + 1] = (-1) ** row
        right[row] = weights[index] * values[index]
    solution = mp.lu_solve(rows, right)
    return [solution[i] for i in range(degree + 1)], solution[degree + 1]


def _extrema(errors: list[mpf], count: int) -> list[int]:
    """The largest error of each run of one sign; of too many, the neighbours with the largest."""
    runs: list[int] = []
    for index, error in enumerate(errors):
        if runs and (errors[runs[-1]] > 0) == (error > 0):
            if abs(error) > abs(errors[runs[-1]]):
                runs[-1] = index
        else:
            runs.append(index)
    while len(runs) > count:
        runs.pop(0 if abs(errors[runs[0]]) < abs(errors[runs[-1]]) else -1)
    if len(runs) < count:
        raise ArithmeticError(f"{len(runs)} alternations where {count} are needed")
    return runs


def _even(function: Function) -> Function:
    """A function of x as one of t = x^2."""
    return lambda t: function(mp.sqrt(t))


def _series(function: Function, power: int, start: Function, terms: int) -> Function:
    """(function(x) - start(x)) / x^power, also where that is 0/0: by 90 digits near 0."""

    def quotient(x: mpf) -> mpf:
        if abs(x) < mpf("1e-12"):
            x = mpf("1e-12")
        with mp.workdps(60 + 12 * (power + terms)):
            return (function(x) - start(x)) / x**power

    return quotient


LN2 = float(mp.log(2))
TINY = 1e-12
EXP_RANGE = LN2 / 2 * 1.002
LOG_LOW, LOG_HIGH = float(mp.sqrt(0.5)) - 1.0000001, float(mp.sqrt(2)) - 0.9999999


def _erfinv_ratio(w: mpf) -> mpf:
    """erfinv(x) / x as a function of w = -log(1 - x^2)."""
    if w < mpf("1e-20"):
        return mp.sqrt(mp.pi) / 2
    x = mp.sqrt(-mp.expm1(-w))
    return mp.erfinv(x) / x


def _erfc_inverse(w: mpf) -> mpf:
    """The y whose erfc is exp(-w)."""
    guess = mp.sqrt(w - mp.log(w) / 2 - mpf("0.5"))
    return mp.findroot(lambda y: mp.log(mp.erfc(y)) + w, guess)


PROBLEMS: dict[str, Problem] = {
    # exp(r) = 1 + r + r^2 Q(r)
    "EXP": Problem(
        _series(mp.exp, 2, lambda r: 1 + r, 2), lambda r: r * r / mp.exp(r),
        -EXP_RANGE, EXP_RANGE, 4,
    ),
    # expm1(r) = r + r^2 Q(r)
    "EXPM1": Problem(
        _series(mp.expm1, 2, lambda r: r, 2), lambda r: abs(r * r / mp.expm1(r)) if r else mpf(0),
        -EXP_RANGE, EXP_RANGE, 5,
    ),
    # exp2(r) = 1 + r Q(r) above an integer
    "EXP2": Problem(
        _series(lambda r: mp.power(2, r), 1, lambda r: mpf(1), 2),
        lambda r: abs(r) / mp.power(2, r), TINY, 1.0, 5,
    ),
    # log(1 + f) = f - f^2/2 + f^3 P(f)
    "LOG": Problem(
        _series(mp.log1p, 3, lambda f: f - f * f / 2, 2),
        lambda f: f**3 / mp.log1p(f) if f else mpf(0), LOG_LOW, LOG_HIGH, 7,
    ),
    # log2(1 + f) = f + f (1/ln 2 - 1) + f^2 P(f)
    "LOG2": Problem(
        _series(lambda f: mp.log1p(f) / mp.log(2), 2, lambda f: f / mp.log(2), 2),
        lambda f: f**2 / mp.log1p(f) if f else mpf(0), LOG_LOW, LOG_HIGH, 8,
    ),
    # log10(1 + f) = f / ln 10 + f^2 P(f)
    "LOG10": Problem(
        _series(lambda f: mp.log1p(f) / mp.log(10), 2, lambda f: f / mp.log(10), 2),
        lambda f: f**2 / mp.log1p(f) * 2 if f else mpf(0), LOG_LOW, LOG_HIGH, 8,
    ),
    # tanh(x) = x + x^3 P(x^2)
    "TANH": Problem(
        _even(_series(mp.tanh, 3, lambda x: x, 2)),
        _even(lambda x: x**3 / mp.tanh(x) if x else mpf(0)), 0, 0.36, 4,
    ),
    # sin(r) = r + r^3 P(r^2)
    "SIN": Problem(
        _even(_series(mp.sin, 3, lambda r: r, 2)),
        _even(lambda r: r**3 / mp.sin(r) if r else mpf(0)), 0, 0.62, 2,
    ),
    # cos(r) = 1 - r^2/2 + r^4 P(r^2)
    "COS": Problem(
        _even(_series(mp.cos, 4, lambda r: 1 - r * r / 2, 2)),
        _even(lambda r: r**4 / mp.cos(r)), 0, 0.62, 2,
    ),
    # erf(x) = x + x P(x^2) on [0, 0.6]
    "ERF": Problem(
        _even(_series(mp.erf, 1, lambda x: x, 2)),
        _even(lambda x: x / mp.erf(x) if x else mpf(0)), 0, 0.36, 4,
    ),
    # erf(x) = 1 - 2^P(x) on [0.6, 4]
    "ERFC": Problem(
        lambda x: mp.log(mp.erfc(x), 2), lambda x: mp.erfc(x) * mp.log(2) / mp.erf(x),
        0.599, 4.0, 6,
    ),
    # erfinv(x) = x P(w) with w = -log(1 - x^2), |x| <= 0.97
    "ERFINV_MIDDLE": Problem(_erfinv_ratio, lambda w: 1 / _erfinv_ratio(w), 0, 2.84, 9),
    # erfinv(x) = P(sqrt(w) - 3) with w = -log(1 - x), 0.97 <= x <= 1 - 2^-24
    "ERFINV_TAIL": Problem(
        lambda v: _erfc_inverse((v + 3) ** 2), lambda v: 1 / _erfc_inverse((v + 3) ** 2),
        -1.14, 1.1, 9,
    ),
    # The same with P(sqrt(w) - 4) for x <= 1 - 2^-53, a start for an iteration
    "ERFINV_START": Problem(
        lambda v: _erfc_inverse((v + 4) ** 2), lambda v: 1 / _erfc_inverse((v + 4) ** 2),
        -2.14, 2.1, 8,
    ),
}  # fmt: skip


def main(names: list[str]) -> None:
    for name in names or PROBLEMS:
        coefficients, error = solve(PROBLEMS[name])
        print(f"# largest weighted error 2^{float(mp.log(error, 2)):.1f}")
        print(f"{name} = (")
        for coefficient in coefficients:
            print(f"    {float(coefficient)!r},")
        print(")")


if __name__ == "__main__":
    main(sys.argv[1:])
