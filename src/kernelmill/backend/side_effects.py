"""Changes by traced code besides tensors, as effects that a program can apply without a trace.

Dynamo has the places that change, and the source of a new value that existed before; the object
itself has the new value after the call. A change that these two do not explain makes a method
uncacheable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from kernelmill.artifact.effects import PUTS, is_new_value
from kernelmill.artifact.manifest import Effect, Guard
from kernelmill.artifact.paths import MissingPath, Path, Roots, follow, step_into, text_of
from kernelmill.artifact.results import Shaper
from kernelmill.artifact.shapes import Shape
from kernelmill.backend.sources import SourceReader
from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import UnsupportedError
from kernelmill.torch_internals import dynamo
from kernelmill.torch_internals.dynamo import Mutation

_NOTHING = object()


class CountsUp(UnsupportedError):
    """The function changes integers of its arguments, such as counters, and the trace has constants
    in their place. `places` are their paths."""

    def __init__(self, message: str, places: Sequence[Path]) -> None:
        super().__init__(message)
        self.places = places


_KEYS = (str, int, bool, type(None))
_CONTAINERS = (list, dict, set, tuple)


@dataclass(frozen=True)
class _Change:
    """A change of one place: the value of `owner`, which is at `path`, under `kind` and `key`. The
    value was `before`; it becomes the one at the path `given`, if that is a path."""

    path: Path
    owner: Any
    kind: str
    key: Any
    before: Any
    given: Path | None

    @property
    def place(self) -> Path:
        return (*self.path, (self.kind, self.key))

    def now(self) -> Any:
        """Return the current value; _NOTHING when there is none."""
        return _found(self.owner, self.kind, self.key)

    def is_counted(self, shaper: Shaper) -> bool:
        """Return whether a constant replaces an integer: a program for each of its values would be
        kept. Of 0 and 1, which Dynamo makes no symbols of, there are two at most."""
        now, before = self.now(), self.before
        if not (_is_number(now) and _is_number(before)) or shaper.is_result(now):
            return False
        return self.given is None and before not in (0, 1) and self.path[0][0] == "argument"

    def effect(self, value: Shape) -> Effect:
        grows = type(self.owner) is list and self.before is _NOTHING
        return Effect(self.path, "append" if grows else self.kind, self.key, value)


def _found(owner: Any, kind: str, key: Any) -> Any:
    try:
        return step_into(owner, (kind, key))
    except (AttributeError, LookupError, TypeError):
        return _NOTHING


class SideEffects:
    """The changes by a finished trace when its program has run. `refused` names those that can be
    no effect; `owners` are the objects that change, by their paths. Changes of the dict of a
    parameter `**rest` do not count: Python makes it for the call."""

    def __init__(
        self, output: Any, reader: SourceReader, roots: Roots, rest: Path | None = None
    ) -> None:
        self.changes: list[_Change] = []
        self.refused: list[str] = []
        self.owners: dict[Path, Any] = {}
        for mutation in dynamo.mutations(output):
            name = "something" if mutation.owner is None else str(mutation.owner.name)
            try:
                if mutation.owner is None or reader.path(mutation.owner) != rest:
                    self.changes += self._of_one(mutation, reader, roots)
            except (MissingPath, UnsupportedError):
                self.refused.append(name)
        kept = [each for each in self.changes if rest is not None and each.given == rest]
        self.refused += [text_of(each.place) for each in kept]

    def _of_one(self, mutation: Mutation, reader: SourceReader, roots: Roots) -> Iterator[_Change]:
        if mutation.owner is None:
            raise UnsupportedError("an object without a source")
        path = reader.path(mutation.owner)
        owner = follow(path, roots)
        kind, stored = "attribute", mutation.attributes
        if mutation.items is not None:
            kind, stored = "item", mutation.items
            had = list(range(len(owner)) if type(owner) is list else owner)
            keys_known = all(type(key) in _KEYS for key in (*had, *stored))
            if not keys_known or type(owner) not in (list, dict) or [*stored][: len(had)] != had:
                raise UnsupportedError("an element is taken out, or moved")
        elif not stored or isinstance(owner, _CONTAINERS):
            raise UnsupportedError("contents of a class that is not known")
        self.owners[path] = owner
        for key, source in stored.items():
            given = None if source is None else reader.path(source)
            yield _Change(path, owner, kind, key, _found(owner, kind, key), given)

    @property
    def reads(self) -> list[Guard]:
        """What is asked of the objects that change, besides what Dynamo asks; not yet what these
        find."""
        paths = [path for path in self.owners if path[0][0] == "argument"]
        lists = [Guard("shape", path) for path in paths if type(self.owners[path]) is list]
        return [*(Guard("class", path) for path in paths), *lists]

    def settled(self, shaper: Shaper) -> tuple[tuple[Effect, ...], list[Path]]:
        """The effects, now that the program has run and they have been done, and the places that
        have in the end what they had, which has to be the same in each call. UnsupportedError names
        what is neither; CountsUp where symbols for integers would make effects of all changes."""
        effects: list[Effect] = []
        counted: list[Path] = []
        restored: list[Path] = []
        refused = [*self.refused]
        for change in self.changes:
            now = change.now()
            is_same = now is change.before and now is not _NOTHING
            if is_same and change.given == change.place:
                restored += [change.place] if change.kind == "attribute" else []
            elif is_same and change.given is None:
                # A tensor that is written in place is an input of the program, and compared so.
                restored += [] if isinstance(now, torch.Tensor) else [change.place]
            elif change.is_counted(shaper):
                counted.append(change.place)
            else:
                value, reason = _value(change, now, shaper)
                if value is None:
                    refused.append(f"{text_of(change.place)}{reason}")
                else:
                    effects.append(change.effect(value))
        if refused or counted:
            numbers = [f"{text_of(place)} (a number)" for place in counted]
            message = f"it changes {', '.join((*refused, *numbers))} besides tensors"
            raise UnsupportedError(message) if refused else CountsUp(message, counted)
        return tuple(effects), restored

    def replace(self, instead: Callable[[Any], Any]) -> None:
        """Replace numbers and tensors that the program has put into objects."""
        for change in self.changes:
            now = change.now()
            if change.given is None and now is not _NOTHING and (made := instead(now)) is not now:
                PUTS[change.kind](change.owner, change.key, made)


def _value(change: _Change, now: Any, shaper: Shaper) -> tuple[Shape | None, str]:
    """Return the value that an effect sets at a place; None and the reason where it cannot."""
    if change.path[0][0] != "argument":
        return None, ""
    if change.kind == "attribute" and not _is_plain(change.owner, change.key):
        return None, " (its class has a say in that)"
    if now is _NOTHING:
        return None, " (which is deleted)"
    if change.given is not None:
        return {"input": change.given}, ""
    try:
        shape = shaper.describe(now)
    except UnsupportedError:
        shape = {}
    if is_new_value(shape):
        return shape, ""
    return None, f" (to a new {type(now).__name__})"


def _is_plain(owner: Any, name: str) -> bool:
    """Return whether an attribute is set in the default way, without code of the class."""
    kind = type(owner)
    if kind.__setattr__ is not object.__setattr__:
        return False
    return not hasattr(type(getattr(kind, name, None)), "__set__")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
