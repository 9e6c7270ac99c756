"""The watch over what a trace read outside of arguments: a change is seen by the very next look."""

import sys
import types
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import pytest

from kernelmill.artifact.guard_kinds import KINDS, GuardKind
from kernelmill.artifact.manifest import Guard
from kernelmill.artifact.paths import Roots, Tree
from kernelmill.artifact.watch import Watch, place_of
from kernelmill.runtime.calls.changes import change_log
from kernelmill.runtime.calls.object_checks import supported
from kernelmill.runtime.layout import WatchKind
from kernelmill.runtime.quick import NativeWatch
from kernelmill.torch_internals import forced, registry
from kernelmill.torch_internals.objects import dict_version

MODULE = types.ModuleType("kernelmill_watched_sample")
MODULE_NAME = MODULE.__name__


def fresh() -> Any:
    """An object of classes of its own."""

    class Base:
        level = 1
        unread = 1

    class Thing(Base):
        rate = 2.0

        def __init__(self) -> None:
            self.options = {"a": object(), "unread": 0}
            self.listed = [object()]
            self.table = OrderedDict(a=1)
            self.names = {"a", "b"}
            self.own = object()

        def method(self) -> None:
            """Found in the class, but not as it is there."""

        @property
        def size(self) -> int:
            return len(self.listed)

    return Thing()


Watched = tuple[Any, Watch, NativeWatch]

ROOT = ("self",)
PATHS = (
    (ROOT, ("attribute", "own")),
    (ROOT, ("attribute", "options"), ("item", "a")),
    (ROOT, ("attribute", "listed"), ("item", 0)),
    (ROOT, ("attribute", "table")),
    (ROOT, ("attribute", "names")),
    (ROOT, ("attribute", "rate")),
    (ROOT, ("attribute", "level")),
    (ROOT, ("attribute", "method")),
    (ROOT, ("attribute", "size")),
    (ROOT, ("type",), ("namespace",), ("item", "rate")),
    (ROOT, ("type",), ("attribute", "level")),
    (("global", MODULE_NAME, "flag"),),
)
READS = (
    ("shape", (ROOT, ("attribute", "table")), "", ""),
    ("shape", (ROOT, ("attribute", "names")), "", ""),
    ("class", (ROOT,), "", ""),
    ("absent", (ROOT,), "missing", "True"),
)


@pytest.fixture(params=["whole", "one by one"])
def watched(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    """Dicts are watched as a whole, and where this Python cannot, by what they have."""
    whole = {"objects.versions", "native.watchers"} & registry.known().keys()
    with forced(whole if request.param == "one by one" else ()):
        yield made(monkeypatch)


def made(monkeypatch: pytest.MonkeyPatch) -> Watched:
    thing = fresh()
    MODULE.flag = True  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, MODULE_NAME, MODULE)
    tree = Tree()
    for path in PATHS:
        tree.number(path)
    roots = Roots(thing, {}, {})
    reads = [
        Guard(read, path, found, name, place=tree.number(path)) for read, path, name, found in READS
    ]
    watch = Watch(tree, tree.values(roots), roots)
    for read in reads:
        watch.add_guard(read)
    native = NativeWatch()
    native.watch(watch.rows())
    return thing, watch, native


def test_a_kind_that_says_nothing_of_watching_is_looked_at_in_each_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(KINDS, "new", GuardKind(lambda guard, value, other, texts: value.own))
    thing, tree = types.SimpleNamespace(own="one"), Tree()
    guard = Guard("new", (ROOT,), place=tree.number((ROOT,)))
    watch = Watch(tree, [thing], Roots(thing, {}, {}))
    watch.add_guard(guard)
    look = watch.without_rows()
    assert look is not None and look() and watch.unchanged()
    thing.own = "two"
    assert not look() and not watch.unchanged()


def set_class(thing: Any) -> None:
    thing.__class__ = type("Other", (type(thing),), {})


CHANGES: dict[str, Callable[[Any], object]] = {
    "attribute": lambda o: setattr(o, "own", object()),
    "attribute is gone": lambda o: delattr(o, "own"),
    "all attributes": lambda o: setattr(o, "__dict__", dict(vars(o))),
    "dict entry": lambda o: o.options.update(a=object()),
    "list element": lambda o: o.listed.insert(0, object()),
    "ordered dict grows": lambda o: o.table.update(b=1),
    "set grows": lambda o: o.names.add("c"),
    "class attribute": lambda o: setattr(type(o), "rate", 3.0),
    "class attribute of a base": lambda o: setattr(type(o).__base__, "level", 3),
    "class attribute in front of a base's": lambda o: setattr(type(o), "level", 3),
    "own attribute in front of the class'": lambda o: setattr(o, "rate", 2.5),
    "an attribute that was missing": lambda o: setattr(o, "missing", 1),
    "class of the object": set_class,
    "bases of its class": lambda o: setattr(type(o), "__bases__", (type("Base", (), {}),)),
    "global": lambda o: setattr(MODULE, "flag", False),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_seen_by_the_next_look(watched: Watched, change: str) -> None:
    thing, watch, native = watched
    assert watch.unchanged()
    assert native.guards_hold() == supported()
    CHANGES[change](thing)
    assert not native.guards_hold()
    assert not watch.unchanged()


@pytest.mark.skipif(not supported(), reason="objects are laid out otherwise")
@pytest.mark.parametrize(
    "change",
    [
        lambda o: o.options.update(unread=1),
        lambda o: setattr(o, "unrelated", 1),
        lambda o: setattr(type(o), "unread", 2),
        lambda o: setattr(type(o).__base__, "unread", 2),
        lambda o: setattr(MODULE, "unrelated", object()),
    ],
)
def test_what_was_not_read_may_change_again_and_again(
    watched: Watched, change: Callable[[Any], object]
) -> None:
    thing, watch, native = watched
    change(thing)
    assert watch.unchanged()
    watch.note_moved(native.rows)
    native.watch(watch.rows())
    assert native.guards_hold()
    kinds = {row[0] for row in native.rows}
    assert WatchKind.DICT_ITEM in kinds
    change(thing)
    assert native.guards_hold()
    thing.options["a"] = thing.listed[0] = object()
    assert not native.guards_hold()


@pytest.mark.skipif(not supported(), reason="objects are laid out otherwise")
def test_everything_has_a_native_row(watched: Watched) -> None:
    thing, watch, native = watched
    kinds = {row[0] for row in native.rows}
    assert WatchKind.LIST_ITEM in kinds and WatchKind.DICT_ITEM in kinds  # globals always
    log = change_log()
    one_by_one = sum(row[0] == WatchKind.DICT_ITEM for row in native.rows) > 1
    counted = log is not None and not one_by_one
    assert (WatchKind.VERSION in kinds) == (dict_version.works and not one_by_one)
    owners = [row[1] for row in native.rows]
    assert any(log is not None and log.place[0] is one for one in owners) == counted
    for owner in (vars(thing), thing.options):
        assert any(owner is one for one in owners) != counted
    for owner in (thing.listed, thing.names, vars(MODULE)):
        assert any(owner is one for one in owners)
    assert watch.place(0) is None and thing in owners  # the object itself: its class


@pytest.mark.parametrize("change", [lambda d: d.update(a=[2]), lambda d: d["a"].append(2)])
def test_data_that_is_compared_as_a_whole_is_looked_at_in_each_call(
    change: Callable[[Any], object],
):
    data, tree = {"a": [1]}, Tree()
    guard = Guard("value", (ROOT,), place=tree.number((ROOT,)))
    watch = Watch(tree, [data], Roots(data, {}, {}))
    watch.add_guard(guard)
    alone = watch.without_rows()
    assert alone is not None and alone() and watch.unchanged()
    change(data)
    assert not alone() and not watch.unchanged()


@pytest.mark.parametrize("default", [(), ("none",)])
def test_what_a_context_variable_holds_is_looked_at_where_the_call_is(default: Any) -> None:
    held: ContextVar[object] = ContextVar("held")
    value, tree = object(), Tree()
    tree.number((ROOT, ("context", *default)))
    held.set(value)
    roots = Roots(held, {}, {})
    watch = Watch(tree, tree.values(roots), roots)
    alone = watch.without_rows()
    assert alone is not None and alone() and watch.unchanged()
    with ThreadPoolExecutor(1) as other:  # whose context has nothing
        assert not other.submit(alone).result() and not other.submit(watch.unchanged).result()
    assert alone() and watch.unchanged()
    held.set(object())
    assert not alone() and not watch.unchanged()


def test_places_are_where_values_really_are() -> None:
    thing = fresh()
    assert place_of(thing, ("attribute", "own")) == (vars(thing), "own")
    assert place_of(thing, ("attribute", "rate")) is None
    assert place_of(vars(type(thing)), ("item", "rate")) == (dict(vars(type(thing))), "rate")
    assert place_of(3, ("attribute", "real")) is None
