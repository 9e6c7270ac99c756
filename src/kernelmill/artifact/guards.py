"""Guards of arguments: checks that a call's arguments fit a program; see `Guard`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kernelmill.artifact import paths
from kernelmill.artifact.fingerprint import is_code, name_of
from kernelmill.artifact.guard_kinds import KINDS, Texts, is_about_layout, layout_of
from kernelmill.artifact.guard_records import Watch
from kernelmill.artifact.manifest import CallSpec, Condition, Guard, Root, Source
from kernelmill.artifact.owned import Survey
from kernelmill.artifact.paths import MISSING, ArgumentReader, Path, Roots, follow, text_of
from kernelmill.core import scalar
from kernelmill.core.digest import digest_of
from kernelmill.core.dim import Dim, of_atom, sym, symbols
from kernelmill.core.errors import InputError
from kernelmill.core.expr import Sym
from kernelmill.core.scalar import evaluate_scalar, parse_scalar, roots, scalar_text, symbols_in
from kernelmill.plan.ir import Plan, SymbolInput, TensorInput
from kernelmill.runtime.calls.engine import CheckSizes

_MOST_KNOWN = 64
"""Classes and functions, and layouts, that are recognised without being compared again."""


class ArgumentCode:
    """Classes and functions among the arguments, as texts that change when their code does. Each
    new one is added to the `records` of what is watched; `fresh` says that some are not watched
    yet."""

    def __init__(self, names: Iterable[str], whole: bool = False) -> None:
        """Take the names in traced code, and `whole` as a survey has it."""
        self._names, self._whole = frozenset(names), whole
        self._texts: dict[int, tuple[Any, str]] = {}
        self.records, self.fresh = Watch(), False

    def watch_with(self, records: Watch, known: bool) -> None:
        """Add what texts depend on to these records: that of later ones, and that of those `known`;
        else these are forgotten."""
        if known:
            records.join(self.records)
        self.records, self.fresh = records, False
        if not known:
            self._texts = {}  # last, as another thread reads it first

    def __call__(self, value: Any) -> str:
        """Return the text of a class or function."""
        if not is_code(value):
            return name_of(value)
        texts, records = self._texts, self.records
        if known := texts.get(id(value)):
            return known[1]
        survey = Survey(self._names, None, self._whole)
        survey.add_root(Root((("argument", ""),)), value)
        text = f"{name_of(value)} {digest_of(repr(survey.lines).encode())}"
        if len(texts) < _MOST_KNOWN:
            records.join(survey.records)
            texts[id(value)] = value, text
            self.fresh = True
        return text

    def is_watched(self, value: Any) -> bool:
        """Return whether a change of the value would be noticed: of data, or of watched code."""
        return not is_code(value) or id(value) in self._texts


def with_value(guard: Guard, roots: Roots, texts: Texts) -> Guard:
    """Return the guard with the value that it finds now. MissingPath if there is none."""
    other, text = follow(guard.other, roots) if guard.other else None, KINDS[guard.kind].text
    return replace(guard, found=text(guard, follow(guard.path, roots), other, texts))


def found_in(guard: Guard, value: Any, texts: Texts) -> str:
    """Return the text that a guard of one path finds in a value."""
    return KINDS[guard.kind].text(guard, value, None, texts)


def _difference(guard: Guard, value: Any, other: Any, texts: Texts) -> str:
    if value is MISSING or other is MISSING:
        return f"{in_words(guard.path if value is MISSING else guard.other)} is not there"
    try:
        now = KINDS[guard.kind].text(guard, value, other, texts)
    except TypeError:
        now = name_of(type(value))
    if now == guard.found:
        return ""
    wanted, came = (text.replace("builtins.", "")[:_SHOWN] for text in (guard.found, now))
    attribute = "" if is_about_layout(guard) else guard.name
    return f"{in_words(guard.path, attribute)}: expected {wanted}, got {came}"


_SHOWN = 120


def in_words(path: Path, attribute: str = "") -> str:
    """Return the name of a value at a path, for messages."""
    if path[0][0] != "argument":
        return text_of(path)
    return f"argument '{paths.name_of_argument(path)}{attribute and f'.{attribute}'}'"


class ArgumentChecks:
    """Guards of arguments, evaluated at each call."""

    def __init__(
        self, guards: Iterable[Guard], numbers: Mapping[int, int] | range, code: ArgumentCode
    ) -> None:
        """`numbers` has, for places, where their values stand among those to look at."""
        self._guards = [
            (guard, numbers[guard.place], numbers[guard.other_place] if guard.other else None)
            for guard in guards
        ]
        self._code = code

    def difference(self, values: Sequence[Any]) -> str:
        """Describe the first guard that fails; "" when all hold."""
        for guard, number, other in self._guards:
            value = values[number]
            other = None if other is None else values[other]
            if differs := _difference(guard, value, other, self._code):
                return differs
            # Whether an object has an attribute is for its class to say, which is watched then.
            if guard.kind in ("absent", "has", "type"):
                self._code(type(value))
        return ""


def layout_check(
    guards: Iterable[Guard], read: ArgumentReader
) -> Callable[[Sequence[Any]], bool] | None:
    """Return a check of a call's values: tensors whose layout the trace has read must be as in the
    trace. It comes before a quick call, which only checks the program's inputs, and recognises
    layouts that were right before. None if the trace has read no layout."""
    asked = [guard for guard in guards if is_about_layout(guard)]
    checks, known = ArgumentChecks(asked, read.numbers, ArgumentCode(())), set[Any]()
    numbers = sorted({read.numbers[p] for g in asked for p in (g.place, g.other_place) if p >= 0})

    def fit(values: Sequence[Any]) -> bool:
        found = read(values)
        try:
            sign = tuple([layout_of(found[number]) for number in numbers])
        except TypeError:
            return False
        right = sign in known or not checks.difference(found)
        if right and len(known) < _MOST_KNOWN:
            known.add(sign)
        return right

    return fit if asked else None


_RELATIONS: Mapping[str, Callable[[int, int], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
}  # fmt: skip


def broken_sizes(spec: CallSpec, names: Iterable[str]) -> Callable[[Mapping[str, int]], str]:
    """Return a function that describes the first limit or condition broken by values of these
    symbols, by name; "" for none."""
    scope = {name: sym(name) for name in names}
    conditions = [
        (r, parse_scalar(a, scope), parse_scalar(b, scope)) for r, a, b in spec.conditions
    ]

    def broken(values: Mapping[str, int]) -> str:
        for limit in spec.limits:
            value = values.get(limit.symbol, limit.low)
            if value < limit.low or (limit.high is not None and value > limit.high):
                return f"{limit.where} is {value}, and has to be {limit.text()}"
        for relation, left, right in conditions:
            if not _RELATIONS[relation](*(evaluate_scalar(s, values) for s in (left, right))):
                sides = scalar_text(left), scalar_text(right)
                return f"sizes do not fit: {f' {relation} '.join(sides)} does not hold"
        return ""

    return broken


def asked_symbols(spec: CallSpec, plan: Plan) -> frozenset[str]:
    """Return the symbols of a plan that a limit, a condition or an equation names."""
    scope = {symbol.name: sym(symbol.name) for symbol in plan.symbols}
    sides = [parse_scalar(side, scope) for _, *both in spec.conditions for side in both]
    equal = roots(side for pair in plan.equations for side in pair)
    limited = (limit.symbol for limit in spec.limits)
    return frozenset((*limited, *equal, *(name for side in sides for name in symbols_in(side))))


def size_check(spec: CallSpec, plan: Plan) -> CheckSizes | None:
    """Return a function that raises InputError for values of a plan's symbols that the program does
    not accept; None when it accepts all that the plan does."""
    if not plan.symbols or not (spec.limits or spec.conditions):
        return None
    broken = broken_sizes(spec, [symbol.name for symbol in plan.symbols])

    def check(values: Mapping[str, int]) -> None:
        if found := broken(values):
            raise InputError(found)

    return check


def equal_integers(
    inputs: Sequence[Source], repeated: Iterable[tuple[int, Dim, Dim]]
) -> tuple[Condition, ...]:
    """Return conditions that integers equal those of the trace (`ImportedGraph.repeated`); those
    that are sizes of tensors are checked with these, and not all of their strides."""
    sizes = {n for n, source in enumerate(inputs) if source.axis >= 0 and source.part == "size"}
    return tuple(("==", str(a), scalar.spelled(b)) for n, a, b in repeated if n not in sizes)


def where_of(plan: Plan, symbol: Sym) -> str:
    """Describe the dim or stride that a symbol stands for."""
    tensors = [entry for entry in plan.inputs if isinstance(entry, TensorInput)]
    dims = [(n, dim, entry.name) for entry in tensors for n, dim in enumerate(entry.shape)]
    strides = [(n, dim, entry.name) for entry in tensors for n, dim in enumerate(entry.strides)]
    for what, found in (("dim", dims), ("stride", strides)):
        for axis, dim, name in found:
            if dim == of_atom(symbol):
                return f"{what} {axis} of argument {name!r}"
    for axis, dim, name in dims:
        if symbol.name in symbols(dim):
            return f"{symbol.name} in dim {axis} ({dim}) of argument {name!r}"
    integers = [entry.symbol for entry in plan.inputs if isinstance(entry, SymbolInput)]
    return f"integer argument {integers.index(symbol.name) + 1} of {len(integers)}"
