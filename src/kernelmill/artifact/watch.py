"""Whether what a bound program read outside of its arguments is still the same, asked at each call.

What was read is a value under a key of a dict (attributes, globals, what a class holds) or list.
That it is still the same object costs some 40 ns to see, natively a few; only when one is not, its
fingerprint is taken again.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Mapping, Sequence
from operator import getitem, is_
from typing import Any, cast

import torch

from kernelmill.artifact.guards import seen
from kernelmill.artifact.manifest import CodeUse, Guard
from kernelmill.artifact.paths import MISSING, Roots, Tree
from kernelmill.runtime.changes import ChangeLog, change_log
from kernelmill.runtime.layout import WatchKind
from kernelmill.runtime.quick import (
    Row,
    class_row,
    count_row,
    order_row,
    size_row,
    space_row,
    version_row,
)  # fmt: skip
from kernelmill.torch_internals.modules import tables_of
from kernelmill.torch_internals.objects import dict_of, dict_version

Place = tuple[Any, Any]
"""A dict or list, and the key or index in it."""


class Watch:
    """Remembers where things are; `unchanged()` looks at all of them. `values` are those of the
    tree, whose places outside of arguments are watched, tensors excepted."""

    def __init__(self, tree: Tree, values: Sequence[Any], roots: Roots) -> None:
        self._tree, self._values, self._roots = tree, values, roots
        self._seen: set[tuple[int, Any]] = set()
        self._places: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
        self._sized: dict[int, tuple[Any, int]] = {}
        self._keyed: dict[int, tuple[dict[Any, Any], list[Any]]] = {}
        self._sets: list[tuple[Any, Guard, str]] = []
        self._absent: dict[tuple[int, str], Place] = {}
        self._kinds: dict[int, tuple[Any, type]] = {}
        self._spaces: dict[int, Place] = {}
        self._orders: dict[int, tuple[type, tuple[type, ...]]] = {}
        self._busy: set[int] = set()
        self._told: set[int] = set()
        self._tensors: list[Place] = []
        for number, value in enumerate(values):
            if value is not MISSING and not isinstance(value, torch.Tensor):
                place = self.place(number)
                if place is not None:
                    self._add(place, value)

    def add_guard(self, guard: Guard) -> None:
        """Watch what a read found."""
        value = self._values[guard.place]
        if guard.of_argument or value is MISSING:
            return
        if guard.kind == "class" and hasattr(value, "__dict__"):
            self._kinds[id(value)] = (value, type(value))
            return
        if guard.kind == "absent" and guard.found == "True" and hasattr(value, "__dict__"):
            self._add_absent(vars(value), guard.name)
            if not isinstance(value, type):
                self._spaces[id(value)] = (value, vars(value))
            return
        if guard.kind in ("absent", "has") and hasattr(value, "__dict__"):
            self._add_looked_up(vars(value), guard.name)
        elif guard.kind == "contains" and isinstance(value, dict):
            self._add_looked_up(value, guard.name)
        elif isinstance(value, (dict, list, set)):
            self._sized[id(value)] = (value, len(value))
            if isinstance(value, set):
                self._sets.append((value, guard, _text(value, guard)))
            elif isinstance(value, dict):
                self._keyed[id(value)] = (value, list(cast(Any, value)))

    def _add_looked_up(self, space: dict[Any, Any], name: str) -> None:
        """A name that was looked for in a dict, and found or not."""
        if name in space:
            self._add((space, name), space[name])
        else:
            self._add_absent(space, name)

    def add_code(self, use: CodeUse) -> None:
        """Watch where a function is found by its name, and the functions and classes among the
        names of its module that it uses."""
        module = sys.modules.get(use.module)
        if module is None:
            return
        space: dict[str, Any] | None = vars(module)
        for name in use.globals:
            if isinstance(space.get(name), (type, types.FunctionType)):
                self._add((space, name), space[name])
        for name in use.name.split("."):
            if space is None or name not in space:
                return
            value = space[name]
            self._add((space, name), value)
            space = dict_of(vars(value)) if isinstance(value, type) else None

    def add_input(self, place: Place) -> None:
        """A place of a tensor that goes to the program: `rows` watches it, `unchanged` does not."""
        self._tensors.append(place)

    def place(self, number: int) -> Place | None:
        """Where the value of a place of the tree is kept; None when that has no key, and for what
        comes from arguments."""
        value = self._values[number]
        place = None if value is MISSING else self._place(number)
        if place is None:
            return None
        owner, key = place
        return place if key in _keys(owner) and owner[key] is value else None

    def _place(self, number: int) -> Place | None:
        before, step = self._tree.rows[number]
        if before >= 0:
            owner = self._values[before]
            kind, *names = step
            in_class = kind in ("attribute", "field") and isinstance(owner, type)
            if in_class:
                return self._in_bases(owner, names[0])
            if kind in ("attribute", "field") and hasattr(owner, "__dict__"):
                self._spaces[id(owner)] = (owner, vars(owner))
            return place_of(owner, step) or self._of_class(owner, step)
        kind, *names = step
        if kind == "global":
            module, name = names
            space = vars(sys.modules[module])
            self._busy.add(id(space))  # a script's own loops write to it all the time
            return space, name
        return (self._roots.free, names[0]) if kind == "free" else None

    def _of_class(self, owner: Any, step: Sequence[Any]) -> Place | None:
        """Where its class keeps what is found as an attribute of an object; which is watched for
        an attribute of its own too."""
        kind, *names = step
        place = self._in_bases(type(owner), names[0]) if kind == "attribute" else None
        if place is not None and hasattr(owner, "__dict__"):
            self._add_absent(vars(owner), names[0])
        return place

    def _in_bases(self, kind: type, name: str) -> Place | None:
        """Where a class finds an attribute, in itself or a base; which is watched for one that
        comes before that."""
        self._orders[id(kind)] = (kind, kind.__mro__)
        for part in kind.__mro__:
            space = dict_of(vars(part))
            if space is None or name in space:
                return None if space is None else (space, name)
            self._add_absent(space, name)
        return None

    def _add_absent(self, space: Any, name: str) -> None:
        if isinstance(space, dict):
            self._absent[id(space), name] = (space, name)

    def _add(self, place: Place, value: Any) -> None:
        owner, key = place
        if (id(owner), key) not in self._seen:
            self._seen.add((id(owner), key))
            owners, keys, values = self._places
            owners.append(owner)
            keys.append(key)
            values.append(value)

    def unchanged(self) -> bool:
        """Whether everything is where it was; False where modules cannot be looked into."""
        if not tables_of.works:
            return False
        owners, keys, values = self._places
        try:
            if not all(map(is_, map(getitem, owners, keys), values)):
                return False
        except (KeyError, IndexError):
            return False
        return (
            all(len(container) == size for container, size in self._sized.values())
            and all(list(owner) == keys for owner, keys in self._keyed.values())
            and all(_text(owner, guard) == found for owner, guard, found in self._sets)
            and all(type(value) is kind for value, kind in self._kinds.values())
            and all(vars(owner) is space for owner, space in self._spaces.values())
            and all(kind.__mro__ is order for kind, order in self._orders.values())
            and not any(name in space for space, name in self._absent.values())
        )

    def without_rows(self) -> Callable[[], bool] | None:
        """Whether what `rows` does not watch is unchanged: sets, and the keys of dicts that change
        often. None where there are none."""
        sets, often = self._sets, [self._keyed[n] for n in self._keyed.keys() & self._busy]
        if dict_version.works or change_log() is not None:
            keyed = often
        else:
            keyed = list(self._keyed.values())
        if not sets and not keyed:
            return None
        return lambda: (
            all(_text(owner, guard) == found for owner, guard, found in sets)
            and all(list(owner) == keys for owner, keys in keyed)
        )

    def rows(self) -> list[Row] | None:
        """The same for the native watch; None when something has moved in between.

        A dict is watched as a whole, one that changes often by what it has under its keys.
        """
        whole: dict[int, dict[Any, Any]] = {}
        found: list[Row] = []
        log = change_log()
        as_whole = dict_version.works or log is not None
        tensors = ((owner, key, id(owner[key])) for owner, key in self._tensors)
        placed = zip(*self._places[:2], map(id, self._places[2]), strict=True)
        absent = ((space, name, 0) for space, name in self._absent.values())
        for owner, key, expected in (*placed, *tensors, *absent):
            if isinstance(owner, dict):
                entries: dict[Any, Any] = owner
                if as_whole and id(entries) not in self._busy:
                    whole[id(entries)] = entries
                else:
                    found.append((WatchKind.DICT_ITEM, entries, key, hash(key), expected))
            elif isinstance(owner, list):
                found.append((WatchKind.LIST_ITEM, owner, None, key, expected))
        if as_whole:
            keyed = (owner for owner, _ in self._keyed.values())
            whole |= {id(owner): owner for owner in keyed if id(owner) not in self._busy}
        sized = (owner for owner, _ in self._sized.values() if id(owner) not in whole)
        found += map(size_row, sized)
        found += [class_row(value) for value, _ in self._kinds.values()]
        spaces = [space_row(owner) for owner, _ in self._spaces.values()]
        found += [row for row in spaces if row is not None]
        kinds = [kind for kind, _ in self._orders.values()]
        # Versions first, then a look: what another thread changes in between is seen by one.
        rows = [*self._watch_whole(log, whole, kinds), *found]
        rows += [order_row(kind) for kind in kinds if id(kind) not in self._told]
        return rows if None not in spaces and self.unchanged() else None

    def _watch_whole(
        self, log: ChangeLog | None, dicts: Mapping[int, dict[Any, Any]], kinds: Sequence[type]
    ) -> list[Row]:
        """Watch dicts by their versions, or by a log of changes; and classes too as far as that
        tells of them."""
        self._told = set()
        if log is None:
            return [*map(version_row, dicts.values())]
        for owner in dicts.values():
            log.watch_dict(owner)
        told = [id(k) for k in kinds if id(k) not in self._busy and log.watch_class(k)]
        self._told = {*dicts, *told}
        return [count_row(log, self._told)]

    def note_moved(self, rows: Sequence[Row]) -> None:
        """What has changed since these rows were made changes often."""
        log = change_log()
        counted = None if log is None else log.place[0]
        for kind, owner, _, _, expected in rows:
            if kind == WatchKind.VERSION and dict_version.require()(owner) != expected:
                self._busy.add(id(owner))
            elif log is not None and owner is counted:
                self._busy |= self._told & (log.since(expected) or set())


def _text(value: Any, guard: Guard) -> str:
    """What a guard finds in a set."""
    return seen(guard, value, None, frozenset(), {})


def place_of(owner: Any, step: Sequence[Any]) -> Place | None:
    """Where the value of a step is kept, if it is under a key."""
    kind, *names = step
    if kind == "item" and isinstance(owner, (dict, list, tuple)):
        return owner, names[0]
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


def _keys(owner: Any) -> Any:
    return owner if isinstance(owner, dict) else range(-len(owner), len(owner))
