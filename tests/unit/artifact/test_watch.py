"""The watch over what a trace read outside of arguments: a change is seen by the very next look."""

import sys
import types
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import pytest

from kernelmill.artifact.guard_records import OFTEN, Watch, place_of
from kernelmill.artifact.manifest import Root
from kernelmill.artifact.owned import Survey
from kernelmill.runtime.calls.changes import change_log
from kernelmill.runtime.calls.engine import supported
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
FLAG = ("global", MODULE_NAME, "flag")
NAMES = frozenset("own options listed table names rate level method size missing".split())


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
    survey = Survey(NAMES, ())
    survey.add_root(Root((ROOT,)), thing)
    survey.add_root(Root((FLAG,)), True)
    watch, native = survey.records, NativeWatch()
    native.watch(watch.rows())
    return thing, watch, native


def hold(watch: Watch, native: NativeWatch) -> bool:
    """What a call looks at."""
    look = watch.without_rows()
    return native.guards_hold() and (look is None or look())


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
    assert hold(watch, native) == supported()
    look = watch.without_rows()
    CHANGES[change](thing)
    assert not native.guards_hold() or (look is not None and not look())
    assert not watch.unchanged()


@pytest.mark.skipif(not supported(), reason="objects are laid out otherwise")
@pytest.mark.parametrize(
    "change",
    [
        lambda o: setattr(o, "unrelated", object()),
        lambda o: setattr(type(o), "unread", object()),
        lambda o: setattr(type(o).__base__, "unread", object()),
        lambda o: setattr(MODULE, "unrelated", object()),
    ],
)
def test_what_was_not_read_may_change_again_and_again(
    watched: Watched, change: Callable[[Any], object]
) -> None:
    thing, watch, native = watched
    for _ in range(OFTEN):
        change(thing)
        assert watch.unchanged()
        watch.note_moved(native.rows)
        native.watch(watch.rows())
        assert hold(watch, native)
    change(thing)
    assert hold(watch, native)
    look = watch.without_rows()
    thing.options["a"] = object()
    assert not native.guards_hold() or (look is not None and not look())


@pytest.mark.skipif(not dict_version.works and change_log() is None, reason="nothing is whole")
@pytest.mark.parametrize("of_class", [False, True])
def test_what_changes_once_or_twice_is_still_looked_at_natively(of_class: bool) -> None:
    thing: Any = type("Thing", (), {"rate": 2.0})()
    survey = Survey(frozenset(("rate",)), ())
    survey.add_root(Root((ROOT,)), thing)
    watch, native = survey.records, NativeWatch()
    native.watch(watch.rows())
    looks = [watch.without_rows()]
    for _ in range(OFTEN):
        (type(thing) if of_class else thing).unread = object()
        assert not native.guards_hold() and watch.unchanged()
        watch.note_moved(native.rows)
        native.watch(watch.rows())
        looks.append(watch.without_rows())
    assert all(look is None for look in looks[:-1]) and looks[-1] is not None and looks[-1]()


@pytest.mark.skipif(not supported(), reason="objects are laid out otherwise")
def test_everything_has_a_native_row(watched: Watched) -> None:
    thing, watch, native = watched
    kinds = {row[0] for row in native.rows}
    assert WatchKind.LIST_ITEM in kinds and WatchKind.DICT_ITEM in kinds  # globals always
    log = change_log()
    one_by_one = not dict_version.works and log is None
    assert (WatchKind.VERSION in kinds) == dict_version.works
    owners = [row[1] for row in native.rows]
    assert any(log is not None and log.place[0] is one for one in owners) == (log is not None)
    for owner in (vars(thing), thing.options):
        assert any(owner is one for one in owners) == dict_version.works
    for owner in (thing.listed, vars(MODULE), thing):
        assert any(owner is one for one in owners)
    alone = {type(thing.names)} if not one_by_one else {dict, set, OrderedDict}
    assert (watch.without_rows() is None) == (not alone)


@pytest.mark.parametrize("default", [(), ("none",)])
def test_what_a_context_variable_holds_is_looked_at_where_the_call_is(default: Any) -> None:
    held: ContextVar[object] = ContextVar("held")
    value = object()
    held.set(value)
    survey = Survey(NAMES, ())
    survey.add_root(Root((ROOT, ("context", *default))), value, held)
    watch = survey.records
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
