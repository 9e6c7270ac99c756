"""The watch of programs that have no quick way: each kind of row tells of a change."""

from collections.abc import Callable
from typing import Any

import pytest

from kernelmill.runtime.calls.engine import supported
from kernelmill.runtime.layout import WatchKind
from kernelmill.runtime.quick import NativeWatch, Row, version_row, word_row
from kernelmill.torch_internals.objects import SIZE_AT, dict_version

pytestmark = pytest.mark.skipif(not supported(), reason="objects are laid out otherwise")
ONE, TWO = object(), object()


def in_dict(owner: dict[str, Any]) -> Row:
    return WatchKind.DICT_ITEM, owner, "key", hash("key"), id(ONE)


def in_list(owner: list[Any]) -> Row:
    return WatchKind.LIST_ITEM, owner, None, 0, id(ONE)


def test_no_guards_hold_before_it_is_watched() -> None:
    watch = NativeWatch()
    assert not watch.guards_hold()
    watch.watch(())
    assert watch.guards_hold()
    watch.watch(None)
    assert not watch.guards_hold() and watch.rows == ()


@pytest.mark.parametrize(
    ("make", "row", "change"),
    [
        (lambda: {"key": ONE}, in_dict, lambda d: d.update(key=TWO)),
        (lambda: {"key": ONE}, in_dict, lambda d: d.clear()),
        (
            lambda: [ONE],
            lambda o: (WatchKind.LIST_ITEM, o, None, 0, id(ONE)),
            lambda o: o.insert(0, TWO),
        ),
        (lambda: [ONE], lambda o: word_row(o, SIZE_AT, len(o)), lambda o: o.append(ONE)),
    ],
)
def test_a_change_is_seen(
    make: Callable[[], Any], row: Callable[[Any], Row], change: Callable[[Any], object]
) -> None:
    owner, watch = make(), NativeWatch()
    watch.watch([row(owner)])
    assert watch.guards_hold() and watch.guards_hold()
    change(owner)
    assert not watch.guards_hold()


@pytest.mark.skipif(not dict_version.works, reason="dicts have no versions")
def test_versions_of_dicts() -> None:
    owner, watch = {"key": ONE}, NativeWatch()
    watch.watch([version_row(owner)])
    assert watch.guards_hold()
    owner["other"] = TWO
    assert not watch.guards_hold()
