"""Results become data and come back, built as they were."""

import importlib
import json
import sys
from collections import OrderedDict, namedtuple
from dataclasses import dataclass, field

import pytest
import torch

from kernelmill.artifact.results import NoClass, Shaper, build_of
from kernelmill.core.errors import StoreError, UnsupportedError

Pair = namedtuple("Pair", "low high")


@dataclass
class Boxed:
    value: object
    note: object = None


A, B, X = torch.ones(2), torch.zeros(3), torch.arange(4.0)
PATH = (("argument", "x"),)

RETURNED = [
    A, [A, B], (B, A), {"a": A, 1: B, None: None}, Pair(A, 3), Boxed(A, "text"), [X, (A,)], (A, B),
    [True, 1.5, -0.0, "t", None], {}, [], (), Boxed(Pair([A], {"b": B})), {"a": A, "b": (B,)},
    (A,), [B], (A, [3]), {"a": (B, A), "b": X, "c": 1},
    OrderedDict(b=A, a=B), OrderedDict(out=OrderedDict(), x=[X]),
]  # fmt: skip


def round_trip(value):
    shape = json.loads(json.dumps(Shaper([A, B], {PATH: X}).describe(value)))
    return build_of(shape, lambda path, values: dict(values)[path])([A, B], [(PATH, X)])


@pytest.mark.parametrize("value", RETURNED, ids=lambda value: repr(value)[:30])
def test_what_is_returned_is_built_again(value):
    got = round_trip(value)
    assert type(got) is type(value)
    assert repr(got) == repr(value)


def test_tensors_are_the_programs_and_the_callers_own():
    got = round_trip({"a": A, "x": [X]})
    assert got["a"] is A and got["x"][0] is X


def test_integers_are_remembered():
    shaper = Shaper([A], {})
    shaper.describe([3, True, A, {"n": 5}])
    assert shaper.integers == {3, 5}


class Local(tuple):
    pass


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (torch.ones(1), "does not compute"),
        ({2.5: A}, "keys"),
        (object(), "builtins.object"),
        (Local(), "Local"),
        (namedtuple("Lost", "a")(A), "no import finds"),
    ],
)
def test_what_cannot_be_built_is_refused(value, why):
    with pytest.raises(UnsupportedError, match=why):
        Shaper([A], {}).describe(value)


def nothing(path, values):
    raise AssertionError("no input is returned")


def described(value):
    return json.loads(json.dumps(Shaper([A, B], {}).describe(value)))


NAMES = [
    "os:system", "nowhere:Thing", "collections:OrderedDict", f"{__name__}:X", f"{__name__}:Lost",
    f"{__name__}:Boxed.__class__",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [Boxed(A), Pair(A, B)], ids=["dataclass", "named tuple"])
def test_only_the_named_tuples_and_dataclasses_that_were_recorded_are_made(value, name):
    form = "named" if isinstance(value, tuple) else "object"
    with pytest.raises(StoreError, match="the result is a"):
        build_of({**described(value), form: name}, nothing)


@pytest.mark.parametrize("kind", [torch.return_types.max, torch.return_types.topk])
def test_results_of_operators_with_several_are_made_again(kind):
    made = build_of(described(kind((B, A))), nothing)([A, B], ())
    assert type(made) is kind
    assert made.values is B
    assert made.indices is A
    with pytest.raises(NoClass, match="compile anew"):
        build_of({**described(kind((A, B))), "names": ["values"]}, nothing)


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The name of a module that tells `sys` when it is imported, and asked for what it lacks."""
    (tmp_path / "of_results.py").write_text(
        "import sys\n"
        "from dataclasses import dataclass\n"
        "sys.imported_of_results = True\n"
        "@dataclass\n"
        "class Found:\n"
        "    value: object\n"
        "def __getattr__(name):\n"
        "    sys.imported_of_results = name\n"
        "    raise AttributeError(name)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "imported_of_results", False, raising=False)
    yield "of_results"
    sys.modules.pop("of_results", None)


def test_a_file_makes_nobody_import_a_module(module):
    shape = {"object": f"{module}:Found", "fields": [["value", {"result": 0}]]}
    with pytest.raises(NoClass, match="of_results is not imported: import it first"):
        build_of(shape, nothing)
    assert sys.imported_of_results is False
    found = importlib.import_module(module).Found
    made = build_of(shape, nothing)([A], [])
    assert type(made) is found and made.value is A


def test_looking_for_a_class_runs_no_code_of_its_module(module):
    importlib.import_module(module)
    with pytest.raises(NoClass, match="no such class"):
        build_of({"object": f"{module}:Lazy", "fields": [["value", {"result": 0}]]}, nothing)
    assert sys.imported_of_results is True


def test_a_class_with_other_fields_than_recorded_is_refused(monkeypatch):
    pair, boxed = described(Pair(A, B)), described(Boxed(A))
    monkeypatch.setitem(globals(), "Pair", namedtuple("Pair", "high low"))
    with pytest.raises(NoClass, match=r"Pair with the fields \(low, high\)"):
        build_of(pair, nothing)
    boxed["fields"].pop()
    with pytest.raises(NoClass, match=r"Boxed with the fields \(value\)"):
        build_of(boxed, nothing)


@dataclass
class Counting:
    value: object
    seen: object = field(init=False, default=None)


def test_a_dataclass_with_fields_that_its_constructor_does_not_take_is_refused():
    # What is set after the constructor would be lost.
    with pytest.raises(UnsupportedError, match="Counting"):
        described(Counting(A))
