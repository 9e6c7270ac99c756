"""The arguments of a call: taken apart, and held against what the program was compiled for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernelmill.aot.manifest import Leaf, Manifest, Parameter
from kernelmill.artifact.fingerprint import fingerprint
from kernelmill.core.errors import InputError

Values = list[Any]
Take = Callable[[Any, Values], None]
"""Puts the leaves of a value into their places. InputError when it is built otherwise."""


class Arguments:
    """Finds the leaves of a call. `plain` is whether each parameter is one leaf, passed by
    position, so that the positional arguments of a call are the leaves themselves."""

    def __init__(self, manifest: Manifest) -> None:
        self._parameters = manifest.parameters
        self._leaves = manifest.leaves
        self._names = [parameter.name for parameter in manifest.parameters]
        self._by_position = sum(not parameter.keyword for parameter in manifest.parameters)
        self._takers = [_taker(p.shape, p.name) for p in manifest.parameters]
        self._checks = [
            (number, leaf, _CHECKS[leaf.kind])
            for number, leaf in enumerate(manifest.leaves)
            if leaf.kind in _CHECKS
        ]
        self.plain = (
            not self._checks
            and self._by_position == len(self._names)
            and all(_is_leaf(p, n) for n, p in enumerate(manifest.parameters))
        )

    def leaves(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Values:
        """The leaves in their order. InputError names what is missing, superfluous, or of another
        kind; tensors are checked by the program itself."""
        found: Values = [None] * len(self._leaves)
        for take, value in zip(self._takers, self._bound(args, kwargs), strict=True):
            take(value, found)
        for number, leaf, check in self._checks:
            check(leaf, found[number])
        return found

    def _bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Values:
        if len(args) > self._by_position:
            raise InputError(
                f"it takes {self._by_position} arguments by position, got {len(args)}; what had "
                "its default when the program was compiled cannot be passed"
            )
        values = dict(zip(self._names, args, strict=False))
        for name, value in kwargs.items():
            if name not in self._names:
                raise InputError(
                    f"argument {name!r} was not among those that the program was compiled with: "
                    f"{', '.join(self._names)}"
                )
            if name in values:
                raise InputError(f"argument {name!r} is given twice")
            values[name] = value
        missing = [name for name in self._names if name not in values]
        if missing:
            raise InputError(f"argument {missing[0]!r} is missing")
        return [values[name] for name in self._names]


def _is_leaf(parameter: Parameter, number: int) -> bool:
    return parameter.shape == {"result": number}


def _check_integer(leaf: Leaf, value: Any) -> None:
    if type(value) is not int:
        raise InputError(
            f"argument {leaf.name!r}: expected an integer, got {type(value).__name__} {value!r:.60}"
        )


def _check_constant(leaf: Leaf, value: Any) -> None:
    found = fingerprint(value)
    if found != leaf.found:
        raise InputError(
            f"argument {leaf.name!r}: the program was compiled for {leaf.found}, got {found:.80}"
        )


_CHECKS: Mapping[str, Callable[[Leaf, Any], None]] = {
    "integer": _check_integer,
    "constant": _check_constant,
}


def _taker(shape: Mapping[str, Any], name: str) -> Take:
    if "result" in shape:
        number: int = shape["result"]
        return lambda value, found: found.__setitem__(number, value)
    if "constant" in shape:
        return _constant_taker(shape, name)
    if "dict" in shape:
        return _dict_taker(shape["dict"], name)
    if "object" in shape:
        return _object_taker(shape, name)
    kind = next(kind for kind in ("list", "tuple", "named") if kind in shape)
    parts: Sequence[Any] = shape["items" if kind == "named" else kind]
    wanted = shape["named"].partition(":")[2] if kind == "named" else kind
    takers = [_taker(part, f"{name}.{n}") for n, part in enumerate(parts)]

    def take(value: Any, found: Values) -> None:
        if _name_of(value) != shape["named"] if kind == "named" else type(value).__name__ != kind:
            raise _other(name, f"a {wanted} of {len(parts)} values", value)
        if len(value) != len(parts):
            raise InputError(
                f"argument {name!r}: expected {len(parts)} values in it, got {len(value)}"
            )
        for part, each in zip(takers, value, strict=True):
            part(each, found)

    return take


def _constant_taker(shape: Mapping[str, Any], name: str) -> Take:
    constant = float.fromhex(shape["constant"]) if shape.get("float") else shape["constant"]
    leaf = Leaf(name, "constant", fingerprint(constant))
    return lambda value, found: _check_constant(leaf, value)


def _dict_taker(items: Sequence[Any], name: str) -> Take:
    takers = [(key, _taker(part, f"{name}.{key}")) for key, part in items]
    keys = {key for key, _ in takers}

    def take(value: Any, found: Values) -> None:
        if type(value) is not dict:
            raise _other(name, "a dict", value)
        if value.keys() != keys:
            raise InputError(
                f"argument {name!r}: expected the keys {sorted(map(str, keys))}, got "
                f"{sorted(map(str, value))}"
            )
        for key, part in takers:
            part(value[key], found)

    return take


def _object_taker(shape: Mapping[str, Any], name: str) -> Take:
    takers = [(field, _taker(part, f"{name}.{field}")) for field, part in shape["fields"]]

    def take(value: Any, found: Values) -> None:
        if _name_of(value) != shape["object"]:
            raise _other(name, f"a {shape['object'].partition(':')[2]}", value)
        for field, part in takers:
            part(getattr(value, field), found)

    return take


def _name_of(value: Any) -> str:
    kind = type(value)
    return f"{kind.__module__}:{kind.__qualname__}"


def _other(name: str, wanted: str, value: Any) -> InputError:
    return InputError(f"argument {name!r}: expected {wanted}, got a {type(value).__name__}")
