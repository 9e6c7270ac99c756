"""How far the values of a call are taken apart natively."""

from typing import Any

import pytest
import torch

from kernelmill.artifact.guards import ArgumentCode
from kernelmill.artifact.manifest import CallSpec, Guard, Manifest, Parameter, Source
from kernelmill.artifact.paths import Tree
from kernelmill.artifact.unpacker import MOST_REGISTERS, ArgumentUnpacker

X, MANY = (("argument", "x"),), (("argument", "many"),)
TREE = Tree()
PLACES = {path: TREE.number(path) for path in (X, MANY, (*MANY, ("item", 0)))}


def unpacker_of(many: Any) -> ArgumentUnpacker:
    spec = CallSpec(
        "f", (Parameter("x"), Parameter("many")), (Guard("shape", MANY, place=PLACES[MANY]),),
        (Source(X, place=PLACES[X]),), {},
    )  # fmt: skip
    values = torch.ones(1), many
    return ArgumentUnpacker(Manifest(spec, tree=TREE), values, 1, {}, ArgumentCode([]))


@pytest.mark.parametrize("kind", [list, tuple, lambda items: dict.fromkeys(items)])
def test_a_million_elements_are_left_to_python(kind: Any) -> None:
    unpacker = unpacker_of(kind(range(1_000_000)))
    assert unpacker.unpacking([0], (), None) is None
    assert unpacker.registers <= MOST_REGISTERS and len(unpacker.steps) < 10


def test_registers_are_used_up_to_the_most() -> None:
    rest = unpacker_of([0]).registers - 1
    assert unpacker_of([0] * (MOST_REGISTERS - rest)).unpacking([0], (), None) is not None
    assert unpacker_of([0] * (MOST_REGISTERS - rest + 1)).unpacking([0], (), None) is None
