"""How far the values of a call are taken apart natively."""

from typing import Any

import pytest
import torch

from kernelmill.artifact.manifest import CallSpec, Manifest, Parameter, Read, Source
from kernelmill.artifact.paths import Tree
from kernelmill.artifact.structure import MOST_REGISTERS, Structure

X, MANY = (("argument", "x"),), (("argument", "many"),)
TREE = Tree()
PLACES = {path: TREE.number(path) for path in (X, MANY, (*MANY, ("item", 0)))}


def structure_of(many: Any) -> Structure:
    spec = CallSpec(
        "f", (Parameter("x"), Parameter("many")), (Read("shape", MANY, place=PLACES[MANY]),),
        (Source(X, place=PLACES[X]),), {},
    )  # fmt: skip
    return Structure(Manifest(spec, tree=TREE), (torch.ones(1), many), 1, {})


@pytest.mark.parametrize("kind", [list, tuple, lambda items: dict.fromkeys(items)])
def test_a_million_elements_are_left_to_python(kind: Any) -> None:
    structure = structure_of(kind(range(1_000_000)))
    assert structure.sources([0]) is None
    assert structure.registers <= MOST_REGISTERS and len(structure.steps) < 10


def test_registers_are_used_up_to_the_most() -> None:
    rest = structure_of([0]).registers - 1
    assert structure_of([0] * (MOST_REGISTERS - rest)).sources([0]) is not None
    assert structure_of([0] * (MOST_REGISTERS - rest + 1)).sources([0]) is None
