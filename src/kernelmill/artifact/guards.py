"""Whether the arguments of a call are what a program is for; see `Guard`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kernelmill.artifact.fingerprint import finds_attributes, is_code, name_of
from kernelmill.artifact.guard_kinds import KINDS, Texts
from kernelmill.artifact.guard_records import GuardRecords
from kernelmill.artifact.layouts import is_about_layout, layout_of
from kernelmill.artifact.manifest import Guard, Manifest, Root
from kernelmill.artifact.owned import Survey
from kernelmill.artifact.paths import (
    MISSING,
    ArgumentReader,
    Path,
    Roots,
    follow,
    name_of_argument,
    text_of,
)
from kernelmill.core.digest import digest_of

_MOST_KNOWN = 64
"""Classes and functions, and layouts, that are recognised without being compared again."""


class GivenCode:
    """The classes and functions that calls pass, as text. What this depends on is added to the
    `records` of what is watched; `fresh` says that there is more of it than before."""

    def __init__(self, names: Iterable[str], whole: bool = False) -> None:
        """Take the names in traced code, and `whole` as a survey has it."""
        self._names, self._whole = frozenset(names), whole
        self._texts: dict[int, tuple[Any, str]] = {}
        self.records, self.fresh = GuardRecords(), False

    def watch_with(self, records: GuardRecords) -> None:
        """Forget all texts; what further ones depend on is added to these records."""
        self._texts, self.records, self.fresh = {}, records, False

    def __call__(self, value: Any) -> str:
        """Return the text of a class or function."""
        if not is_code(value):
            return name_of(value)
        if known := self._texts.get(id(value)):
            return known[1]
        survey = Survey(self._names, None, self._whole)
        survey.add_root(Root((("argument", ""),)), value)
        text = f"{name_of(value)} {digest_of(repr(survey.lines).encode())}"
        if len(self._texts) < _MOST_KNOWN:
            self.records.join(survey.records)
            self._texts[id(value)] = value, text
            self.fresh = True
        return text

    def keeps(self, value: Any) -> bool:
        """Return whether a value is as it was while what is watched has not changed."""
        return not is_code(value) or id(value) in self._texts

    def covers(self, name: str) -> bool:
        """Return whether what classes have under a name is watched."""
        return name in self._names or finds_attributes(name)


def noted(guard: Guard, roots: Roots, texts: Texts) -> Guard:
    """The guard with what it finds now. MissingPath when there is nothing."""
    other, text = follow(guard.other, roots) if guard.other else None, KINDS[guard.kind].text
    return replace(guard, found=text(guard, follow(guard.path, roots), other, texts))


def found_in(guard: Guard, value: Any, texts: Texts) -> str:
    """What a guard of one path finds in a value."""
    return KINDS[guard.kind].text(guard, value, None, texts)


def changes(reads: Iterable[Guard], values: Sequence[Any], texts: Texts) -> Iterator[str]:
    """What is not as it was found, in words; `values` are those of the tree."""
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
        self, guards: Iterable[Guard], numbers: Mapping[int, int], code: GivenCode
    ) -> None:
        """`numbers` has, for places, where their values stand among those to look at."""
        other = numbers.get
        self._guards = [
            (each, numbers[each.place], other(each.other_place, -1), KINDS[each.kind].sign)
            for each in guards
        ]
        self._code = code
        self._right: list[Any] = [self] * len(self._guards)  # which is no sign

    def difference(self, values: Sequence[Any]) -> str:
        """Describe the first guard that fails; "" when all hold."""
        for n, (guard, number, other, sign_of) in enumerate(self._guards):
            value, right = values[number], self._right[n]
            sign = sign_of(value)
            same = sign == right if type(sign) is tuple else sign is right
            if same and self._code.keeps(sign):
                continue
            other = None if other < 0 else values[other]
            if differs := _difference(guard, value, other, self._code):
                return differs
            self._right[n] = sign
            if is_code(sign):  # is watched then
                self._code(sign)
        return ""


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
                if text(guard, found[number], found[other], name_of) != guard.found:
                    return False
        except TypeError:
            return False
        if len(self._known) < _MOST_KNOWN:
            self._known.add(sign)
        return True
