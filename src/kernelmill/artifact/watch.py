"""Whether what a bound program read outside of its arguments is still the same, asked at each call.

Only when something is not the same object any more, its fingerprint is taken again.
"""

from __future__ import annotations

import builtins
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

import torch

from kernelmill.artifact.code import function_of, place_of_global
from kernelmill.artifact.fingerprint import is_atom
from kernelmill.artifact.guard_kinds import KINDS
from kernelmill.artifact.guard_records import (
    CELL,
    KEYS,
    ORDER,
    SPACE,
    GuardRecords,
    Place,
    found_by,
    held_in_context,
    is_noticed,
    item_row,
)
from kernelmill.artifact.guards import count_tensors, found_in
from kernelmill.artifact.layouts import is_about_layout
from kernelmill.artifact.manifest import CodeUse, Guard
from kernelmill.artifact.paths import (
    CONTEXT,
    MISSING,
    MissingPath,
    Roots,
    Tree,
    follow,
    step_into,
)
from kernelmill.runtime.calls.changes import ChangeLog, change_log
from kernelmill.runtime.layout import WatchKind
from kernelmill.runtime.quick import Row, count_row, version_row
from kernelmill.torch_internals.modules import tables_of
from kernelmill.torch_internals.objects import dict_of, dict_version

_INTO = ("attribute", "field", "item", "slice")
"""Steps that may lead to something else although the object is the same."""

_UNCHANGING = (
    type, tuple, str, range, slice, property, staticmethod, classmethod,
    types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.CodeType, partial,
    torch.nn.Module,
)  # fmt: skip
"""What these are asked for never changes, or is not looked at again (docs/cache.md); what is found
in a class, or in the tables of a module, is watched there."""


_METHODS = (
    types.FunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, classmethod,
    staticmethod,
)  # fmt: skip


class Watch:
    """Remembers where things are; `unchanged()` looks at all of them. `values` are those of the
    tree, whose places outside of arguments are watched: of tensors those alone of which an
    attribute is read. `names` are those in the traced code."""

    def __init__(
        self,
        tree: Tree,
        values: Sequence[Any],
        roots: Roots,
        names: frozenset[str] = frozenset(),
    ) -> None:
        self._tree, self._values, self._roots = tree, values, roots
        self._records = GuardRecords(names)
        self._busy: set[int] = set()
        self._told: set[int] = set()
        self._tensors: list[Place] = []
        self._ties: list[Guard] = []
        self._layouts: list[Guard] = []
        self._objects = -1
        of_arguments, owners = set[int](), {before for before, _ in tree.rows}
        for number, value in enumerate(values):
            before, (kind, *rest) = tree.rows[number]
            if kind == "argument" if before < 0 else before in of_arguments:
                of_arguments.add(number)
            if kind == CONTEXT and value is not MISSING:
                self._records.add_property(values[before], held_in_context(*rest))
            if value is MISSING or number in of_arguments:
                continue
            place = self.place(number)
            if place is None:
                self._watch_step(number)
            elif not _is_tensor(value) or number in owners:
                self._records.add_item(*place, value)
            if isinstance(value, types.FunctionType):
                self._records.add_function(value)

    def _watch_step(self, number: int) -> None:
        """Watch what is under no key: the variables of closures, and what objects give in ways of
        their own (slots, descriptors, other containers)."""
        before, (kind, *names) = self._tree.rows[number]
        if before < 0:
            cells = getattr(self._roots.free, "cells", {})
            if kind == "free" and names[0] in cells:
                self._records.add_property(cells[names[0]], CELL)
            return
        owner = self._values[before]
        if isinstance(owner, types.CellType):
            self._records.add_property(owner, CELL)
        elif isinstance(owner, dict):
            self._records.add_property(owner, KEYS)
        elif kind in _INTO and not isinstance(owner, _UNCHANGING) and not is_atom(owner):
            if kind != "attribute" and _is_tensor(owner):
                return
            # Which dict the __dict__ is was watched when its place was looked for.
            if kind == "attribute" and (names[0] == "__dict__" or self._is_method(owner, names[0])):
                return
            step = self._tree.rows[number][1]
            self._records.add_property(owner, found_by(lambda owner: step_into(owner, step)))

    def _is_method(self, owner: Any, name: str) -> bool:
        """Whether an attribute is made anew from a function of the class, which is watched there,
        each time that it is asked for."""
        place = self._records.find(type(owner), name)
        return place is not None and isinstance(place[0][place[1]], _METHODS)

    def add_guard(self, guard: Guard) -> None:
        """Watch what a read found."""
        value = self._values[guard.place]
        if not guard.of_argument and value is not MISSING:
            KINDS[guard.kind].watch(guard, value, self._records)
            place = self.place(guard.place) if guard.name and _is_tensor(value) else None
            if place is not None and not is_about_layout(guard):
                self._records.add_item(*place, value)  # another may have the attribute
        if not guard.of_argument and is_about_layout(guard):
            self._layouts.append(guard)
        elif guard.other and not guard.of_argument and _is_tensor(value):
            self._ties.append(guard)
            places = map(self.place, (guard.place, guard.other_place))
            self._tensors += [place for place in places if place is not None]

    def add_code(self, use: CodeUse) -> None:
        """Watch where a function is found by its name, what it is, and the functions and classes
        among the names that it uses; and that no builtin's name is there."""
        module = sys.modules.get(use.module)
        if module is None:
            return
        space: dict[str, Any] | None = vars(module)
        for name in use.globals:
            holder, key = place_of_global(module, name)
            absent = key not in holder and ("." in name or hasattr(builtins, key))
            if absent or callable(holder.get(key)):
                self._records.look_up(holder, key)
        function = function_of(module, use.name)
        if function is not None:
            self._records.add_function(function)
        for name in use.name.split("."):
            if space is None or name not in space:
                return
            value = self._records.look_up(space, name)
            space = dict_of(vars(value)) if isinstance(value, type) else None

    def add_input(self, place: Place) -> None:
        """A place of a tensor that goes to the program: `rows` watches it, `unchanged` does not."""
        self._tensors.append(place)

    def add_objects(self, numbers: Iterable[int]) -> None:
        """Watch how many objects the tensors are: the inputs, and those of these places."""
        places = (self.place(n) for n in numbers if _is_tensor(self._values[n]))
        self._tensors += [place for place in places if place is not None]
        self._objects = self._count()

    def _count(self) -> int:
        try:
            return count_tensors(owner[key] for owner, key in self._tensors)
        except LookupError:
            return -1

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
        kind, *names = step
        if before < 0:
            if kind == "global":
                module, name = names
                space = vars(sys.modules[module])
                self._busy.add(id(space))  # a script's own loops write to it all the time
                return space, name
            return None
        owner = self._values[before]
        if kind not in ("attribute", "field"):
            return place_of(owner, step)
        if isinstance(owner, type):
            return self._records.find(owner, names[0])
        own = self._records.add_property(owner, SPACE) if hasattr(owner, "__dict__") else None
        place = place_of(owner, step)
        if place is not None or kind == "field":
            return place
        place = self._records.find(type(owner), names[0])
        if place is not None and own is not None:
            self._records.look_up(own, names[0])  # which goes before it
        return place

    def unchanged(self) -> bool:
        """Whether everything is where it was; False where modules cannot be looked into."""
        seen = tables_of.works and self._records.unchanged() and self._tied(self._ties)
        as_many = self._objects < 0 or self._count() == self._objects
        return seen and as_many and self._laid_out()

    def _laid_out(self) -> bool:
        """Whether the tensors that the program does not read are laid out as they were."""
        try:
            return all(found_in(g, follow(g.path, self._roots)) == g.found for g in self._layouts)
        except (MissingPath, TypeError):
            return False

    def _tied(self, guards: Iterable[Guard]) -> bool:
        """Whether two paths each still lead to one tensor, which is not held here."""
        try:
            return all(follow(g.path, self._roots) is follow(g.other, self._roots) for g in guards)
        except MissingPath:
            return False

    def _is_whole(self, owner: Any) -> bool:
        """Whether all changes of a dict are watched: not of one that changes often."""
        can = dict_version.works or change_log() is not None
        return can and isinstance(owner, dict) and id(owner) not in self._busy

    def without_rows(self) -> Callable[[], bool] | None:
        """Whether what `rows` does not watch is unchanged: sets, and the keys of dicts that change
        often. None where there are none."""
        alone = [
            (owner, kind, value)
            for owner, kind, value in self._records.properties.values()
            if kind.row is None and not (is_noticed(kind, owner) and self._is_whole(owner))
        ]
        ends = [(tie, self.place(n)) for tie in self._ties for n in (tie.place, tie.other_place)]
        ties = [tie for tie, place in ends if place is None]
        if not alone and not ties and not self._layouts:
            return None
        return lambda: (
            all(kind.same(kind.read(owner), value) for owner, kind, value in alone)
            and self._tied(ties)
            and self._laid_out()
        )

    def rows(self) -> list[Row] | None:
        """The same for the native watch; None when something has moved in between.

        A dict is watched as a whole, one that changes often by what it has under its keys.
        """
        records, log = self._records, change_log()
        tensors = [(owner, key, owner[key]) for owner, key in self._tensors]
        items = [owner for owner, _, _ in (*records.items.values(), *tensors)]
        kinds = (KEYS, records.members)
        keyed = [owner for owner, kind, _ in records.properties.values() if kind in kinds]
        whole = {id(owner): owner for owner in (*items, *keyed) if self._is_whole(owner)}
        # Versions first, then a look: what another thread changes in between is seen by one.
        rows = self._watch_whole(log, whole)
        watched = {*whole, *self._told}
        found = records.rows(watched)
        found += [
            item_row(*item)
            for item in tensors
            if id(item[0]) not in watched and not isinstance(item[0], tuple)
        ]
        rows += [row for row in found if row is not None]
        return rows if None not in found and self.unchanged() else None

    def _watch_whole(self, log: ChangeLog | None, dicts: Mapping[int, dict[Any, Any]]) -> list[Row]:
        """Watch dicts by their versions, or by a log of changes; and classes too as far as that
        tells of them."""
        self._told = set()
        if log is None:
            return [*map(version_row, dicts.values())]
        for owner in dicts.values():
            log.watch_dict(owner)
        kinds = [owner for owner, kind, _ in self._records.properties.values() if kind is ORDER]
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


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def place_of(owner: Any, step: Sequence[Any]) -> Place | None:
    """Where the value of a step is kept, if it is under a key."""
    kind, *names = step
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


def _keys(owner: Any) -> Any:
    return owner if isinstance(owner, dict) else range(-len(owner), len(owner))
