"""Numbers that a call computes from its sizes, beyond dims: `int(n * 0.75)`.

Grammar of the text form (`scalar_text` prints it, `read_scalar` reads it):

    scalar   = FLOAT | "-" FLOAT | "true" | "false" | FUNCTION "(" scalar {"," scalar} ")" | dim
    symbol   = NAME ["in" "[" INT "," (dim | "inf") "]"] ["=" scalar]

FUNCTION is a key of `FUNCTIONS`: they are Python's own, so results are eager's to the bit. A symbol
with a scalar behind it is computed: it has an integer as its value, which for a float are its bits.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import reduce
from typing import Any, TypeVar

from kernelmill.core.dim import Dim, evaluate, range_text, read_dim, read_symbol, substitute
from kernelmill.core.dtype import BY_NAME, DType
from kernelmill.core.errors import InputError, VerificationError
from kernelmill.core.expr import Apply, Atom, Expr, Op, Scalar, Sym, of_atom, render, symbols
from kernelmill.core.text import Reader, number_text

T = TypeVar("T")

_WORD = struct.Struct("=q")
_DOUBLE = struct.Struct("=d")


def bits_of(value: float) -> int:
    """Return the bits of a float as a signed integer."""
    return _WORD.unpack(_DOUBLE.pack(value))[0]


def float_of(bits: int) -> float:
    """Return the float with these bits."""
    return _DOUBLE.unpack(_WORD.pack(bits))[0]


def _power(base: Any, exponent: Any) -> Any:
    both_whole = isinstance(base, int) and isinstance(exponent, int)
    if both_whole and base.bit_length() * exponent > _MOST_BITS:
        raise InputError(_TOO_LARGE.format(f"{base} ** {exponent}"))
    return base**exponent


def _shifted(value: int, places: int) -> int:
    if places > _MOST_BITS:
        raise InputError(_TOO_LARGE.format(f"{value} << {places}"))
    return value << places


def _rounded(value: Any, places: int | None = None) -> Any:
    if places is not None and abs(places) > _MOST_BITS:
        raise InputError(_TOO_LARGE.format(f"round({value}, {places})"))
    return round(value, places)


_MOST_BITS = 4096
_TOO_LARGE = f"{{}} takes more than {_MOST_BITS} bits: call with sizes for which it is smaller"

_PYTHON = "abs add and_ eq floordiv ge gt le lt mod mul ne neg not_ or_ rshift sub truediv xor"
_MATH = (
    "acos acosh asin asinh atan atan2 atanh ceil cos cosh exp floor log log10 log1p log2 pow "
    "sin sinh sqrt tan tanh trunc"
)
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name.strip("_"): getattr(operator, name) for name in _PYTHON.split()},
    **{f"math.{name}": getattr(math, name) for name in _MATH.split()},
    "bits": bits_of,
    "bool": bool,
    "either": lambda condition, a, b: a if condition else b,
    "float": float,
    "from_bits": float_of,
    "int": int,
    "largest": max,
    "least": min,
    "lshift": _shifted,
    "pow": _power,
    "round": _rounded,
    "sum": lambda *terms: reduce(operator.add, terms),
}
"""Functions of scalars, by name."""

TO_WORD = {"float": "bits", "bool": "int"}
FROM_WORD = {"float": "from_bits", "bool": "bool"}
"""By kind of number, the functions that encode it as an integer, and decode it."""
NUMBERS: dict[str, Callable[[int], float | bool]] = {k: FUNCTIONS[f] for k, f in FROM_WORD.items()}

DEEPEST = 128
"""Most nested functions in a text."""


def evaluate_scalar(scalar: Scalar, values: Mapping[str, int]) -> Any:
    """Return the number for these values of the symbols. KeyError names a symbol without a value;
    errors of Python's functions are raised, as ZeroDivisionError; InputError for integers that
    would fill the memory, VerificationError for unsuitable arguments of a function."""
    if isinstance(scalar, Apply):
        arguments = [evaluate_scalar(each, values) for each in scalar.arguments]
        try:
            return FUNCTIONS[scalar.function](*arguments)
        except (TypeError, struct.error) as error:
            raise VerificationError(f"{scalar_text(scalar)}: {error}", "a number") from None
    return evaluate(scalar, values) if isinstance(scalar, Expr) else scalar


def symbols_in(scalar: Scalar) -> Mapping[str, Sym]:
    """Return every symbol in a scalar, by name."""
    if isinstance(scalar, Apply):
        return {n: s for each in scalar.arguments for n, s in symbols_in(each).items()}
    return symbols(scalar) if isinstance(scalar, Expr) else {}


def at_values(scalar: Scalar, values: Mapping[str, Dim]) -> Scalar:
    """Return the scalar with dims in place of these symbols."""
    if isinstance(scalar, Apply):
        arguments = tuple(at_values(each, values) for each in scalar.arguments)
        return Apply(scalar.function, arguments)
    return substitute(scalar, values) if isinstance(scalar, Expr) else scalar


# ---- symbols --------------------------------------------------------------------------------


def roots(dims: Iterable[Dim]) -> set[str]:
    """Return the names of symbols that a call has to give for dims to have values: computed symbols
    replaced by those that they are computed from."""
    found: dict[str, Sym] = {}
    left = [symbol for dim in dims for symbol in symbols(dim).values()]
    while left:
        symbol = left.pop()
        if symbol.name not in found:
            found[symbol.name] = symbol
            if symbol.value is not None:
                left.extend(symbols_in(symbol.value).values())
    return {name for name, symbol in found.items() if symbol.value is None}


def depth_of(scalar: Scalar) -> int:
    """Return the depth of nested functions in a scalar."""
    if not isinstance(scalar, Apply):
        return 0
    return 1 + max(map(depth_of, scalar.arguments), default=0)


def computed_late(symbols: Iterable[Sym], late: Collection[str]) -> set[str]:
    """Return the symbols that are computed from others without a value when a call begins."""
    computed = (symbol for symbol in symbols if symbol.value is not None)
    return {symbol.name for symbol in computed if not roots((of_atom(symbol),)).isdisjoint(late)}


def in_order(symbols: Iterable[Sym]) -> tuple[Sym, ...]:
    """Return the symbols that a call gives, then the computed ones, each after its inputs."""
    listed = list(symbols)
    found = {symbol.name: symbol for symbol in listed if symbol.value is None}

    def add(symbol: Sym) -> None:
        if symbol.name not in found and symbol.value is not None:
            for inner in symbols_in(symbol.value).values():
                add(inner)
            found[symbol.name] = symbol

    for symbol in listed:
        add(symbol)
    return tuple(found.values())


def completed(symbols: Iterable[Sym], values: Mapping[str, int]) -> dict[str, int]:
    """Return these values and those of computed symbols that follow from them, in the order of
    `symbols`, which is that of `in_order`. InputError for a number beyond 64 bits."""
    found: dict[str, int] = {}
    for symbol in symbols:
        if symbol.name in values:
            found[symbol.name] = values[symbol.name]
        elif symbol.value is not None and symbols_in(symbol.value).keys() <= found.keys():
            value = int(evaluate_scalar(symbol.value, found))
            if not -(2**63) <= value < 2**63:
                raise InputError(
                    f"{scalar_text(symbol.value)} is {value}, which is no integer of 64 bits: "
                    "call with sizes for which it is smaller"
                )
            found[symbol.name] = value
    return found


def _written_out(scalar: Scalar) -> Scalar:
    """Return the scalar with computed symbols replaced by their formulas."""
    if isinstance(scalar, Apply):
        return Apply(scalar.function, tuple(map(_written_out, scalar.arguments)))
    if not isinstance(scalar, Expr) or all(s.value is None for s in symbols(scalar).values()):
        return scalar
    terms = tuple(_product(c, tuple(map(_factor, atoms))) for atoms, c in scalar.terms)
    return terms[0] if len(terms) == 1 else Apply("sum", terms)


def _product(times: int, factors: tuple[Scalar, ...]) -> Scalar:
    given = factors if times == 1 and factors else (times, *factors)
    return reduce(lambda a, b: Apply("mul", (a, b)), given)


def _factor(atom: Atom) -> Scalar:
    if isinstance(atom, Sym):
        return of_atom(atom) if atom.value is None else _written_out(atom.value)
    assert isinstance(atom, Op)
    a, b = _written_out(atom.a), _written_out(atom.b)
    if atom.kind in ("div", "mod"):
        b = Apply("largest", (b, 1))
    return Apply(
        {"div": "floordiv", "min": "least", "max": "largest"}.get(atom.kind, "mod"), (a, b)
    )


# ---- text -----------------------------------------------------------------------------------


def scalar_text(scalar: Scalar, names: Mapping[str, str] | None = None) -> str:
    """Return the text of a scalar, with symbols renamed by `names`, where it has them."""
    if isinstance(scalar, Apply):
        arguments = ", ".join(scalar_text(each, names) for each in scalar.arguments)
        return f"{scalar.function}({arguments})"
    return render(scalar, names or {}) if isinstance(scalar, Expr) else number_text(scalar)


def spelled(dim: Dim) -> str:
    """Return the text of a dim, over symbols that a call gives alone."""
    return scalar_text(_written_out(dim))


def symbol_text(symbol: Sym, names: Mapping[str, str] | None = None) -> str:
    """Return a symbol with its range, and its formula if it has one."""
    text = (names or {}).get(symbol.name, symbol.name) + range_text(symbol, names or {})
    return text if symbol.value is None else f"{text} = {scalar_text(symbol.value, names)}"


def read_scalar(reader: Reader, scope: Mapping[str, Dim], depth: int = 0) -> Scalar:
    """Read a scalar inside a longer text. ValueError if it has none there."""
    start = reader.position
    negative = reader.accept("-")
    if reader.at_kind("float") or reader.at("inf", "nan"):
        value = float(reader.take())
        return -value if negative else value
    reader.position = start
    if reader.at("true", "false"):
        return reader.take() == "true"
    if not reader.at(*FUNCTIONS):
        return read_dim(reader, scope)
    function = reader.take()
    if depth == DEEPEST:
        reader.fail_before(f"no more than {DEEPEST} functions of one another")
    reader.expect("(")
    inner = reader.listed(lambda: read_scalar(reader, scope, depth + 1), ")")
    return Apply(function, tuple(inner))


def read_declared(reader: Reader, scope: Mapping[str, Dim]) -> Sym:
    """Read the declaration of a symbol, computed or not."""
    symbol = read_symbol(reader, scope)
    if not reader.accept("="):
        return symbol
    return Sym(symbol.name, symbol.lo, symbol.hi, read_scalar(reader, scope))


class Descent:
    """Recursive descent over the text of an IR: the parts that all of these texts have. `scope` has
    the dims of the symbols that have been declared, by name."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.scope: dict[str, Dim] = {}

    def _inside(self, brackets: str, item: Callable[[], T]) -> T:
        """Return the item between two brackets."""
        return self._after(brackets[0], item, brackets[1])

    def _after(self, text: str, item: Callable[[], T], end: str = "") -> T:
        """Return the item after a word or mark, and before another, if given."""
        self._reader.expect(text)
        found = item()
        if end:
            self._reader.expect(end)
        return found

    def _group(self, word: str, item: Callable[[], T]) -> tuple[T, ...]:
        """Return the items of `word "(" item {"," item} ")"`; none where the word is missing."""
        if not self._reader.accept(word):
            return ()
        self._reader.expect("(")
        return tuple(self._reader.listed(item, ")"))

    def _dim(self) -> Dim:
        return read_dim(self._reader, self.scope)

    def _bracketed_dim(self) -> Dim:
        return self._inside("<>", self._dim)

    def _equation(self) -> tuple[Dim, Dim]:
        return self._dim(), self._after("=", self._dim)

    def _symbol(self) -> Sym:
        """Read and enter the declaration of a symbol."""
        symbol = read_declared(self._reader, self.scope)
        self.scope[symbol.name] = of_atom(symbol)
        return symbol

    def _dtype(self, name: str | None = None) -> DType:
        """Return the dtype of this name, or of the name that comes next."""
        name = self._reader.name("a dtype") if name is None else name
        if name not in BY_NAME:
            self._reader.fail_before(f"a dtype, not {name!r}: {', '.join(BY_NAME)}")
        return BY_NAME[name]


def parse_scalar(text: str, scope: Mapping[str, Dim]) -> Scalar:
    """Return the scalar of a whole text. ValueError for a text that is none."""
    reader = Reader(text)
    found = read_scalar(reader, scope)
    reader.expect_end()
    return found
