"""Shapes of the values that a call returns or sets, as JSON: a grammar checked without torch.

{"result": N} {"input": PATH} {"constant": JSON}     a result of the program, an object that it
{"constant": HEX, "float": true}                     was given, data, a float exactly
{"item": N}                                          `item()` of result N
{"dtype": NAME} {"device": NAME}                     "float32", "cpu"
{"list": [...]} {"tuple": [...]} {"dict": [[K, V]]}   containers
{"dict": [[K, V]], "ordered": true}                   an OrderedDict
{"named": NAME, "names": [...], "items": [...]}       a named tuple or one of
                                                      torch.return_types, by "module:Class"
{"object": NAME, "fields": [[NAME, V]]}               a dataclass (ModelOutput), the same way
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from kernelmill.artifact.paths import check_path
from kernelmill.artifact.typed import DATA, maker, of_type

Shape = Annotated[Mapping[str, Any], "a shape"]

DEEPEST = 100
"""Limit on nested containers. Each is built by a few nested calls."""

_Number = Annotated[int, lambda number: number >= 0]
_Exact = Annotated[str, float.fromhex]

_GRAMMAR: Mapping[tuple[str, ...], tuple[Any, ...]] = {
    ("result",): (_Number,),
    ("item",): (_Number,),
    ("input",): (Annotated[tuple[tuple[DATA, ...], ...], check_path],),
    ("constant",): (DATA,),
    ("constant", "float"): (_Exact, bool),
    ("dtype",): (str,),
    ("device",): (str,),
    ("list",): (tuple[Shape, ...],),
    ("tuple",): (tuple[Shape, ...],),
    ("dict",): (tuple[tuple[DATA, Shape], ...],),
    ("dict", "ordered"): (tuple[tuple[DATA, Shape], ...], bool),
    ("named", "names", "items"): (str, tuple[str, ...], tuple[Shape, ...]),
    ("object", "fields"): (str, tuple[tuple[str, Shape], ...]),
}
"""The types of the parts of a shape, by its names."""


def shapes_in(value: Any) -> Iterator[Shape]:
    """Yield a shape and all those inside of it, each checked. TypeError or ValueError for a value
    that is none, or nests too deep."""
    level, depth = [value], 0
    while level:
        if depth > DEEPEST:
            raise ValueError(f"what it returns nests deeper than {DEEPEST}")
        inner: list[Any] = []
        for shape in level:
            kinds = _GRAMMAR.get(tuple(of_type(shape, dict)))
            if kinds is None:
                raise ValueError(f"it returns {shape!r:.60}")
            for kind, part in zip(kinds, shape.values(), strict=True):
                maker(kind, {Shape: inner.append})(part)
            yield shape
        level, depth = inner, depth + 1


def read_shape(value: Any) -> Shape:
    """Check a value as a whole and return it."""
    shape, *_ = shapes_in(value)
    return shape


def results_in(shape: Shape) -> int:
    """Return the number of results that a shape needs from the program."""
    return 1 + max(part.get("result", part.get("item", -1)) for part in shapes_in(shape))
