"""State that must not change for a program to be valid, as records of the native watch.

An item is the value of a dict or list under a key or index, or its absence; a property is a
characteristic of an object itself (`Property`). Checking the identity of a value takes about 40 ns
in Python, and a few natively.

Each call checks that the objects of a bound program's owner are still the same. Only if one of them
is another object, the full survey is repeated.
"""

from __future__ import annotations

import builtins
import sys
import types
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import filterfalse, islice
from operator import attrgetter, eq, is_
from typing import Any

import torch

from kernelmill.artifact.code import function_of, place_of_global
from kernelmill.artifact.fingerprint import (
    finds_attributes,
    fingerprint,
    is_atom,
    is_immutable,
)
from kernelmill.artifact.guard_kinds import layout_of
from kernelmill.artifact.manifest import CodeUse
from kernelmill.artifact.paths import MISSING, Tree
from kernelmill.core.dataclass import dataclass
from kernelmill.runtime.calls.changes import ChangeLog, change_log
from kernelmill.runtime.layout import WatchKind
from kernelmill.runtime.quick import Row, count_row, version_row, word_row
from kernelmill.torch_internals.modules import tables_of
from kernelmill.torch_internals.objects import (
    SIZE_AT,
    TYPE_AT,
    dict_of,
    dict_version,
    function_fields,
    resolution_at,
    space_at,
)

Place = tuple[Any, Any]
"""A dict, list or tuple, and the key or index in it."""


@dataclass(frozen=True, eq=False)
class Property:
    """A property `read` from an object and compared by `same`. `row` makes its native record; None
    if there is none and Python must check at each call. `with_contents`: a watch on all changes of
    a dict or class covers it, unless `ordered` and keys of an OrderedDict are moved."""

    read: Callable[[Any], Any]
    same: Callable[[Any, Any], bool]
    row: Callable[[Any], Row | None] | None
    with_contents: bool = False
    ordered: bool = False


def _space_row(owner: object) -> Row | None:
    find = space_at.get()
    return word_row(owner, find and find(owner), id(vars(owner)))


def _order_row(kind: type) -> Row | None:
    # Without the offset this is no more than that the class has the same metaclass.
    offset = resolution_at.get()
    return word_row(kind, offset or TYPE_AT, id(kind.__mro__ if offset else type(kind)))


CLASS = Property(type, is_, lambda owner: word_row(owner, TYPE_AT, id(type(owner))))
SPACE = Property(vars, is_, _space_row)
"""Identity of the object's `__dict__`."""
ORDER = Property(attrgetter("__mro__"), is_, _order_row, with_contents=True)
"""Method resolution order of a class."""
SIZE = Property(len, eq, lambda owner: word_row(owner, SIZE_AT, len(owner)), with_contents=True)
"""Length of a list."""


def _held(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def _field_row(field: str, owner: types.FunctionType) -> Row | None:
    value = getattr(owner, field)
    # No defaults are a null pointer.
    expected = 0 if value is None else id(value)
    return word_row(owner, (function_fields.get() or {}).get(field), expected)


CELL = Property(_held, is_, lambda cell: word_row(cell, SIZE_AT, id(_held(cell))))
"""Value of a closure variable."""
FUNCTION = [
    Property(attrgetter(field), is_, partial(_field_row, field))
    for field in ("__code__", "__defaults__", "__kwdefaults__")
]
"""Fields of a function: its code and its defaults."""


def _elements(value: Any) -> Any:
    return fingerprint(value) if isinstance(value, (set, frozenset)) else list(value)


ELEMENTS = Property(_elements, lambda found, value: _alike(found, value), None)
"""Elements of a set or a deque."""


KEYS = Property(
    lambda owner: [key for key, _ in items_of(owner)], lambda found, value: _alike(found, value),
    None, with_contents=True, ordered=True,
)  # fmt: skip
"""The keys of a dict in their order."""


def items_of(owner: dict[Any, Any]) -> list[tuple[Any, Any]]:
    """Return the items of a dict of any class, in order."""
    if isinstance(owner, OrderedDict):
        return list(OrderedDict.items(owner))
    return list(dict.items(owner))


def is_noticed(kind: Property, owner: Any) -> bool:
    """Return whether a watch on all changes of a dict or class covers a property. An OrderedDict
    may have keys moved without a change of its underlying dict."""
    moves = kind.ordered and isinstance(owner, OrderedDict) and len(owner) > 1
    return kind.with_contents and not moves


def found_by(
    step: Callable[[Any], Any], same: Callable[[Any, Any], bool] | None = None
) -> Property:
    """Return a property that takes a step to a value under no key: every call evaluates it."""

    def read(owner: Any) -> Any:
        try:
            return step(owner)
        except (AttributeError, LookupError, TypeError):
            return MISSING

    return Property(read, same or _alike, None)


def _alike(found: Any, value: Any) -> bool:
    if type(value) is list and type(found) is list:  # a slice
        return len(found) == len(value) and all(map(_alike, found, value))
    if found is value or (isinstance(found, types.MethodType) and found == value):
        return True
    both = is_atom(found) and is_atom(value)
    return both and fingerprint(found) == fingerprint(value)


def _holds(record: tuple[Any, Property, Any]) -> bool:
    owner, kind, value = record
    return kind.same(value, kind.read(owner))


def held_in_context(*default: Any) -> Property:
    """Return a property for the value of a ContextVar, or else the default: threads and tasks may
    differ, so every call reads it."""
    return found_by(lambda variable: variable.get(*default), is_)


@dataclass(frozen=True, eq=False)
class _HeldTensor:
    """A stand-in for a tensor, which a watch must not keep alive: `torch.utils.swap_tensors`
    refuses tensors with other references. `layout` is the metadata to keep, None for inputs."""

    number: int
    kind: type
    layout: tuple[Any, ...] | None


OFTEN = 3
"""After so many changes an object that calls compare as a whole counts as one that changes often:
imports and compilers change a class once or twice."""


class Watch:
    """The state that must not change. `items` are (owner, key, value), MISSING for an absent value;
    `properties` are (owner, kind, value). `often` has the ids of dicts and classes that change
    often: they are not watched as a whole. `replaceable` has the ids of inputs, held in one place,
    that any tensor may replace which is none of `known`; `places` are those of inputs, which native
    records watch too."""

    def __init__(
        self,
        names: frozenset[str] = frozenset(),
        is_input: Callable[[int], bool] = lambda number: False,
        known: Collection[int] = (),
    ) -> None:
        """Take the names in traced code, also of attributes, and which ids are of the program's
        tensors."""
        self.members = self._named(lambda name: name in names or finds_attributes(name))
        self.contents = Property(items_of, self._same_pairs, None, with_contents=True, ordered=True)
        self._attributes: dict[Any, Property] = {}
        self._is_input, self._known = is_input, known
        self._replaced: dict[int, _HeldTensor] = {}
        self.replaceable, self.often = set[int](), set[int]()
        self.places: Sequence[Place] = ()
        self._told, self._moves = set[int](), Counter[int]()
        self._differed: list[tuple[Any, Property, Any]] = []
        self.items: dict[tuple[int, Any], tuple[Any, Any, Any]] = {}
        self.properties: dict[tuple[int, Property], tuple[Any, Property, Any]] = {}

    def _named(self, counts: Callable[[str], bool]) -> Property:
        """Return a property for what a dict has under the names that count."""

        def read(space: dict[str, Any]) -> dict[str, Any]:
            return {name: value for name, value in list(space.items()) if counts(name)}

        return Property(read, self._same_items, None, with_contents=True)

    def _held(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        inputs = self._is_input(id(value)) or id(value) in self.replaceable
        layout = None if inputs else layout_of(value)
        return _HeldTensor(id(value), type(value), layout)

    def _is_same(self, found: Any, value: Any) -> bool:
        if type(found) is not _HeldTensor:
            return found is value
        if type(value) is not found.kind:
            return False
        if id(value) == found.number:
            return found.layout is None or layout_of(value) == found.layout
        free = found.number in self.replaceable and id(value) not in self._known
        return free and self._replaced.setdefault(id(value), found) is found

    def _same_pairs(self, found: list[tuple[Any, Any]], value: list[tuple[Any, Any]]) -> bool:
        pairs = zip(found, value, strict=False)
        return len(found) == len(value) and all(
            self._is_same(held, now) and _alike(key, its) for (key, held), (its, now) in pairs
        )

    def _same_items(self, found: dict[str, Any], value: dict[str, Any]) -> bool:
        """Compare two dicts by the identity of their values, in any order."""
        same = (self._is_same(found.get(name, MISSING), each) for name, each in value.items())
        return len(found) == len(value) and all(same)

    def add_item(self, owner: Any, key: Any, value: Any) -> None:
        """Record that an entry must stay the same object. Tuples never change."""
        if not isinstance(owner, tuple):
            self.items.setdefault((id(owner), key), (owner, key, self._held(value)))

    def add_property(self, owner: Any, kind: Property) -> Any:
        """Record that a property must stay equal; return its value."""
        value = kind.read(owner)
        if (id(owner), kind) not in self.properties:
            self.properties[id(owner), kind] = owner, kind, value
        return value

    def add_contents(self, owner: dict[Any, Any]) -> list[tuple[Any, Any]]:
        """Record that keys of a dict, in order, and their values must stay; return the items."""
        items = items_of(owner)
        held = [(key, self._held(value)) for key, value in items]
        self.properties.setdefault((id(owner), self.contents), (owner, self.contents, held))
        return items

    def add_attributes(self, space: dict[str, Any], names: frozenset[str] | None) -> dict[str, Any]:
        """Record that the values of these names (or all) in a __dict__ must not change; return
        them."""
        if names not in self._attributes:
            self._attributes[names] = self._named(lambda name: names is None or name in names)
        return self._add_items(space, self._attributes[names])

    def _add_items(self, space: dict[str, Any], kind: Property) -> dict[str, Any]:
        found = kind.read(space)
        held = {name: self._held(value) for name, value in found.items()}
        self.properties.setdefault((id(space), kind), (space, kind, held))
        return found

    def look_up(self, space: dict[Any, Any], name: Any) -> Any:
        """Record and return the value of a dict under a name; MISSING for none."""
        value = dict.get(space, name, MISSING)
        self.add_item(space, name, value)
        return value

    def join(self, other: Watch) -> None:
        """Record what another one has, too."""
        # Other threads may go through the old ones.
        self.items = {**other.items, **self.items}
        self.properties = {**other.properties, **self.properties}

    def add_class(self, kind: type) -> None:
        """Record that lookup in a class must stay for the names in traced code (`members_text`)."""
        for part in self.add_property(kind, ORDER):
            space = None if is_immutable(part) else dict_of(vars(part))
            if space is not None:
                self._add_items(space, self.members)

    def add_function(self, function: types.FunctionType) -> None:
        """Record that code and defaults of a function must stay."""
        for field in FUNCTION:
            self.add_property(function, field)

    def unchanged(self) -> bool:
        """Return whether all recorded state is the same now."""
        if not all(map(_holds, self._differed)):
            return False
        try:
            for place, (owner, key, value) in list(self.items.items()):
                found = owner[key] if isinstance(owner, list) else dict.get(owner, key, MISSING)
                if not self._is_same(value, found):
                    return False
                if type(value) is _HeldTensor and value.number != id(found):
                    self.replaceable.add(id(found))
                    self.items[place] = owner, key, self._held(found)
        except IndexError:
            return False
        differing = next(filterfalse(_holds, self.properties.values()), None)
        if differing is not None:
            self._differed = [differing]  # which is likely to differ again: models switch states
        return differing is None

    def add_code(self, use: CodeUse) -> None:
        """Watch the lookup of a function by its name, its code, and the functions and classes among
        the names that it uses; and that no builtin's name is shadowed."""
        module = sys.modules.get(use.module)
        if module is None:
            return
        space: dict[str, Any] | None = vars(module)
        for name in use.globals:
            holder, key = place_of_global(module, name)
            absent = key not in holder and ("." in name or hasattr(builtins, key))
            if absent or callable(holder.get(key)):
                self.look_up(holder, key)
        function = function_of(module, use.name)
        if function is not None:
            self.add_function(function)
        for name in use.name.split("."):
            if space is None or name not in space:
                return
            value = self.look_up(space, name)
            space = dict_of(vars(value)) if isinstance(value, type) else None

    def _is_whole(self, owner: Any) -> bool:
        """Return whether all changes of a dict are watched: not if it changes often."""
        can = dict_version.works or change_log() is not None
        return can and isinstance(owner, dict) and id(owner) not in self.often

    def without_rows(self) -> Callable[[], bool] | None:
        """Return a check of the state that `rows` does not watch: sets, the layout of tensors, and
        dicts that change often. None where there is none."""
        alone = [
            (owner, kind, value)
            for owner, kind, value in self.properties.values()
            if kind.row is None and not (is_noticed(kind, owner) and self._is_whole(owner))
        ]
        if not alone:
            return None
        return lambda: all(map(_holds, alone))

    def rows(self) -> list[Row] | None:
        """Return the records for the native watch; None when something has moved meanwhile.

        A dict is watched as a whole, one that changes often by its entries.
        """
        log = change_log()
        owners = [owner for owner, _, _ in self.items.values()]
        noticed = [o for o, kind, _ in self.properties.values() if is_noticed(kind, o)]
        whole = {id(owner): owner for owner in (*owners, *noticed) if self._is_whole(owner)}
        # Versions first, then the check: a change by another thread in between fails one of them.
        rows = self._watch_whole(log, whole)
        watched = {*whole, *self._told}
        items = [item for item in self.items.values() if id(item[0]) not in watched]
        items += [(owner, k, owner[k]) for owner, k in self.places if id(owner) not in watched]
        rows += [item_row(*item) for item in items]
        for owner, kind, _ in self.properties.values():
            if kind.row is not None and not (is_noticed(kind, owner) and id(owner) in watched):
                if (row := kind.row(owner)) is None:
                    return None
                rows.append(row)
        return rows if self.unchanged() else None

    def _watch_whole(self, log: ChangeLog | None, dicts: Mapping[int, dict[Any, Any]]) -> list[Row]:
        """Watch dicts by their versions, or by a log of changes; and classes too as far as the log
        covers them."""
        self._told = set()
        if log is None:
            return [*map(version_row, dicts.values())]
        for owner in dicts.values():
            log.watch_dict(owner)
        kinds = [owner for owner, kind, _ in self.properties.values() if kind is ORDER]
        told = [id(k) for k in kinds if id(k) not in self.often and log.watch_class(k)]
        self._told = {*dicts, *told}
        return [count_row(log, self._told)]

    def note_moved(self, rows: Sequence[Row]) -> None:
        """Count the changes of objects since these rows were made, for those that change often."""
        log, moved = change_log(), set[int]()
        counted = None if log is None else log.place[0]
        for kind, owner, _, _, expected in rows:
            if kind == WatchKind.VERSION and dict_version.require()(owner) != expected:
                moved.add(id(owner))
            elif log is not None and owner is counted:
                moved |= self._told & (log.since(expected) or set())
        self._moves.update(moved)
        properties = self.properties.values()
        compared = {id(owner) for owner, kind, _ in properties if is_noticed(kind, owner)}
        self.often |= {n for n in moved if n not in compared or self._moves[n] >= OFTEN}


def item_row(owner: Any, key: Any, value: Any) -> Row:
    """Return the record that watches an entry of a dict or list."""
    held = value.number if type(value) is _HeldTensor else id(value)
    expected = 0 if value is MISSING else held
    if isinstance(owner, list):
        return WatchKind.LIST_ITEM, owner, None, key, expected
    return WatchKind.DICT_ITEM, owner, key, hash(key), expected


def place_of_input(tree: Tree, values: Sequence[Any], number: int) -> Place:
    """Return the dict or list, and the key, of an input outside of arguments, to read at each call.
    Where there is none, a list with the value: the path to it is watched."""
    before, step = tree.rows[number]
    value, place = values[number], None
    if before >= 0:
        place = place_of(values[before], step)
    elif step[0] == "global":
        place = vars(sys.modules[step[1]]), step[2]
    if place is not None and not isinstance(place[0], tuple):
        owner, key = place
        keys = owner if isinstance(owner, dict) else range(-len(owner), len(owner))
        if key in keys and owner[key] is value:
            return place
    return [value], 0


def place_of(owner: Any, step: Sequence[Any]) -> Place | None:
    """Return the container and key of the value of a step, if it is under a key."""
    kind, *names = step
    if owner is MISSING:
        return None
    if kind == "item" and isinstance(owner, (dict, list, tuple)):
        return owner, names[0]
    if kind == "nth" and isinstance(owner, dict):
        keys: list[Any] = list(islice(owner, names[0], names[0] + 1))
        return (owner, keys[0]) if keys else None
    if kind == "item" and isinstance(owner, types.MappingProxyType):
        proxy: types.MappingProxyType[Any, Any] = owner
        space = dict_of(proxy)
        return None if space is None else (space, names[0])
    if kind not in ("field", "attribute") or not hasattr(owner, "__dict__"):
        return None
    name, own = names[0], vars(owner)
    if name in own:
        return own, name
    if kind == "attribute" and isinstance(owner, torch.nn.Module):
        for table in tables_of.get() or ():
            space = getattr(owner, table)
            if name in space:
                return space, name
    return None
