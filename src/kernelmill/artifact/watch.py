"""A check at each call that the objects of a bound program's owner are still the same.

The full survey is repeated only when one of them is another object.
"""

from __future__ import annotations

import builtins
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import torch

from kernelmill.artifact.code import function_of, place_of_global
from kernelmill.artifact.guard_records import ORDER, GuardRecords, Place, is_noticed, item_row
from kernelmill.artifact.manifest import CodeUse
from kernelmill.artifact.paths import MISSING, Tree
from kernelmill.runtime.calls.changes import ChangeLog, change_log
from kernelmill.runtime.layout import WatchKind
from kernelmill.runtime.quick import Row, count_row, version_row
from kernelmill.torch_internals.modules import tables_of
from kernelmill.torch_internals.objects import dict_of, dict_version

OFTEN = 3
"""After so many changes an object that calls compare as a whole counts as one that changes often:
imports and compilers change a class once or twice."""


class Watch:
    """A watch on the state in these records and on the functions of `code`; `rows` also on the
    `places` of tensors that go to the program."""

    def __init__(
        self,
        records: GuardRecords,
        code: Iterable[CodeUse] = (),
        places: Sequence[Place] = (),
    ) -> None:
        self._records, self._places = records, places
        self._often, self._told = records.often, set[int]()
        self._moves = Counter[int]()
        for use in code:
            self._add_code(use)

    def _add_code(self, use: CodeUse) -> None:
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
                self._records.look_up(holder, key)
        function = function_of(module, use.name)
        if function is not None:
            self._records.add_function(function)
        for name in use.name.split("."):
            if space is None or name not in space:
                return
            value = self._records.look_up(space, name)
            space = dict_of(vars(value)) if isinstance(value, type) else None

    def unchanged(self) -> bool:
        """Return whether every watched object is unchanged."""
        return self._records.unchanged()

    def _is_whole(self, owner: Any) -> bool:
        """Return whether all changes of a dict are watched: not if it changes often."""
        can = dict_version.works or change_log() is not None
        return can and isinstance(owner, dict) and id(owner) not in self._often

    def without_rows(self) -> Callable[[], bool] | None:
        """Return a check of the state that `rows` does not watch: sets, the layout of tensors, and
        dicts that change often. None where there is none."""
        alone = [
            (owner, kind, value)
            for owner, kind, value in self._records.properties.values()
            if kind.row is None and not (is_noticed(kind, owner) and self._is_whole(owner))
        ]
        if not alone:
            return None
        return lambda: all(kind.same(value, kind.read(owner)) for owner, kind, value in alone)

    def rows(self) -> list[Row] | None:
        """Return the records for the native watch; None when something has moved meanwhile.

        A dict is watched as a whole, one that changes often by its entries.
        """
        records, log = self._records, change_log()
        owners = [owner for owner, _, _ in records.items.values()]
        noticed = [o for o, kind, _ in records.properties.values() if is_noticed(kind, o)]
        whole = {id(owner): owner for owner in (*owners, *noticed) if self._is_whole(owner)}
        # Versions first, then the check: a change by another thread in between fails one of them.
        rows = self._watch_whole(log, whole)
        watched = {*whole, *self._told}
        found = records.rows(watched)
        found += [
            item_row(owner, key, owner[key])
            for owner, key in self._places
            if id(owner) not in watched
        ]
        rows += [row for row in found if row is not None]
        return rows if None not in found and self.unchanged() else None

    def _watch_whole(self, log: ChangeLog | None, dicts: Mapping[int, dict[Any, Any]]) -> list[Row]:
        """Watch dicts by their versions, or by a log of changes; and classes too as far as the log
        covers them."""
        self._told = set()
        if log is None:
            return [*map(version_row, dicts.values())]
        for owner in dicts.values():
            log.watch_dict(owner)
        kinds = [owner for owner, kind, _ in self._records.properties.values() if kind is ORDER]
        told = [id(k) for k in kinds if id(k) not in self._often and log.watch_class(k)]
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
        properties = self._records.properties.values()
        compared = {id(owner) for owner, kind, _ in properties if is_noticed(kind, owner)}
        self._often |= {n for n in moved if n not in compared or self._moves[n] >= OFTEN}


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
