"""What a compiled file says of itself: how it is called, its weights, what it was made with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kernelmill.core.errors import StoreError


@dataclass(frozen=True)
class Parameter:
    """A parameter of the function. `shape` is how its value is built, in the manner of
    artifact/results.py: {"result": N} stands for leaf N. `keyword`: it is passed by name alone."""

    name: str
    shape: Mapping[str, Any]
    keyword: bool = False


@dataclass(frozen=True)
class Leaf:
    """A value inside of the arguments, "pair.1.q".

    kind "tensor", "integer" (a size, of any value), or "constant": the program is for the value
    whose fingerprint is `found`, and for no other.
    """

    name: str
    kind: str
    found: str = ""


@dataclass(frozen=True)
class Weight:
    """A tensor of the model. It begins `offset` bytes into the weights; strides in elements.
    Tensors that share memory do so in the file. `role` is "parameter", "buffer" or "constant"."""

    name: str
    role: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class Packed:
    """Weights as kernels want them: packed by `recipe` from the weights number `sources`. `places`
    are (offset, bytes) in the section of packed weights."""

    recipe: str
    sources: tuple[int, ...]
    places: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Limit:
    """`symbol` is from `low` to `high` (None: without end); `where` names what has that size."""

    symbol: str
    low: int
    high: int | None
    where: str


@dataclass(frozen=True)
class Manifest:
    """All but plan, graph, kernels, objects and the bytes of the weights.

    inputs      the program's arguments: ("leaf", N), ("weight", N), or ("size", LEAF, AXIS, A, B)
                for the integer n of a size that is A * n + B
    result      how results become what the function returned (artifact/results.py)
    limits, conditions   on sizes, besides what the plan says: ("==", "s0 % 8", "0")
    objects     where the machine code of each kernel is in its section: (name, offset, bytes)
    options     of the config that are not at their default, by dotted name
    ingredients of the machine code's keys, and versions, by name
    updates     leaves and weights (as in `inputs`) that a call writes to
    """

    name: str
    parameters: tuple[Parameter, ...]
    leaves: tuple[Leaf, ...]
    inputs: tuple[tuple[Any, ...], ...]
    result: Mapping[str, Any]
    weights: tuple[Weight, ...]
    limits: tuple[Limit, ...]
    conditions: tuple[tuple[str, str, str], ...]
    objects: tuple[tuple[str, int, int], ...]
    options: Mapping[str, Any]
    ingredients: Mapping[str, str]
    updates: tuple[tuple[Any, ...], ...] = ()
    packed: tuple[Packed, ...] = ()

    def text(self) -> str:
        """The manifest as JSON."""
        return json.dumps(asdict(self), indent=1, sort_keys=True)


def read_manifest(text: str) -> Manifest:
    """The inverse of `Manifest.text`. StoreError for any other text."""
    try:
        data = json.loads(text)
        fields: dict[str, Any] = {
            **data,
            "parameters": tuple(Parameter(**entry) for entry in data["parameters"]),
            "leaves": tuple(Leaf(**entry) for entry in data["leaves"]),
            "weights": tuple(_weight(entry) for entry in data["weights"]),
            "limits": tuple(Limit(**entry) for entry in data["limits"]),
            "packed": tuple(_packed(entry) for entry in data["packed"]),
        }
        for name in ("inputs", "conditions", "objects", "updates"):
            fields[name] = tuple(tuple(entry) for entry in data[name])
        return Manifest(**fields)
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"no manifest of a compiled program: {error!r}") from error


def _weight(entry: dict[str, Any]) -> Weight:
    layout: Any = {"shape": tuple(entry["shape"]), "strides": tuple(entry["strides"])}
    return Weight(**{**entry, **layout})


def _packed(entry: dict[str, Any]) -> Packed:
    places: Any = tuple(tuple(place) for place in entry["places"])
    return Packed(entry["recipe"], tuple(entry["sources"]), places)
