"""What a program's owner holds, as lines: each change that code may see is in them."""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from kernelmill.artifact.manifest import Root
from kernelmill.artifact.owned import Survey
from kernelmill.artifact.paths import MISSING, Path, Roots, Tree

SELF: Path = (("self",),)
NAMES = frozenset("held rate function weight key training".split())


class Thing:
    level = 1

    def __init__(self) -> None:
        self.rate = 2.0
        self.unnamed = 0


class Slotted:
    __slots__ = ("rate",)

    def __init__(self) -> None:
        self.rate = 2.0


class Model(nn.Module):
    held: Any

    def __init__(self, held: Any = None) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.held = held


def surveyed(model: Model, inputs: Any = (), whole: bool = False) -> Survey:
    survey = Survey(NAMES, inputs, whole)
    survey.add_root(Root(SELF), model)
    return survey


def closure() -> tuple[Callable[[], float], Callable[[float], None]]:
    rate = 2.0

    def read() -> float:
        return rate

    def write(value: float) -> None:
        nonlocal rate
        rate = value

    return read, write


def hook(*args: Any) -> None:
    pass


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[Model], object]]] = {
    "number": (lambda: 1, lambda m: setattr(m, "held", 1.0)),
    "list": (lambda: [1, 2], lambda m: m.held.append(3)),
    "list in a dict": (lambda: {"a": [1]}, lambda m: m.held["a"].append(3)),
    "order of a dict": (lambda: {"a": 1, "b": 2}, lambda m: setattr(m, "held", {"b": 2, "a": 1})),
    "order of an OrderedDict": (
        lambda: collections.OrderedDict(a=1, b=2), lambda m: m.held.move_to_end("a"),
    ),
    "set": (lambda: {1}, lambda m: m.held.add(2)),
    "deque": (lambda: collections.deque([1]), lambda m: m.held.append(2)),
    "object": (Thing, lambda m: setattr(m.held, "rate", 3.0)),
    "object of slots": (Slotted, lambda m: setattr(m.held, "rate", 3.0)),
    "variable of a closure": (closure, lambda m: m.held[1](3.0)),
    "keyword of a partial that had none": (
        lambda: functools.partial(hook), lambda m: m.held.keywords.update(key=1),
    ),
    "argument of a partial": (
        lambda: functools.partial(hook, 1), lambda m: setattr(m, "held", functools.partial(hook)),
    ),
    "own attribute": (Thing, lambda m: setattr(m, "rate", 1)),
    "mode": (lambda: None, lambda m: m.train(not m.training)),
    "hook": (lambda: None, lambda m: m.layer.register_forward_hook(hook)),
    "hook with keywords": (
        lambda: None, lambda m: m.layer.register_forward_pre_hook(hook, with_kwargs=True),
    ),
    "another layer": (lambda: None, lambda m: setattr(m, "layer", nn.Identity())),
    "a layer more": (lambda: None, lambda m: m.add_module("more", nn.Identity())),
    "class of a layer": (
        lambda: None, lambda m: setattr(m.layer, "__class__", type("L", (nn.Linear,), {})),
    ),
    "a tensor in place of another kind": (
        lambda: None, lambda m: setattr(m.layer, "weight", None),
    ),
    "two tensors that become one": (
        lambda: [nn.Linear(2, 2).weight], lambda m: m.held.__setitem__(0, m.layer.weight),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_is_in_the_lines_and_seen_by_the_watch(what: str) -> None:
    make, change = CHANGES[what]
    model = Model(make())
    before = surveyed(model)
    watch = before.records
    assert watch.unchanged() and not surveyed(model).difference(before.lines)
    change(model)
    assert not watch.unchanged()
    assert surveyed(model).difference(before.lines)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: setattr(m.held, "unnamed", 1),
        lambda m: setattr(m, "unnamed", 1),
        lambda m: m.layer.register_state_dict_pre_hook(hook),
        lambda m: m.layer.weight.fill_(3.0),
        lambda m: m.register_full_backward_hook(hook),
    ],
)
@torch.no_grad()
def test_what_no_code_reads_is_not_in_the_lines(change: Callable[[Model], object]) -> None:
    model = Model(Thing())
    before = surveyed(model)
    change(model)
    assert not surveyed(model).difference(before.lines)
    assert before.records.unchanged()


def test_all_attributes_of_a_users_object_count_where_code_looks_at_all() -> None:
    model = Model(Thing())
    before = surveyed(model, whole=True)
    model.held.unnamed = 1
    assert "unnamed: int 0" in surveyed(model, whole=True).difference(before.lines)


def test_keys_of_hooks_are_numbers_of_the_process() -> None:
    models = [Model(), Model()]
    for model in models:
        model.layer.register_forward_hook(hook)
    one, other = map(surveyed, models)
    assert one.lines == other.lines


def test_a_difference_says_where_it_is_and_what() -> None:
    model = Model([Thing(), {"key": 1}])
    before = surveyed(model)
    model.held[1]["key"] = 2
    assert (
        surveyed(model).difference(before.lines)
        == "self.held[1]: was 'key': int 1, is 'key': int 2"
    )


def test_tensors_are_not_kept_alive() -> None:
    model = Model()
    survey = surveyed(model, [model.layer.weight, model.layer.bias])
    watch = survey.records
    del survey
    other = nn.Linear(2, 2)
    torch.utils.swap_tensors(model.layer.weight, other.weight)
    assert watch.unchanged()


def test_an_input_may_be_replaced_by_a_tensor_that_is_no_other() -> None:
    model = Model(nn.Linear(2, 2))
    inputs = [*model.parameters()]
    watch = surveyed(model, inputs).records
    for _ in range(2):
        model.layer.weight = nn.Parameter(torch.ones(2, 2))
        assert watch.unchanged()
    model.held.weight = model.layer.weight
    assert not watch.unchanged()


def test_a_tensor_that_is_no_input_stays_as_it_is() -> None:
    model = Model()
    watch = surveyed(model).records
    assert watch.unchanged()
    model.layer.weight = nn.Parameter(torch.ones(2, 2))
    assert not watch.unchanged()


def test_two_inputs_that_were_one_are_told_apart() -> None:
    model = Model(nn.Linear(2, 2))
    model.held.weight = model.layer.weight
    before = surveyed(model, model.parameters())
    model.held.weight = nn.Parameter(torch.ones(2, 2))
    assert surveyed(model, model.parameters()).difference(before.lines)


# ---- outside of the owner -------------------------------------------------------------------

REGISTRY: dict[str, Any] = {"key": [1], "other": 2}
SPACE = types.ModuleType("kernelmill_owned_sample")


def followed(path: Path, what: str = "class") -> Survey:
    survey, tree = Survey(NAMES, ()), Tree()
    tree.number(path)
    survey.follow(tree, tree.values(Roots(None, {}, {})), {path: what}, {})
    return survey


def of_registry(*steps: tuple[Any, ...]) -> Path:
    return (("global", __name__, "REGISTRY"), *steps)


def test_of_a_global_dict_what_was_taken_counts() -> None:
    before = followed(of_registry(("item", "key")))
    watch = before.records
    REGISTRY["other"] = 3
    assert watch.unchanged()
    assert followed(of_registry(("item", "key"))).lines == before.lines
    REGISTRY["key"].append(2)
    assert not watch.unchanged()
    assert followed(of_registry(("item", "key"))).lines != before.lines


def test_state_that_differs_and_comes_back_is_the_same_each_time() -> None:
    watch = followed(of_registry(("item", "key"))).records
    for _ in range(2):
        assert watch.unchanged()
        REGISTRY["key"].append(3)
        assert not watch.unchanged()
        assert not watch.unchanged()
        REGISTRY["key"].pop()
    REGISTRY["key"] = list(REGISTRY["key"])
    assert not watch.unchanged()


def test_a_global_dict_whose_keys_were_read_counts_as_a_whole() -> None:
    before = followed(of_registry(), "all")
    REGISTRY["more"] = 1
    assert not before.records.unchanged()
    assert followed(of_registry(), "all").lines != before.lines
    del REGISTRY["more"]


def test_of_a_global_dict_whose_keys_were_read_no_value_is_kept() -> None:
    before = followed(of_registry(), "keys")
    watch = before.records
    REGISTRY["other"] = "secret"
    assert watch.unchanged()
    assert followed(of_registry(), "keys").lines == before.lines
    REGISTRY["more"] = 1
    assert not watch.unchanged()
    assert followed(of_registry(), "keys").lines != before.lines
    del REGISTRY["more"]
    assert "secret" not in str(followed(of_registry(("item", "other")), "presence").lines)


def test_what_is_not_there_may_not_come() -> None:
    before = followed(of_registry(("item", "absent")))
    assert before.lines[-1].endswith("['absent']: nothing")
    watch = before.records
    REGISTRY["absent"] = 1
    assert not watch.unchanged()
    assert followed(of_registry(("item", "absent"))).lines != before.lines
    del REGISTRY["absent"]


@pytest.mark.parametrize("value", [Thing(), Slotted(), hook, MISSING])
def test_lines_are_the_same_each_time(value: Any) -> None:
    model = Model(value)
    assert surveyed(model).lines == surveyed(model).lines
