"""How the results of a program become what the traced function returned, as data.

A shape is a JSON value:

    {"result": N} {"input": PATH} {"constant": JSON}     a result of the program, something passed
    {"alias": [SIZE, STRIDE, OFFSET], "base": PATH}       in, data; a view of something passed in
    {"list": [...]} {"tuple": [...]} {"dict": [[K, V]]}   containers
    {"named": NAME, "items": [...]}                       a named tuple, by its importable name
    {"object": NAME, "fields": [[NAME, V]]}               a dataclass (ModelOutput), the same way
"""

from __future__ import annotations

import dataclasses
import importlib
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from kernelmill.artifact.paths import Path
from kernelmill.core.errors import StoreError, UnsupportedError

Shape = Mapping[str, Any]
Build = Callable[[Sequence[Any], Sequence[Any]], Any]
"""Gives what is returned from the program's results and from values that paths lead to."""

View = tuple[Path, Sequence[int], Sequence[int], int]
"""The tensor that a result is a view of; size, strides and offset in elements."""

_DATA = (type(None), bool, int, float, str)


class Shaper:
    """Describes what a call returned. `results` are those of the program and `inputs` tensors by
    their paths; `aliases` are results that are views of an input: number -> (path, size, stride,
    offset).

    `integers` are those among the data that was returned: they may have come from sizes.
    """

    def __init__(
        self, results: Sequence[Any], inputs: Mapping[Path, Any], aliases: Mapping[int, View]
    ) -> None:
        self._results = {id(result): n for n, result in enumerate(results) if result is not None}
        self._inputs = {id(value): path for path, value in inputs.items()}
        self._aliases = aliases
        self.integers: set[int] = set()

    def describe(self, value: Any) -> Shape:
        """UnsupportedError for what cannot be made again by name."""
        if id(value) in self._results and not isinstance(value, bool):
            number = self._results[id(value)]
            if number in self._aliases:
                base, size, stride, offset = self._aliases[number]
                return {"alias": [list(size), list(stride), offset], "base": base}
            return {"result": number}
        if isinstance(value, torch.Tensor):
            if id(value) not in self._inputs:
                raise UnsupportedError("it returns a tensor that its graph does not compute")
            return {"input": self._inputs[id(value)]}
        if type(value) in _DATA:
            if type(value) is int:
                self.integers.add(value)
            if type(value) is float:
                return {"constant": value.hex(), "float": True}
            return {"constant": value}
        return self._container(value)

    def _container(self, value: Any) -> Shape:
        kind = type(value)
        if kind in (list, tuple):
            return {kind.__name__: [self.describe(part) for part in value]}
        if kind is dict:
            if not all(type(key) in (str, int, bool, type(None)) for key in value):
                raise UnsupportedError("it returns a dict whose keys are not text or integers")
            return {"dict": [[key, self.describe(part)] for key, part in value.items()]}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return {"named": _importable(kind), "items": [self.describe(part) for part in value]}
        if dataclasses.is_dataclass(value):
            fields = [
                [field.name, self.describe(getattr(value, field.name))]
                for field in dataclasses.fields(value)
            ]
            return {"object": _importable(kind), "fields": fields}
        raise UnsupportedError(f"it returns a {kind.__module__}.{kind.__qualname__}")


def _importable(kind: type) -> str:
    name = f"{kind.__module__}:{kind.__qualname__}"
    try:
        if _imported(name) is kind:
            return name
    except StoreError:
        pass
    raise UnsupportedError(f"it returns a {name.replace(':', '.')}, which no import finds again")


def _imported(name: str) -> Any:
    """The dataclass or named tuple of this name. StoreError when it is not there or another kind:
    nothing else that a file names is called."""
    module, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise StoreError(f"there is no {module}.{path} any more") from error
    named = isinstance(found, type) and issubclass(found, tuple) and hasattr(found, "_fields")
    if not (isinstance(found, type) and (named or dataclasses.is_dataclass(found))):
        raise StoreError(f"{module}.{path} is neither a dataclass nor a named tuple")
    return found


class Builder:
    """The inverse of Shaper. `paths` collects, in order, the inputs that `build` is to be given."""

    def __init__(self) -> None:
        self.paths: list[Path] = []

    def build(self, shape: Shape) -> Build:
        """The function that makes what is returned. StoreError for a class that is not there."""
        if "alias" in shape:
            return self._alias(shape["alias"], self._path(shape["base"]))
        if "result" in shape:
            return _result(shape["result"])
        if "input" in shape:
            place = self._path(shape["input"])
            return lambda results, inputs: inputs[place]
        if "constant" in shape:
            value = shape["constant"]
            constant = float.fromhex(value) if shape.get("float") else value
            return lambda results, inputs: constant
        return self._container(shape)

    def _path(self, path: Any) -> int:
        self.paths.append(tuple(tuple(step) for step in path))
        return len(self.paths) - 1

    def _alias(self, layout: Sequence[Any], place: int) -> Build:
        return lambda results, inputs: inputs[place].as_strided(*layout)

    def _container(self, shape: Shape) -> Build:
        if "dict" in shape:
            keys = [key for key, _ in shape["dict"]]
            values = [part for _, part in shape["dict"]]
            if pick := _picker(values):
                return lambda r, i: dict(zip(keys, pick(r), strict=True))
            pairs = tuple(zip(keys, map(self.build, values), strict=True))
            if len(pairs) == 2:
                (key, part), (key2, part2) = pairs
                return lambda r, i: {key: part(r, i), key2: part2(r, i)}
            return lambda r, i: {key: part(r, i) for key, part in pairs}
        if "object" in shape:
            kind = _imported(shape["object"])
            # A ModelOutput's own constructor drops what is None, as eager's call of it did.
            names = [name for name, _ in shape["fields"]]
            parts = [self.build(part) for _, part in shape["fields"]]
            return lambda r, i: kind(**{n: p(r, i) for n, p in zip(names, parts, strict=True)})
        if "named" in shape:
            kind = _imported(shape["named"])
            parts = [self.build(part) for part in shape["items"]]
            return lambda r, i: kind(*[part(r, i) for part in parts])
        return self._sequence(shape)

    def _sequence(self, shape: Shape) -> Build:
        is_list = "list" in shape
        values = shape["list" if is_list else "tuple"]
        if not is_list and len(values) == 1 and "result" in values[0]:
            number = values[0]["result"]
            return lambda r, i: (r[number],)
        if pick := _picker(values):
            return (lambda r, i: list(pick(r))) if is_list else lambda r, i: pick(r)
        parts = [self.build(part) for part in values]
        if is_list:
            return lambda r, i: [part(r, i) for part in parts]
        return lambda r, i: tuple([part(r, i) for part in parts])


def _picker(shapes: Sequence[Shape]) -> Callable[[Sequence[Any]], tuple[Any, ...]] | None:
    """Gives what these are when all of them are results of the program."""
    numbers = [shape["result"] for shape in shapes if set(shape) == {"result"}]
    if not numbers or len(numbers) != len(shapes):
        return None
    if len(numbers) == 1:
        (number,) = numbers
        return lambda results: (results[number],)
    return operator.itemgetter(*numbers)


def _result(number: int) -> Build:
    return lambda results, inputs: results[number]
