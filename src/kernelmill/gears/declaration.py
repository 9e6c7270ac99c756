"""The declaration of one `set_dim_gears` call, and its rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
