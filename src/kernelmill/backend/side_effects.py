"""Changes of objects by traced code, as effects that a program can apply without a trace.

Dynamo knows the changed places, and the source of a new value that existed before; the object has
the new value after the call. A method with a change that these two do not explain cannot be cached.

Marks on the results of a recorded program, which identify them in the value that the function
returns and in the objects it changes.

Torch identifies memory by storages. Two tensors over one array (`torch.from_numpy`,
`torch.frombuffer`) have different storages, and are traced as if a write to one were not visible in
the other. In eager it is visible: such calls are refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, cast

import torch

from kernelmill.artifact.manifest import Effect, Guard, Shape
from kernelmill.artifact.paths import MissingPath, Path, Roots, follow, step_into, text_of
from kernelmill.artifact.results import PUTS, Shaper, is_new_value, tuple_of
from kernelmill.backend.sources import SourceReader
from kernelmill.compiler.linking import LoweredProgram
from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import UnsupportedError
from kernelmill.plan.ir import TensorInput
from kernelmill.runtime.weights.contents import memory_behind
from kernelmill.runtime.weights.page_scan import overlap
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
        """Return guards of the changed objects in addition to Dynamo's, without the values that
        they find."""
        paths = [path for path in self.owners if path[0][0] == "argument"]
        lists = [Guard("shape", path) for path in paths if type(self.owners[path]) is list]
        return [*(Guard("class", path) for path in paths), *lists]

    def settled(self, shaper: Shaper) -> tuple[tuple[Effect, ...], list[Path]]:
        """Return the effects, after the program has run and made them, and the places whose value
        is unchanged in the end, which has to be so in each call. UnsupportedError names a place
        that is neither; CountsUp if symbols for integers would make effects of all changes."""
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


class MarkedInteger(int):
    """An integer that is a result of the program, distinguishable from others of the same value."""


class MarkedFloat(float):
    """A number that was read from a result, distinguishable from others of the same value."""


class MarkedTensor(torch.Tensor):
    """A result of the program with a number that the function computes with or returns, as
    `x.sum().item()`: Dynamo reads it from the result. `taken` are such numbers, `plain` is the
    result itself."""

    plain: torch.Tensor
    taken: list[MarkedFloat]

    @classmethod
    def of(cls, result: torch.Tensor) -> MarkedTensor:
        """Return the result, marked."""
        made = result.as_subclass(cls)
        made.plain, made.taken = result, []
        return made

    def item(self) -> float:
        """Return its number, marked too."""
        number = MarkedFloat(self.plain.item())
        self.taken.append(number)
        return number


def marked(number: int, result: Any, scalars: Collection[int]) -> Any:
    """Mark a result of a program, by its number, if it needs a mark; `scalars` are the results from
    which numbers are read."""
    if type(result) is int:
        return MarkedInteger(result)
    return MarkedTensor.of(result) if number in scalars else result


def unmarked(value: Any) -> Any:
    """Return a value with its marked parts replaced by plain ones; containers in place."""
    if isinstance(value, MarkedInteger):
        return int(value)
    if isinstance(value, MarkedFloat):
        return float(value)
    if isinstance(value, MarkedTensor):
        return value.plain
    if isinstance(value, dict):
        for key in list(value):
            value[key] = unmarked(value[key])
        return value
    if isinstance(value, type):
        return value
    if is_dataclass(value):
        for each in fields(value):
            if hasattr(value, each.name):  # it need not be set
                object.__setattr__(value, each.name, unmarked(getattr(value, each.name)))
        return value
    if isinstance(value, (list, deque)):
        for place, part in enumerate(cast("list[Any]", value)):
            value[place] = unmarked(part)
        return value
    if isinstance(value, tuple):
        return tuple_of(type(value), [unmarked(part) for part in value])
    for name, part in list(getattr(value, "__dict__", {}).items()):
        if isinstance(
            part, (MarkedInteger, MarkedFloat, MarkedTensor)
        ):  # it may be a model: no deeper
            vars(value)[name] = unmarked(part)
    return value


class SharedMemoryWritten(Exception):
    """A graph that writes to an argument was called with shared memory. Nothing was written."""

    def __init__(self) -> None:
        super().__init__("arguments that share memory are written to")


def with_storages_apart(
    call: Callable[..., Any], made: Sequence[LoweredProgram]
) -> Callable[..., Any]:
    """Wrap the `call` of a graph, compiled to these programs, so that it raises SharedMemory. A
    call without writes to arguments is returned unchanged."""
    if made and not any(map(_writes, made)):
        return call

    def checked(*args: Any) -> Any:
        if overlap([memory_behind(storage) for storage in _storages(args)]):
            raise SharedMemoryWritten
        return call(*args)

    return checked


def _writes(program: LoweredProgram) -> bool:
    entries = program.lowered.plan.inputs
    return any(isinstance(entry, TensorInput) and entry.updated for entry in entries)


def _storages(arguments: Iterable[Any]) -> set[torch.UntypedStorage]:
    return {
        value.untyped_storage()
        for value in arguments
        if isinstance(value, torch.Tensor) and value.layout == torch.strided and value.numel()
    }
