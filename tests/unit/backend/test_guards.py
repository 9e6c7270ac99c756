"""Dynamo's guards: each kind is in one table, and a trace that has another is not kept."""

import importlib
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch._dynamo import source as dynamo
from torch._dynamo.guards import GuardBuilder

from kernelmill.artifact.guard_kinds import ELSEWHERE, KINDS, WHOLE, GuardKind
from kernelmill.artifact.guards import ArgumentChecks, ArgumentCode, with_value
from kernelmill.artifact.paths import Roots
from kernelmill.backend.guards import Layouts, reads_of
from kernelmill.backend.sources import SourceReader
from kernelmill.core.errors import UnsupportedError

STAND_IN = "torch._dynamo.polyfills.functools"
IMPORTS = {"__import_stand_in": STAND_IN, "__import_own": "functools"}
UNDERSTOOD = {name for kind in KINDS.values() for name in kind.dynamo}
DYNAMOS = {name for name in dir(GuardBuilder) if name.isupper()}
LATER = {"CONSTANT_SUBCLASS_MATCH", "DICT_NOT_CONTAINS", "FAKE_SCRIPT_TYPE_MATCH",
         "SET_NOT_CONTAINS"}  # fmt: skip
"""Kinds that torch 2.11 or 2.12 does not have."""


def guard(kind, source=None, create=None):
    source = source or dynamo.LocalSource("x", is_input=True)
    return SimpleNamespace(
        create_fn_name=lambda: kind, name=source.name, originating_source=source, create_fn=create
    )


def found_reads(kind, value, **more):
    reader = SourceReader("", frozenset({"x"}), "m", IMPORTS, {})
    env = SimpleNamespace(guards=[], replacements={}, var_to_range={}, var_to_sources={})
    layouts = Layouts(SimpleNamespace(shape_env=env, input_source_to_sizes_strides={}), [], (), ())
    return reads_of([guard(kind, **more)], reader, Roots(None, {"x": value}, {}), layouts)


def reads(kind, value, **more):
    found = found_reads(kind, value, **more)
    return [
        with_value(read, Roots(None, {"x": value}, {}), ArgumentCode([]))
        for read in found.arguments
    ]


def outside(kind, **more):
    """The paths that are read outside of arguments."""
    return list(found_reads(kind, 1, **more).outside)


def test_a_tensor_whose_sizes_are_not_known_is_refused():
    with pytest.raises(UnsupportedError, match=r"depends on the sizes of .*x"):
        reads("TENSOR_MATCH", torch.ones(2))


def test_all_kinds_of_the_table_are_dynamos():
    assert UNDERSTOOD | ELSEWHERE <= DYNAMOS | LATER


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
    checks = ArgumentChecks([placed], range(1), ArgumentCode([]))
    assert not checks.difference(["%s of two"])
    differs = checks.difference(["%s of three"])
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


class Attributed:
    here = 1


@pytest.mark.parametrize(("name", "found"), [("here", "True"), ("missing", "False")])
def test_a_guard_of_an_attribute_says_its_name_or_is_about_its_source(name, found):
    of_object = reads("HASATTR", Attributed(), create=partial(lambda: None, attr=name))
    source = dynamo.AttrSource(dynamo.LocalSource("x", is_input=True), name)  # up to torch 2.11
    of_attribute = reads("HASATTR", Attributed(), source=source, create=lambda: None)
    assert of_attribute == of_object
    assert (of_object[0].name, of_object[0].found) == (name, found)


# ---- Dynamo's stand-ins for functions of C --------------------------------------------------


def global_of_stand_in(*names):
    source = dynamo.GlobalSource("__import_stand_in")
    for name in names:
        source = dynamo.AttrSource(source, name)
    return source


@pytest.mark.parametrize("names", [(), ("_initial_missing",), ("reduce",), ("reduce", "__code__")])
def test_what_a_stand_in_has_of_its_own_is_no_read(names):
    assert not outside("TYPE_MATCH", source=global_of_stand_in(*names))


def test_a_module_among_a_stand_ins_globals_is_read_in_its_own_place():
    (path,) = outside("FUNCTION_MATCH", source=global_of_stand_in("functools", "reduce"))
    assert path == (("module", "functools"), ("attribute", "reduce"))


def test_what_is_the_same_object_as_one_of_a_stand_ins_is_read_in_its_own_place():
    mark = partial(lambda: None, source_b=global_of_stand_in("_initial_missing"))
    module = dynamo.AttrSource(dynamo.GlobalSource("__import_own"), "_initial_missing")
    (own,) = outside("DUPLICATE_INPUT", source=module, create=mark)
    assert own == (("module", "functools"), ("attribute", "_initial_missing"))


def test_data_of_a_stand_in_is_read(monkeypatch):
    stand_in = importlib.import_module(STAND_IN)
    monkeypatch.setattr(stand_in, "options", [1], raising=False)
    (path,) = outside("EQUALS_MATCH", source=global_of_stand_in("options"))
    assert path[-1] == ("attribute", "options")


# ---- ContextVars ----------------------------------------------------------------------------


@pytest.fixture
def of_context(monkeypatch):
    """Makes the source of what the argument holds, which torch has from 2.14 on."""
    if not hasattr(dynamo, "ContextVarGetSource"):
        made = type("ContextVarGetSource", (SimpleNamespace,), {"name": "x.get()"})
        monkeypatch.setattr(dynamo, "ContextVarGetSource", made, raising=False)

    def make(*default):
        base = dynamo.LocalSource("x", is_input=True)
        return dynamo.ContextVarGetSource(
            base=base, has_default=bool(default), default_value=default[0] if default else None
        )

    return make


@pytest.mark.parametrize("default", [(), (7,), (None,), ("none",)])
def test_what_a_context_variable_holds_is_read_by_asking_it(of_context, default):
    empty, full = ContextVar("empty"), ContextVar("full", default=5)
    (read,) = reads("EQUALS_MATCH", full, source=of_context(*default))
    assert read.path == (("argument", "x"), ("context", *default))
    assert read.found == ("int 5" if not default else reads("EQUALS_MATCH", default[0])[0].found)
    full.set(6)
    assert reads("EQUALS_MATCH", full, source=of_context(*default))[0].found == "int 6"
    if not default:
        with pytest.raises(UnsupportedError, match="which no name finds again"):
            reads("EQUALS_MATCH", empty, source=of_context())


def test_a_default_that_no_file_holds_is_refused(of_context):
    with pytest.raises(UnsupportedError, match="whose default no file holds"):
        reads("EQUALS_MATCH", ContextVar("empty"), source=of_context((1, 2)))
