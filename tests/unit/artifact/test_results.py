"""Results become data and come back, built as they were."""

import json
from collections import namedtuple
from dataclasses import dataclass

import pytest
import torch

from kernelmill.artifact.results import Builder, Shaper
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
]  # fmt: skip


def round_trip(value, aliases=None):
    shape = json.loads(json.dumps(Shaper([A, B], {PATH: X}, aliases or {}).describe(value)))
    builder = Builder()
    build = builder.build(shape)
    assert all(path == PATH for path in builder.paths)
    return build([A, B], [X] * len(builder.paths))


@pytest.mark.parametrize("value", RETURNED, ids=lambda value: repr(value)[:30])
def test_what_is_returned_is_built_again(value):
    got = round_trip(value)
    assert type(got) is type(value)
    assert repr(got) == repr(value)


def test_tensors_are_the_programs_and_the_callers_own():
    got = round_trip({"a": A, "x": [X]})
    assert got["a"] is A and got["x"][0] is X


def test_a_view_of_an_argument_is_made_anew():
    view = round_trip([A], {0: (PATH, [2, 2], [1, 2], 0)})[0]
    assert view.tolist() == X.view(2, 2).t().tolist()
    assert view.data_ptr() == X.data_ptr()


def test_integers_are_remembered():
    shaper = Shaper([A], {}, {})
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
        Shaper([A], {}, {}).describe(value)


@pytest.mark.parametrize("name", ["os:system", "nowhere:Thing", "collections:OrderedDict"])
def test_only_named_tuples_and_dataclasses_are_made_by_name(name):
    for shape in ({"object": name, "fields": []}, {"named": name, "items": []}):
        with pytest.raises(StoreError):
            Builder().build(shape)
