"""Whether the arguments of a call are what a program is for; see `Guard`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from kernelmill.artifact.fingerprint import class_text, name_of
from kernelmill.artifact.guard_kinds import KINDS, Texts
from kernelmill.artifact.layouts import is_about_layout, layout_of
from kernelmill.artifact.manifest import Guard, Manifest
from kernelmill.artifact.paths import (
    MISSING,
    ArgumentReader,
    Path,
    Roots,
    follow,
    name_of_argument,
    text_of,
)


def noted(guard: Guard, roots: Roots, names: frozenset[str] = frozenset()) -> Guard:
    """The guard with what it finds now. MissingPath when there is nothing."""
    other, text = follow(guard.other, roots) if guard.other else None, KINDS[guard.kind].text
    texts = partial(class_text, names=names)
    return replace(guard, found=text(guard, follow(guard.path, roots), other, texts))


def found_in(guard: Guard, value: Any) -> str:
    """What a guard of one path finds in a value."""
    return KINDS[guard.kind].text(guard, value, None, class_text)


def changes(reads: Iterable[Guard], values: Sequence[Any], names: frozenset[str]) -> Iterator[str]:
    """What is not as it was found, in words; `values` are those of the tree."""
    texts = cache(partial(class_text, names=names))  # many guards ask for one class
    for guard in reads:
        other = values[guard.other_place] if guard.other else None
        if differs := _difference(guard, values[guard.place], other, texts):
            yield differs


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
    """What is at a path, for the one who calls."""
    if path[0][0] != "argument":
        return text_of(path)
    return f"argument '{name_of_argument(path)}{attribute and f'.{attribute}'}'"


class RepeatedChecks:
    """Guards of arguments, evaluated at each call. A value that passed is recognised the next time
    by its sign."""

    def __init__(
        self, guards: Iterable[Guard], numbers: Mapping[int, int], names: frozenset[str]
    ) -> None:
        """`numbers` has, for places, where their values stand among those to look at."""
        other = numbers.get
        self._guards = [
            (each, numbers[each.place], other(each.other_place, -1), KINDS[each.kind].sign)
            for each in guards
        ]
        self._texts = partial(class_text, names=names)  # anew: a class may get other methods
        self._right: list[Any] = [self] * len(self._guards)  # which is no sign

    def difference(self, values: Sequence[Any]) -> str:
        """Describe the first guard that fails; "" when all hold."""
        for n, (guard, number, other, sign_of) in enumerate(self._guards):
            value, right = values[number], self._right[n]
            sign = sign_of(value)
            if sign is right or (type(sign) is tuple and sign == right):
                continue
            other = None if other < 0 else values[other]
            if differs := _difference(guard, value, other, self._texts):
                return differs
            self._right[n] = sign
        return ""


_MOST_KNOWN = 64
"""Layouts that are recognised without being compared again."""


class ArgumentLayouts:
    """Whether tensors that are asked for their layout are as they were in the trace: looked at
    before each quick call, which sees the program's inputs alone."""

    def __init__(self, manifest: Manifest) -> None:
        checks = [guard for guard in manifest.spec.checks if is_about_layout(guard)]
        places = {p for guard in checks for p in (guard.place, guard.other_place) if p >= 0}
        self._read = ArgumentReader(manifest.tree, manifest.spec.names, places)
        numbers = self._read.numbers
        self._checks = [
            (each, numbers[each.place], numbers.get(each.other_place, -1)) for each in checks
        ]
        self._numbers = [numbers[place] for place in sorted(places)]
        self._known: set[tuple[Any, ...]] = set()

    def fit(self, values: Sequence[Any]) -> bool:
        """Whether a call with these is right. What was seen to be is recognised."""
        found = self._read(values)
        try:
            sign = tuple([layout_of(found[number]) for number in self._numbers])
            if sign in self._known:
                return True
            for guard, number, other in self._checks:
                text = KINDS[guard.kind].text
                if text(guard, found[number], found[other], class_text) != guard.found:
                    return False
        except TypeError:
            return False
        if len(self._known) < _MOST_KNOWN:
            self._known.add(sign)
        return True
