"""Construction of the value that the traced function returned from a program's results, as data.

A shape (manifest.py) describes it. The classes that it names, with their fields, were recorded at
compile time. They are looked up in the modules that the process has loaded: a file never causes an
import, and only the constructor of a dataclass or named tuple with exactly those fields is called.

Side effects set attributes, elements and entries of the call's arguments after the program has run.
The value of an effect is a result of the program, an object at a path of the call, data, or a tuple
of these. All are read before the first is set, so `a.x, a.y = a.y, a.x` is two effects.
"""

from __future__ import annotations

import dataclasses
import operator
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import setitem
from typing import Any

import torch

from kernelmill.artifact.manifest import DEEPEST, CallSpec, Manifest, Shape
from kernelmill.artifact.paths import MISSING, Path, Tree
from kernelmill.core.errors import StoreError, UnsupportedError

Build = Callable[[Sequence[Any], Sequence[Any]], Any]
"""Builds the returned value from the program's results and a call's values."""

Find = Callable[[Path, Sequence[Any]], Any]
"""Returns the value of a path in a call with these values."""

_DATA = (type(None), bool, int, float, str)


class NoClass(StoreError):
    """A class in the returned value that is not loaded, or differs from the recorded one."""


class Shaper:
    """A description of the value that a call returned. `results` are those of the program and
    `inputs` tensors, and objects that the program changes, by their paths. `items` are numbers that
    were read from results with `item()`, by the numbers of the results.

    `integers` are those among the returned data: they may have come from sizes.
    """

    def __init__(
        self,
        results: Sequence[Any],
        inputs: Mapping[Path, Any],
        items: Mapping[int, Sequence[float]] | None = None,
    ) -> None:
        self._results = {id(result): n for n, result in enumerate(results) if result is not None}
        self._items = {id(item): n for n, taken in (items or {}).items() for item in taken}
        self._inputs = {id(value): path for path, value in inputs.items()}
        self.integers: set[int] = set()
        self._depth = 0

    def is_result(self, value: Any) -> bool:
        """Return whether an object is a result of the program, or was read from one."""
        known = id(value) in self._results or id(value) in self._items
        return known and not isinstance(value, bool)

    def describe(self, value: Any) -> Shape:
        """Return the shape of a value. UnsupportedError for one that no name rebuilds."""
        if id(value) in self._items:
            return {"item": self._items[id(value)]}
        if self.is_result(value):
            return {"result": self._results[id(value)]}
        if id(value) in self._inputs and type(value) not in _DATA:
            return {"input": self._inputs[id(value)]}
        if isinstance(value, torch.Tensor):
            raise UnsupportedError("it returns a tensor that its graph does not compute")
        if type(value) in _DATA:
            if type(value) is int:
                self.integers.add(value)
            if type(value) is float:
                return {"constant": value.hex(), "float": True}
            return {"constant": value}
        if isinstance(value, torch.dtype):
            return {"dtype": str(value).removeprefix("torch.")}
        if isinstance(value, torch.device):
            return {"device": str(value)}
        if self._depth == DEEPEST:
            raise UnsupportedError(f"what it returns nests deeper than {DEEPEST}")
        self._depth += 1
        try:
            return self._container(value)
        finally:
            self._depth -= 1

    def _container(self, value: Any) -> Shape:
        kind = type(value)
        if kind in (list, tuple):
            return {kind.__name__: [self.describe(part) for part in value]}
        if kind in (dict, OrderedDict):
            if not all(type(key) in (str, int, bool, type(None)) for key in value):
                raise UnsupportedError("it returns a dict whose keys are not text or integers")
            items = [[key, self.describe(part)] for key, part in value.items()]
            return {"dict": items} if kind is dict else {"dict": items, "ordered": True}
        if (names := _fields(kind)) is not None:
            parts = [self.describe(getattr(value, name)) for name in names]
            if issubclass(kind, tuple):
                return {"named": _recorded(kind), "names": list(names), "items": parts}
            fields = [list(pair) for pair in zip(names, parts, strict=True)]
            return {"object": _recorded(kind), "fields": fields}
        raise UnsupportedError(f"it returns a {kind.__module__}.{kind.__qualname__}")


def _fields(kind: type) -> tuple[str, ...] | None:
    """Return the constructor's fields of a dataclass or named tuple; None for other classes, and
    for a dataclass with fields that its constructor does not take."""
    if issubclass(kind, tuple):
        return getattr(kind, "__match_args__" if _is_torchs(kind) else "_fields", None)
    if not dataclasses.is_dataclass(kind):
        return None
    fields = dataclasses.fields(kind)
    return tuple(field.name for field in fields) if all(field.init for field in fields) else None


def _is_torchs(kind: type) -> bool:
    """Return whether a class is one of torch.return_types, results of operators with several."""
    return kind.__module__ == torch.return_types.__name__ and issubclass(kind, tuple)


def tuple_of(kind: type, parts: Iterable[Any]) -> Any:
    """Return a tuple of the same class, which may be a named one."""
    plain = kind in (tuple, torch.Size) or _is_torchs(kind)
    return kind(parts) if plain else kind(*parts)


def _recorded(kind: type) -> str:
    name = f"{kind.__module__}:{kind.__qualname__}"
    if _found(name) is not kind:
        raise UnsupportedError(
            f"it returns a {name.replace(':', '.')}, which no import finds again"
        )
    return name


def _found(name: str) -> Any:
    """Return the object named "module:Class.Inner" in the loaded modules, or None. Runs no code of
    the module, such as a `__getattr__` that imports."""
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, "__dict__", {}).get(part)
    return found


def _loaded(name: str, fields: Sequence[str]) -> Any:
    """Return the recorded class of this name. NoClass when it is not loaded, or has changed."""
    module, _, path = name.partition(":")
    kind, wanted = _found(name), f"the result is a {module}.{path}"
    if module not in sys.modules:
        raise NoClass(f"{wanted}, and {module} is not imported: import it first")
    if not isinstance(kind, type) or f"{kind.__module__}:{kind.__qualname__}" != name:
        raise NoClass(f"{wanted}, and {module} has no such class: compile anew")
    if _fields(kind) != tuple(fields):
        raise NoClass(
            f"{wanted} with the fields ({', '.join(fields)}), and it is no dataclass or named "
            "tuple with these: compile anew"
        )
    return kind


def build_of(shape: Shape, find: Find) -> Build:
    """Return the function that builds the value of a shape, inverse of `Shaper.describe`. NoClass
    for a class that is not found."""
    if "result" in shape:
        number = shape["result"]
        return lambda results, values: results[number]
    if "item" in shape:
        holder = shape["item"]
        return lambda results, values: results[holder].item()
    if "input" in shape:
        path = tuple(tuple(step) for step in shape["input"])
        return lambda results, values: find(path, values)
    if "constant" in shape:
        value = shape["constant"]
        constant = float.fromhex(value) if shape.get("float") else value
        return lambda results, values: constant
    if "dtype" in shape or "device" in shape:
        data = getattr(torch, shape["dtype"]) if "dtype" in shape else torch.device(shape["device"])
        return lambda results, values: data
    if "dict" in shape:
        plain = _dict_of(shape["dict"], find)
        return (lambda r, v: OrderedDict(plain(r, v))) if shape.get("ordered") else plain
    if "object" in shape:
        names = [name for name, _ in shape["fields"]]
        kind = _loaded(shape["object"], names)
        # A ModelOutput's own constructor drops fields that are None, as in eager.
        parts = [build_of(part, find) for _, part in shape["fields"]]
        return lambda r, v: kind(**{n: p(r, v) for n, p in zip(names, parts, strict=True)})
    if "named" in shape:
        kind = _loaded(shape["named"], shape["names"])
        parts = [build_of(part, find) for part in shape["items"]]
        if _is_torchs(kind):
            return lambda r, v: kind([part(r, v) for part in parts])
        return lambda r, v: kind(*[part(r, v) for part in parts])
    return _sequence_of(shape, find)


def _dict_of(items: Sequence[tuple[Any, Shape]], find: Find) -> Build:
    keys, shapes = [key for key, _ in items], [part for _, part in items]
    if pick := _picker(shapes):
        return lambda r, v: dict(zip(keys, pick(r), strict=True))
    pairs = [(key, build_of(part, find)) for key, part in items]
    if len(pairs) == 2:
        (key, part), (key2, part2) = pairs
        return lambda r, v: {key: part(r, v), key2: part2(r, v)}
    return lambda r, v: {key: part(r, v) for key, part in pairs}


def _sequence_of(shape: Shape, find: Find) -> Build:
    is_list = "list" in shape
    shapes = shape["list" if is_list else "tuple"]
    if pick := _picker(shapes):
        return (lambda r, v: list(pick(r))) if is_list else lambda r, v: pick(r)
    parts = [build_of(part, find) for part in shapes]
    if is_list:
        return lambda r, v: [part(r, v) for part in parts]
    return lambda r, v: tuple([part(r, v) for part in parts])


def _picker(shapes: Sequence[Shape]) -> Callable[[Sequence[Any]], tuple[Any, ...]] | None:
    """Return a function that picks results, when all shapes are results of the program."""
    numbers = [shape["result"] for shape in shapes if set(shape) == {"result"}]
    if not numbers or len(numbers) != len(shapes):
        return None
    if len(numbers) == 1:
        (number,) = numbers
        return lambda results: (results[number],)
    return operator.itemgetter(*numbers)


_INTO = ("attribute", "field", "item", "key", "nth")
"""Steps into an object."""


def is_new_value(shape: Shape) -> bool:
    """Return whether a shape is built from values that did not exist before the call."""
    if "tuple" in shape:
        return all(map(is_new_value, shape["tuple"]))
    return not shape.keys().isdisjoint(("result", "item", "constant", "dtype", "device"))


def build_all(spec: CallSpec, find: Find) -> Build:
    """Return a builder of a call's result; with effects, of that and a tuple of their values."""
    returned = build_of(spec.result, find)
    if not spec.effects:
        return returned
    its = build_of({"tuple": [effect.value for effect in spec.effects]}, find)
    return lambda results, given: (returned(results, given), its(results, given))


def plain(path: Path) -> Path:
    """Return the path with fields of a __dict__ as attributes."""
    return tuple(("attribute", *step[1:]) if step[0] == "field" else step for step in path)


def looked_into(tree: Tree) -> dict[Path, int]:
    """Return the places in the tree from which a step into an object follows, by their paths."""
    into = {before for before, (kind, *_) in tree.rows if before >= 0 and kind in _INTO}
    paths = tree.paths()
    return {plain(paths[place]): place for place in sorted(into)}


class Effects:
    """The effects of one program, where it has some. `changed` are the places of the objects that
    they change, `others` places that they also read."""

    def __init__(self, manifest: Manifest, numbers: Mapping[int, int]) -> None:
        """`numbers` has, for places, the positions of their values among those of a call."""
        spec, tree = manifest.spec, manifest.tree
        changed = {plain(effect.path): effect.place for effect in spec.effects}
        into = looked_into(tree)
        own = {path: place for path, place in into.items() if path[0][0] == "argument"}
        self.changed: Sequence[int] = list(changed.values())
        self.others = [place for path, place in own.items() if path not in changed]
        self._outside: frozenset[int] = frozenset()
        self._numbers = [numbers[place] for place in (*self.changed, *self.others)]
        order = list(changed)
        self._sets = [
            (PUTS[effect.kind], order.index(plain(effect.path)), effect.key)
            for effect in spec.effects
        ]

    def keep_apart_from(self, owned: frozenset[int]) -> None:
        """Record the ids of all objects outside of the arguments that the program depends on."""
        self._outside = owned

    def owners(self, found: Sequence[Any]) -> list[Any] | None:
        """Return the objects of this call that are changed. None if one is missing, or if two are
        the same object, since a read of one would then see a write to the other."""
        owners = [found[number] for number in self._numbers]
        count = len(self.changed)
        changed = {id(owner) for owner in owners[:count]}
        if len(changed) < count or id(MISSING) in changed:
            return None
        apart = changed.isdisjoint(map(id, owners[count:])) and self.are_apart(owners[:count])
        return owners[:count] if apart else None

    def are_apart(self, owners: Sequence[Any]) -> bool:
        """Return whether none of these is also read outside of the arguments."""
        return self._outside.isdisjoint(map(id, owners))

    def apply(self, owners: Sequence[Any], made: tuple[Any, Sequence[Any]]) -> Any:
        """Set the values made by `build_all`, and return the result of the call."""
        returned, values = made
        for (put, number, key), value in zip(self._sets, values, strict=True):
            put(owners[number], key, value)
        return returned


_Put = Callable[[Any, Any, Any], None]


PUTS: dict[str, _Put] = {
    "attribute": setattr, "item": setitem, "append": lambda owner, _, value: owner.append(value),
}  # fmt: skip
"""Setter of each kind of effect."""
