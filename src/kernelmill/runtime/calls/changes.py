"""Change notifications of CPython for dicts and classes, from 3.12 on (PyDict_Watch, PyType_Watch).

Before 3.12 each dict has a version to compare. Here native functions (native/changes.c) count all
changes of watched objects in this process: one unchanged word proves that none has changed. Each
object is reported once, until it is watched again; so an object that changes all the time, or that
is no longer needed, costs little.

Sources: CPython's documentation, "Dictionary Objects" and "Type Objects"; PEP 699 on versions.
"""

from __future__ import annotations

import atexit
import ctypes
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from kernelmill.core.log import get_logger
from kernelmill.runtime.executor import executor
from kernelmill.runtime.layout import Changes, words
from kernelmill.torch_internals.native import Watchers, watchers
from kernelmill.torch_internals.objects import distance_to

_log = get_logger("runtime")

_LAST = 64
"""Number of last changes whose objects are known."""


class ChangeLog:
    """A count of changes to watched objects in this process. `place` is (object, offset): the word
    with the count is `offset` bytes into `object`."""

    def __init__(self, changes: Changes, watchers: Watchers) -> None:
        self._api = watchers
        self._last = words([0] * _LAST)
        self._changes = changes
        changes.last, changes.last_count = ctypes.addressof(self._last), _LAST
        count_at = ctypes.addressof(changes) + Changes.count.offset
        self.place = changes, distance_to(count_at, changes)
        self.is_open = False

    @property
    def count(self) -> int:
        """Number of changes so far."""
        return self._changes.count

    def open(self, callbacks: tuple[int, int]) -> None:
        """Register the watchers with CPython. RuntimeError if it has no room for more watchers."""
        for_dicts, for_classes = callbacks
        self._changes.dict_watcher = self._api.add_dict(for_dicts)
        try:
            self._changes.type_watcher = self._api.add_type(for_classes)
        except RuntimeError:
            self._api.clear_dict(self._changes.dict_watcher)
            raise
        self.is_open = True

    def close(self) -> None:
        """Unregister the watchers. Counts read before no longer prove anything."""
        self.is_open = False
        self._changes.count += 1
        self._api.clear_dict(self._changes.dict_watcher)
        self._api.clear_type(self._changes.type_watcher)

    def watch_dict(self, owner: dict[Any, Any]) -> None:
        """Count the next change of a dict: of its keys or its values."""
        self._api.watch_dict(self._changes.dict_watcher, owner)

    def watch_class(self, kind: type) -> bool:
        """Count the next change of an attribute or of the bases of a class or one of its bases.
        Return False where CPython would not report it."""
        # A metaclass may find the order of bases by itself, and change its mind unseen.
        if type(kind) is not type:
            return False
        self._api.watch_type(self._changes.type_watcher, kind)
        # Only classes with a tag are reported, and a class gets a limited number of tags.
        return self._api.assign_tag(kind)

    def since(self, count: int) -> set[int] | None:
        """Return the ids of objects changed since the count was `count`; None if too many did."""
        now = self.count
        if now - count > _LAST:
            return None
        return {self._last[n % _LAST] for n in range(count, now)}


def change_log() -> ChangeLog | None:
    """Return the change log of this process; None before Python 3.12, where CPython has no watcher
    left or misses a change that we try, and when Python ends."""
    log = _change_log()
    return log if log is not None and log.is_open and watchers.works else None


@cache
def _change_log() -> ChangeLog | None:
    made, api = executor(), watchers.get()
    if api is None or not all(made.watchers):
        return None
    log = ChangeLog(made.changes, api)
    try:
        log.open(made.watchers)
    except RuntimeError as error:
        _log.info("dicts and classes are compared one by one: %s", error)
        return None
    missed = next((name for name, told in _tried(log) if not told), "")
    if missed:
        log.close()
        _log.info("dicts and classes are compared one by one: CPython does not tell of %s", missed)
        return None
    # The functions that it calls may be gone before the last dict is.
    atexit.register(log.close)
    return log


def _tried(log: ChangeLog) -> Iterator[tuple[str, bool]]:
    """Yield kinds of changes, and whether CPython reports each."""

    class Base:
        pass

    class Sample(Base):
        pass

    class Other:
        pass

    sample = Sample()
    own, plain, ordered = vars(sample), dict[str, object](a=1, b=1), OrderedDict[str, object](a=1)

    def told(change: Callable[[], object], watch: Callable[[Any], object], owner: Any) -> bool:
        watch(owner)
        before = log.count
        change()
        return log.count == before + 1 and log.since(before) == {id(owner)}

    def set_attribute() -> None:
        sample.a = object()  # type: ignore[attr-defined]  # as a user's attribute

    # Often enough that the interpreter takes its own quick ways.
    for _ in range(64):
        yield "an attribute", told(set_attribute, log.watch_dict, own)
    for name, change, owner in (
        ("setattr", lambda: setattr(sample, "b", 1), own),
        ("delattr", lambda: delattr(sample, "b"), own),
        ("an item", lambda: plain.update(a=object()), plain),
        ("a new item", lambda: plain.setdefault("c", 1), plain),
        ("pop", lambda: plain.pop("c"), plain),
        ("clear", plain.clear, plain),
        ("an ordered dict's item", lambda: ordered.update(a=2), ordered),
    ):
        yield name, told(change, log.watch_dict, owner)
    yield "a class", log.watch_class(Sample)
    for name, change in (
        ("a class attribute", lambda: setattr(Sample, "x", 1)),
        ("a base's attribute", lambda: setattr(Base, "x", 2)),
        ("bases", lambda: setattr(Sample, "__bases__", (Other,))),
    ):
        yield name, told(change, log.watch_class, Sample)
