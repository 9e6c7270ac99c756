"""What is concluded from masks about the positions of keys."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kernelmill.core.dtype import BOOL, I32
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Value
from kernelmill.lower.templates.attention.bind import latest_key

SHAPE = (2, 3, 40, 50)


class Positions:
    """Writes masks of rows and keys."""

    def __init__(self) -> None:
        self.b = GraphBuilder("mask")
        self.row, self.key, self.head = (self._place(dim) for dim in (2, 3, 1))
        self.other = self.b.input("other", BOOL, SHAPE)

    def _place(self, dim: int) -> Value:
        shape = tuple(size if d == dim else 1 for d, size in enumerate(SHAPE))
        place = self.b.emit("cast", self.b.emit("iota", dim=dim, shape=shape), dtype=I32)
        return self.b.emit("expand", place, shape=SHAPE)

    def number(self, value: int) -> Value:
        return self.b.emit("full", value=value, dtype=I32, shape=SHAPE)

    def __call__(self, op: str, *operands: Value) -> Value:
        return self.b.emit(op, *operands)


MASKS: dict[str, tuple[Callable[[Positions], Value], int | None]] = {
    "row >= key": (lambda p: p("ge", p.row, p.key), 0),
    "key <= row": (lambda p: p("le", p.key, p.row), 0),
    "row > key": (lambda p: p("gt", p.row, p.key), -1),
    "key < row + 4": (lambda p: p("lt", p.key, p("add", p.row, p.number(4))), 3),
    "row - key >= -2": (lambda p: p("ge", p("sub", p.row, p.key), p.number(-2)), 2),
    "row >= key & other": (lambda p: p("bit_and", p.other, p("ge", p.row, p.key)), 0),
    "row >= key & row + 3 > key": (
        lambda p: p(
            "bit_and",
            p("gt", p("add", p.row, p.number(3)), p.key),
            p("ge", p.row, p.key),
        ),
        0,
    ),
    "row >= key | other": (lambda p: p("bit_or", p.other, p("ge", p.row, p.key)), None),
    "row <= key": (lambda p: p("le", p.row, p.key), None),
    "row != key": (lambda p: p("ne", p.row, p.key), None),
    "row * row >= key": (lambda p: p("ge", p("mul", p.row, p.row), p.key), None),
    "row + row >= key": (lambda p: p("ge", p("add", p.row, p.row), p.key), None),
    "head >= key": (lambda p: p("ge", p.head, p.key), None),
    "other": (lambda p: p.other, None),
}


@pytest.mark.parametrize("name", MASKS)
def test_latest_key(name: str) -> None:
    write, wanted = MASKS[name]
    assert latest_key(write(Positions())) == wanted
