"""A schedule is one file and its place in a union: no other code asks which of them it has."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from kernelmill.lower.templates.attention.template import AttentionSchedule
from kernelmill.lower.templates.convolution.channels_last import layout as channels_last
from kernelmill.lower.templates.convolution.planar import layout as planar
from kernelmill.lower.templates.matmul import schedule as matmul

LOWER = Path(__file__).parents[2] / "src" / "kernelmill" / "lower"
UNIONS = {
    "matmul": get_args(matmul.Schedule),
    "channels_last": get_args(channels_last.Schedule),
    "planar": get_args(planar.Schedule),
    "attention": get_args(AttentionSchedule),
}
NAMES = {kind.__name__ for kinds in UNIONS.values() for kind in kinds}


def _asked(tree: ast.AST) -> Iterator[str]:
    """Names of classes that are looked for by `isinstance` or by a pattern."""
    for node in ast.walk(tree):
        if isinstance(node, ast.MatchClass):
            yield ast.unparse(node.cls)
        called = isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance"
        if called and isinstance(node, ast.Call):
            yield from (one.id for one in ast.walk(node.args[1]) if isinstance(one, ast.Name))


def test_nobody_asks_which_schedule_it_has() -> None:
    found = {
        f"{path.relative_to(LOWER)}: {name}"
        for path in LOWER.rglob("*.py")
        for name in _asked(ast.parse(path.read_text()))
        if name in NAMES
    }
    assert not found


@pytest.mark.parametrize("union", UNIONS)
def test_every_kind_of_schedule_has_a_file_of_its_own(union: str) -> None:
    kinds = UNIONS[union]
    assert len(kinds) > 1
    assert len({kind.__module__ for kind in kinds}) == len(kinds)
