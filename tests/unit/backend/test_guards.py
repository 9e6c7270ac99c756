"""Dynamo's guards: each kind is in one table, and a trace that has another is not kept."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch._dynamo import source as dynamo
from torch._dynamo.guards import GuardBuilder

from kernelmill.artifact.guard_kinds import ELSEWHERE, KINDS, WHOLE, GuardKind
from kernelmill.artifact.guards import changes
from kernelmill.artifact.paths import Roots
from kernelmill.backend.guards import reads_of
from kernelmill.backend.sources import SourceReader
from kernelmill.core.errors import UnsupportedError

READER = SourceReader("", frozenset({"x"}), "m", {}, {})
UNDERSTOOD = {name for kind in KINDS.values() for name in kind.dynamo}
DYNAMOS = {name for name in dir(GuardBuilder) if name.isupper()}


def guard(kind, source=None, create=None):
    source = source or dynamo.LocalSource("x", is_input=True)
    return SimpleNamespace(
        create_fn_name=lambda: kind, name=source.name, originating_source=source, create_fn=create
    )


def reads(kind, value, **more):
    return reads_of([guard(kind, **more)], READER, Roots(None, {"x": value}, {}), frozenset())


def test_all_kinds_of_the_table_are_dynamos():
    assert UNDERSTOOD | ELSEWHERE <= DYNAMOS


def test_each_kind_stands_in_one_row():
    assert len(UNDERSTOOD) == sum(len(kind.dynamo) for kind in KINDS.values())
    assert not UNDERSTOOD & ELSEWHERE
    assert set(WHOLE) <= UNDERSTOOD


@pytest.mark.parametrize("kind", sorted(DYNAMOS - UNDERSTOOD - ELSEWHERE))
def test_a_kind_that_is_not_in_the_table_is_named(kind):
    with pytest.raises(UnsupportedError, match=f"depends on .*x.* by a guard {kind}"):
        reads(kind, 1)


def looked_up(key, value, kind="DICT_CONTAINS"):
    (read,) = reads(kind, value, create=partial(lambda: None, key=key))
    return read


@pytest.mark.parametrize("key", [3, True, torch.float32, (1, 2)])
@pytest.mark.parametrize("make", [lambda key: {key: object()}, lambda key: {key}])
def test_a_key_that_is_no_text_is_looked_up_among_all(key, make):
    read = looked_up(key, make(key))
    assert read.kind in ("shape", "value")
    others = [make(4), make(str(key)), make(key) | make(5)]
    assert all(looked_up(key, other).found != read.found for other in others)
    assert looked_up(key, make(key)).found == read.found


def test_a_set_of_objects_in_which_one_is_looked_up_is_refused():
    with pytest.raises(UnsupportedError, match=r"SET_CONTAINS.*builtins\.set"):
        looked_up(3, {3, Opaque()}, "SET_CONTAINS")


def test_a_row_is_all_that_a_new_kind_takes(monkeypatch):
    new = GuardKind(
        lambda guard, value, other, texts: value % guard.name, dynamo=("NEW_MATCH",), about="to"
    )
    monkeypatch.setitem(KINDS, "filled in", new)
    (read,) = reads("NEW_MATCH", "%s of two", create=partial(lambda: None, to="one"))
    assert (read.kind, read.name, read.found) == ("filled in", "one", "one of two")
    placed = replace(read, place=0)
    assert not list(changes([placed], ["%s of two"], frozenset()))
    (differs,) = changes([placed], ["%s of three"], frozenset())
    assert "one of two" in differs and "one of three" in differs


class Opaque:
    """Equal to whatever it pleases."""


@pytest.mark.parametrize("value", [1, 2.5, (1, [True, {"a": None}]), slice(0, 2), range(3),
                                   torch.float32, torch.finfo(torch.float16), {1, 2}])  # fmt: skip
def test_values_that_are_compared_are_compared_whole(value):
    (read,) = reads("EQUALS_MATCH", value)
    assert read.kind == "value"
    assert read.found != reads("EQUALS_MATCH", (value, 1))[0].found


@pytest.mark.parametrize("value", [Opaque(), [Opaque()], {"a": (1, Opaque())}])
def test_values_that_no_text_stands_for_are_refused(value):
    with pytest.raises(UnsupportedError, match="EQUALS_MATCH"):
        reads("EQUALS_MATCH", value)


@pytest.mark.parametrize(
    ("one", "other"),
    [(slice(0, 2), slice(0, 3)), (range(3), range(4)), (torch.finfo(torch.float32),
     torch.finfo(torch.float16))],
)  # fmt: skip
def test_slices_and_ranges_are_told_apart(one, other):
    assert reads("CONSTANT_MATCH", one)[0].found != reads("CONSTANT_MATCH", other)[0].found
