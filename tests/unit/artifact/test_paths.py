"""Paths: what they lead to, how far they go, how they read."""

import json
import re
from collections import defaultdict
from contextvars import ContextVar
from types import CellType
from typing import Any

import pytest
import torch

from kernelmill.artifact.paths import (
    MISSING,
    ArgumentReader,
    MissingPath,
    Roots,
    Tree,
    follow,
    text_of,
)


class Owner:
    def __init__(self):
        self.layers = [3, {"a": 4, "b": 5}]
        self.name = "x"


HELD: ContextVar[int] = ContextVar("held", default=8)
EMPTY: ContextVar[int] = ContextVar("empty")
FREE = {"outer": CellType({"k": 6}), "held": CellType(HELD), "empty": CellType(EMPTY)}
ROOTS = Roots(Owner(), {"x": (1, 2, 3)}, FREE)

PATHS = [
    ((("self",), ("attribute", "layers"), ("item", 0)), 3, "self.layers[0]"),
    ((("self",), ("attribute", "layers"), ("item", 1), ("item", "b")), 5, "self.layers[1]['b']"),
    ((("self",), ("attribute", "layers"), ("item", 1), ("nth", 0)), 4, "self.layers[1][0]"),
    ((("self",), ("attribute", "layers"), ("item", 1), ("key", 1)), "b", "self.layers[1][1]"),
    ((("self",), ("field", "name")), "x", "self.name"),
    ((("self",), ("type",)), Owner, "type(self)"),
    ((("argument", "x"), ("slice", 1, None, None)), (2, 3), "x[1:None:None]"),
    ((("free", "outer"), ("item", "k")), 6, "outer['k']"),
    ((("free", "held"), ("context",)), 8, "held.get()"),
    ((("free", "empty"), ("context", "none")), "none", "empty.get()"),
    ((("module", "json"),), json, "json"),
    ((("global", "json", "dumps"),), json.dumps, "json.dumps"),
]


@pytest.mark.parametrize(("path", "value", "text"), PATHS, ids=[text for _, _, text in PATHS])
def test_a_path_leads_to_a_value_and_has_a_text(path: Any, value: Any, text: Any):
    assert follow(path, ROOTS) == value
    assert text_of(path) == text


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ((("self",), ("attribute", "none"), ("item", 0)), "self.none"),
        ((("self",), ("attribute", "layers"), ("item", 7)), "self.layers[7]"),
        ((("argument", "y"),), "y"),
        ((("global", "json", "nothing"),), "json.nothing"),
        ((("module", "nowhere"),), "nowhere"),
        ((("free", "empty"), ("context",)), "empty.get()"),
        ((("free", "outer"), ("context",)), "outer.get()"),
    ],
)
def test_a_path_that_leads_nowhere_says_where_it_ends(path: Any, where: Any):
    with pytest.raises(MissingPath, match=re.escape(where)):
        follow(path, ROOTS)


def test_a_tree_has_each_step_once_and_gives_the_paths_back():
    tree, paths = Tree(), [path for path, _, _ in PATHS]
    places = [tree.number(path) for path in paths]
    assert [tree.number(path) for path in paths] == places
    assert len(tree.rows) < sum(map(len, paths))
    again = Tree(tree.rows).paths()
    assert [again[place] for place in places] == paths


def test_keys_that_are_equal_and_not_the_same_are_told_apart():
    tree = Tree()
    assert tree.number((("self",), ("item", 1))) != tree.number((("self",), ("item", True)))


@pytest.mark.parametrize("key", ["a", 1])
def test_looking_makes_nothing_in_a_defaultdict(key: Any):
    value, tree = defaultdict(int, b=5), Tree()
    path = (("argument", "x"), ("item", key))
    place = tree.number(path)
    reader = ArgumentReader(tree, ["x"])
    assert reader([value])[reader.numbers[place]] is MISSING
    with pytest.raises(MissingPath):
        follow(path, Roots(None, {"x": value}, {}))
    assert value == {"b": 5}


@pytest.mark.filterwarnings("error")
def test_text_is_no_index_of_a_tensor():
    path, tree = (("argument", "x"), ("item", "a")), Tree()
    place = tree.number(path)
    reader = ArgumentReader(tree, ["x"])
    assert reader([torch.ones(2)])[reader.numbers[place]] is MISSING
    assert reader([{"a": 5}])[reader.numbers[place]] == 5
    with pytest.raises(MissingPath, match=re.escape("x['a']")):
        follow(path, Roots(None, {"x": torch.ones(2)}, {}))
