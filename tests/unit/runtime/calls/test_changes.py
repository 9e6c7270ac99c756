"""What CPython tells of changes is counted once; what would go unseen is not relied on."""

from __future__ import annotations

import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest

from kernelmill.runtime.calls.changes import ChangeLog, change_log
from kernelmill.runtime.quick import NativeWatch, count_row
from kernelmill.torch_internals.objects import dict_version

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 12), reason="this Python does not tell of changes"
)


class Base:
    pass


class Thing(Base):
    def __init__(self) -> None:
        self.a, self.b = 1, 2


@pytest.fixture
def log() -> ChangeLog:
    found = change_log()
    assert found is not None
    return found


def test_versions_of_dicts_are_not_relied_on() -> None:
    assert not dict_version.works


CHANGES: dict[str, Callable[[Any], object]] = {
    "set": lambda d: d.update(a=object()),
    "add": lambda d: d.__setitem__("new", 1),
    "setdefault": lambda d: d.setdefault("new", 1),
    "delete": lambda d: d.__delitem__("a"),
    "pop": lambda d: d.pop("a"),
    "popitem": lambda d: d.popitem(),
    "clear": lambda d: d.clear(),
    "or": lambda d: d.__ior__({"a": object()}),
    "init": lambda d: d.__init__(a=object()),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("make", [dict, OrderedDict, lambda a, b: vars(Thing())])
def test_a_change_of_a_dict_is_counted_once(
    log: ChangeLog, make: Callable[..., Any], change: str
) -> None:
    owner, watch = make(a=1, b=2), NativeWatch()
    log.watch_dict(owner)
    watch.watch([count_row(log, {id(owner)})])
    before = log.count
    assert watch.guards_hold() and log.since(before) == set()
    CHANGES[change](owner)
    owner["more"] = 1
    assert not watch.guards_hold()
    assert log.count == before + 1 and log.since(before) == {id(owner)}
    log.watch_dict(owner)
    watch.watch([count_row(log, {id(owner)})])
    assert watch.guards_hold()
    owner["more"] = 2
    assert not watch.guards_hold()


@pytest.mark.parametrize(
    "change",
    [
        lambda kind: setattr(kind, "x", 1),
        lambda kind: setattr(kind.__base__, "x", 1),
        lambda kind: setattr(kind, "__bases__", (type("Other", (), {}),)),
    ],
)
def test_a_change_of_a_class_is_counted(log: ChangeLog, change: Callable[[type], object]) -> None:
    kind = type("Kind", (type("Parent", (), {}),), {})
    assert log.watch_class(kind)
    before = log.count
    change(kind)
    assert log.count == before + 1 and log.since(before) == {id(kind)}


def test_classes_that_change_unseen_are_not_watched(log: ChangeLog) -> None:
    class Meta(type):
        pass

    assert not log.watch_class(Meta("Kind", (), {}))
    worn, watched = type("Worn", (), {}), 0
    for n in range(5000):
        before = log.count
        if not log.watch_class(worn):
            break
        worn.x = n  # type: ignore[attr-defined]
        assert log.count == before + 1
        watched += 1
    assert watched > 100


def test_of_few_changes_the_objects_are_known(log: ChangeLog) -> None:
    owners = [{"a": n} for n in range(65)]
    before = log.count
    for owner in owners[:64]:
        log.watch_dict(owner)
        owner["a"] = None
    assert log.count == before + 64
    assert log.since(before) == {id(owner) for owner in owners[:64]}
    log.watch_dict(owners[64])
    owners[64].clear()
    assert log.since(before) is None
    assert log.since(log.count - 2) == {id(owner) for owner in owners[63:]}


def test_changes_of_other_objects_are_passed_over(log: ChangeLog) -> None:
    mine, other, watch = {"a": 1}, {"a": 1}, NativeWatch()
    log.watch_dict(mine)
    watch.watch([count_row(log, {id(mine)})])
    before = log.count
    for n in range(100):
        log.watch_dict(other)
        other["a"] = n + 2
        assert watch.guards_hold()
    assert log.count == before + 100
    dying = {"a": 1}
    log.watch_dict(dying)
    del dying
    assert log.count == before + 100
    other["b"] = 1  # which nobody has asked for again
    assert log.count == before + 100
    mine["a"] = 2
    assert not watch.guards_hold() and not watch.guards_hold()


ENDING = """
import atexit, gc, sys
from kernelmill.runtime.quick import NativeWatch, count_row

def late():
    from kernelmill.runtime.calls import changes
    assert changes.change_log() is None and not watch.guards_hold()
    owner["a"] = 2
    print("ended", flush=True)

atexit.register(late)  # called after what is registered later
from kernelmill.runtime.calls.changes import change_log
owner, watch, log = {"a": 1}, NativeWatch(), change_log()
log.watch_dict(owner)
log.watch_dict(vars(sys.modules["__main__"]))
watch.watch([count_row(log, {id(owner)})])
assert watch.guards_hold()
"""


def test_python_ends_with_dicts_that_are_watched() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDING], capture_output=True, text=True, timeout=600, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "ended"), done.stderr
