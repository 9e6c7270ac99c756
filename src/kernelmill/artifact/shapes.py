"""What a call returns or sets, as JSON: its grammar, which reading a file checks without torch.

{"result": N} {"input": PATH} {"constant": JSON}     a result of the program, something that it
{"constant": HEX, "float": true}                     was given, data, a float exactly
{"item": N}                                          `item()` of result N
{"dtype": NAME} {"device": NAME}                     "float32", "cpu"
{"list": [...]} {"tuple": [...]} {"dict": [[K, V]]}   containers
{"named": NAME, "names": [...], "items": [...]}       a named tuple or one of
                                                      torch.return_types, by "module:Class"
{"object": NAME, "fields": [[NAME, V]]}               a dataclass (ModelOutput), the same way
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from kernelmill.artifact.paths import check_path

Shape = Annotated[Mapping[str, Any], "a shape"]

DEEPEST = 100
"""Containers inside of each other. Each is built and walked by a few calls inside of each other."""

_DATA = (bool, int, float, str, type(None))


def check_shape(value: Any, depth: int = 0) -> None:
    """ValueError or TypeError for what is no shape, or one that nests too deep."""
    if depth > DEEPEST:
        raise ValueError(f"what it returns nests deeper than {DEEPEST}")
    check = _KINDS.get(tuple(of_type(value, dict)))
    if check is None:
        raise ValueError(f"it returns {value!r:.60}")
    for part in check(value):
        check_shape(part, depth + 1)


def of_type(value: Any, *kinds: type) -> Any:
    """The same value. TypeError where its class is none of these."""
    if type(value) not in kinds:
        names = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"expected {names}, and there is {value!r:.60}")
    return value


def each_of_type(values: Any, *kinds: type) -> list[Any]:
    """The same list. TypeError where it is none, or the class of a value is none of these."""
    return [of_type(value, *kinds) for value in of_type(values, list)]


def _number(shape: Mapping[str, Any], name: str) -> list[Any]:
    if of_type(shape[name], int) < 0:
        raise ValueError(f"it returns a result number {shape[name]}")
    return []


def _float(shape: Mapping[str, Any]) -> list[Any]:
    of_type(shape["float"], bool)
    float.fromhex(of_type(shape["constant"], str))
    return []


def _input(shape: Mapping[str, Any]) -> list[Any]:
    check_path([tuple(step) for step in each_of_type(shape["input"], list)])
    return []


def _data(value: Any, *kinds: type) -> list[Any]:
    of_type(value, *kinds)
    return []


def _dict(shape: Mapping[str, Any]) -> list[Any]:
    pairs = [(key, part) for key, part in each_of_type(shape["dict"], list)]
    for key, _ in pairs:
        of_type(key, *_DATA)
    return [part for _, part in pairs]


def _named(shape: Mapping[str, Any]) -> list[Any]:
    of_type(shape["named"], str)
    names, items = each_of_type(shape["names"], str), of_type(shape["items"], list)
    return [part for _, part in zip(names, items, strict=True)]


def _object(shape: Mapping[str, Any]) -> list[Any]:
    of_type(shape["object"], str)
    pairs = [(name, part) for name, part in each_of_type(shape["fields"], list)]
    each_of_type([name for name, _ in pairs], str)
    return [part for _, part in pairs]


_KINDS: Mapping[tuple[str, ...], Callable[[Mapping[str, Any]], list[Any]]] = {
    ("result",): lambda shape: _number(shape, "result"),
    ("item",): lambda shape: _number(shape, "item"),
    ("input",): _input,
    ("constant",): lambda shape: _data(shape["constant"], *_DATA),
    ("constant", "float"): _float,
    ("dtype",): lambda shape: _data(shape["dtype"], str),
    ("device",): lambda shape: _data(shape["device"], str),
    ("list",): lambda shape: of_type(shape["list"], list),
    ("tuple",): lambda shape: of_type(shape["tuple"], list),
    ("dict",): _dict,
    ("named", "names", "items"): _named,
    ("object", "fields"): _object,
}
"""By the names in a shape: checks the shape, and gives those inside of it."""
