"""Gears of all arguments of a graph: the combinations of their sizes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import GearError, GearTypeError

MOST_GEARS = 100
"""Most gears of a dim, and combinations of all dims."""

MOST_SIZE = 2**63 - 1
"""Largest size in torch."""

ATTRIBUTE = "_kernelmill_gears"
"""Attribute of a tensor that holds its DimGears."""


@dataclass(frozen=True)
class Link:
    """A link between the gears of several tensors, value by value: the sizes that the combinations
    of one graph give to its inputs and results. Compared by identity."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


@dataclass(frozen=True)
class DimGears:
    """The gears of one tensor: (dim, values) in the order of the dims.

    Tensors with the same `link` are combined: `linked` then has a value of each dim for each
    combination of the link.
    """

    dims: tuple[tuple[int, tuple[int, ...]], ...]
    link: Link | None = None
    linked: tuple[tuple[int, tuple[int, ...]], ...] = ()

    @property
    def smallest(self) -> int:
        """Least value of any dim."""
        return min(value for _, values in self.dims for value in values)


def gears_of(tensor: object) -> DimGears | None:
    """Return the gears that were set on a tensor, or None."""
    return getattr(tensor, ATTRIBUTE, None)


def declare(dim_gears: object, shape: Sequence[int]) -> DimGears:
    """Return the declaration for a tensor of this shape: {dim: [size, size, ...]}.

    GearTypeError or GearError name the rule it breaks: a dict from dims of the tensor to lists
    or tuples of 2 to 100 sizes. Sizes 0 and 1 are checked by the compiler, by its options.
    """
    if not isinstance(dim_gears, Mapping):
        raise GearTypeError(
            f"dim_gears is {type(dim_gears).__name__} {dim_gears!r}: give a dict from dims to "
            "lists of sizes, as {0: [2, 4]}"
        )
    if not dim_gears:
        raise GearError("dim_gears is empty: name at least one dim, as {0: [2, 4]}")
    given: Mapping[Any, Any] = dim_gears
    dims = {_dim(dim, len(shape)): _values(dim, values) for dim, values in given.items()}
    return DimGears(tuple(sorted(dims.items())))


def _dim(dim: object, rank: int) -> int:
    if not isinstance(dim, int) or isinstance(dim, bool):
        raise GearTypeError(
            f"dim_gears has the key {dim!r}: dims are integers, not {type(dim).__name__}"
        )
    if not 0 <= dim < rank:
        raise GearError(
            f"dim_gears has the dim {dim}, but the tensor has {rank} dims: give one from 0 to "
            f"{rank - 1}"
            if rank
            else f"dim_gears has the dim {dim}, but the tensor is a scalar"
        )
    return dim


def _values(dim: int, values: object) -> tuple[int, ...]:
    if not isinstance(values, (list, tuple)):
        raise GearTypeError(
            f"dim {dim} has gears {values!r}: give a list or a tuple of sizes, not "
            f"{type(values).__name__}"
        )
    sizes: Sequence[Any] = values  # type: ignore[reportUnknownVariableType]
    for size in sizes:
        if not isinstance(size, int) or isinstance(size, bool):
            raise GearTypeError(
                f"dim {dim} has the gear {size!r}: sizes are integers, not {type(size).__name__}"
            )
        if size < 0:
            raise GearError(f"dim {dim} has the gear {size}: sizes are not negative")
        if size > MOST_SIZE:
            raise GearError(f"dim {dim} has the gear {size}: no tensor has that size")
    if not 2 <= len(sizes) <= MOST_GEARS:
        raise GearError(
            f"dim {dim} has {len(sizes)} gears: give 2 to {MOST_GEARS}; a dim with one size needs "
            "none"
        )
    return tuple(sizes)


Gear = tuple[int, ...]
"""One combination: a size for each axis of the set."""

_SHOWN = 8
"""Most gears that a message lists."""


@dataclass(frozen=True)
class GearDim:
    """A dim of an argument that has gears."""

    argument: str
    dim: int


@dataclass(frozen=True)
class Marked:
    """An argument with its shape at the first call, and its gears if it has any."""

    name: str
    shape: tuple[int, ...]
    gears: DimGears | None


@dataclass(frozen=True)
class GearSet:
    """The combinations of sizes in `gears`, each over all `axes`, without duplicates."""

    axes: tuple[GearDim, ...]
    gears: tuple[Gear, ...]

    def of(self, shapes: Mapping[str, Sequence[int]]) -> Gear:
        """Return the sizes that these arguments have on the axes."""
        return tuple(shapes[axis.argument][axis.dim] for axis in self.axes)

    def nearest(self, sizes: Gear, count: int = 3) -> tuple[Gear, ...]:
        """Return up to `count` gears, those that differ least from these sizes (by ratio) first."""
        return tuple(sorted(self.gears, key=lambda gear: _distance(gear, sizes))[:count])

    def describe(self, gear: Gear) -> str:
        """Return the gear in words: "x[0]=2, y[0]=2"."""
        named = zip(self.axes, gear, strict=True)
        return ", ".join(f"{axis.argument}[{axis.dim}]={size}" for axis, size in named)

    def describe_all(self) -> str:
        """Return the gears in words, the first few of them when they are many."""
        shown = [f"({self.describe(gear)})" for gear in self.gears[:_SHOWN]]
        more = len(self.gears) - len(shown)
        return ", ".join(shown) + (f" and {more} more" if more else "")

    def refusal(self, came: str, sizes: Gear) -> str:
        """Return why a call of these sizes is refused; `came` are the arguments that have them."""
        alone = any(
            size not in {gear[place] for gear in self.gears} for place, size in enumerate(sizes)
        )
        why = "not among the gears" if alone else "no combination of the gears"
        near = " or ".join(f"({self.describe(gear)})" for gear in self.nearest(sizes))
        return (
            f"argument {came}: ({self.describe(sizes)}) is {why} {self.describe_all()}; the "
            f"nearest are {near}"
        )

    def __str__(self) -> str:
        return ";".join(",".join(map(str, gear)) for gear in self.gears)


def combine(arguments: Sequence[Marked], policy: str) -> GearSet:
    """Return the gears of all arguments, by the policy "zip" or "product".

    zip: position by position over all dims and tensors, whose lists are of one length. product:
    every value of each dim with every one of the others. Linked arguments are always zipped among
    each other, and come as one in a product with the rest. Duplicate combinations count once.
    GearError: lists of unequal length under zip, more than 100 combinations.
    """
    loose: list[tuple[GearDim, tuple[int, ...]]] = []
    linked: dict[int, list[tuple[GearDim, tuple[int, ...]]]] = {}
    for argument in arguments:
        if argument.gears is None:
            continue
        gears = argument.gears
        group = linked.setdefault(id(gears.link), []) if gears.link else loose
        dims = gears.linked if gears.link else gears.dims
        group += [(GearDim(argument.name, dim), values) for dim, values in dims]
    blocks = [*linked.values()]
    if policy == "zip":
        blocks += [loose] if loose else []
    else:
        blocks += [[entry] for entry in loose]
    rows = [_zipped(block) for block in blocks]
    count = math.prod(len(row) for row in rows)
    if count > MOST_GEARS:
        raise GearError(
            f"the gears of {_names(a for block in blocks for a, _ in block)} combine to {count} "
            f"under the policy {policy!r}, and {MOST_GEARS} are allowed: give fewer sizes"
            + (", or combine them with the policy 'zip'" if policy == "product" else "")
        )
    axes = tuple(axis for block in blocks for axis, _ in block)
    combined = [tuple(itertools.chain(*parts)) for parts in itertools.product(*rows)]
    return _ordered(arguments, GearSet(axes, tuple(dict.fromkeys(combined))))


def _zipped(block: Sequence[tuple[GearDim, tuple[int, ...]]]) -> list[Gear]:
    lengths = {len(values) for _, values in block}
    if len(lengths) > 1:
        listed = ", ".join(f"{a.argument}[{a.dim}] has {len(values)}" for a, values in block)
        raise GearError(
            f"the policy 'zip' takes gears position by position, but {listed}: give lists of one "
            "length, or set config.inference_config.dynamic_gears_merge_policy = 'product'"
        )
    return list(dict.fromkeys(zip(*(values for _, values in block), strict=True)))


def _ordered(arguments: Sequence[Marked], found: GearSet) -> GearSet:
    """Return the same set with its axes in the order of the arguments."""
    place = {argument.name: number for number, argument in enumerate(arguments)}
    order = sorted(
        range(len(found.axes)),
        key=lambda i: (place[found.axes[i].argument], found.axes[i].dim),
    )
    axes = tuple(found.axes[i] for i in order)
    return GearSet(axes, tuple(tuple(gear[i] for i in order) for gear in found.gears))


def _names(axes: Iterable[GearDim]) -> str:
    return ", ".join(f"{axis.argument}[{axis.dim}]" for axis in axes)


def _distance(gear: Gear, sizes: Gear) -> float:
    return sum(abs(math.log((a + 1) / (b + 1))) for a, b in zip(gear, sizes, strict=True))


def check_small(arguments: Sequence[Marked], allowed: bool) -> None:
    """Raise GearError if a gear is 0 or 1 and that is not `allowed`."""
    for argument in arguments:
        if argument.gears is not None and argument.gears.smallest < 2 and not allowed:
            dim, values = next((d, v) for d, v in argument.gears.dims if min(v) < 2)
            raise GearError(
                f"{argument.name}[{dim}] has the gear {min(values)}: a trace for several sizes "
                "treats none of them as 0 or 1; leave it out, or set "
                "config.inference_config.allow_small_gears = True"
            )


def graph_options(arguments: Sequence[Marked], found: GearSet) -> dict[str, str]:
    """Return the graph's compile options, by the names of Ascend's graph engine.

    `ge.inputShape` has -1 for each dim with gears; `ge.dynamicDims` the sizes of those dims, gear
    by gear, in the order of the -1.
    """
    places = {(axis.argument, axis.dim) for axis in found.axes}
    geared = {axis.argument for axis in found.axes}
    shapes = ";".join(
        f"arg{number}_1:"
        + ",".join(
            "-1" if (argument.name, dim) in places else str(size)
            for dim, size in enumerate(argument.shape)
        )
        for number, argument in enumerate(arguments)
        if argument.name in geared
    )
    return {"ge.dynamicDims": str(found), "ge.dynamicNodeType": "1", "ge.inputShape": shapes}
