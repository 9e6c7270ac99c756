"""`set_dim_gears`: declares the sizes that a dim of an argument can have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kernelmill.core.errors import GearError, GearTypeError
from kernelmill.gears.gear_set import ATTRIBUTE, DimGears, declare, gears_of

if TYPE_CHECKING:
    import torch


def set_dim_gears(
    tensor: torch.Tensor, dim_gears: Mapping[int, list[int] | tuple[int, ...]]
) -> None:
    """Declare that dim `d` of an argument has one of the sizes `dim_gears[d]`, and no other.

    Call it on the arguments of the first call of a compiled model; later calls need nothing. The
    model is traced once and compiled for each combination of sizes;
    `config.inference_config.dynamic_gears_merge_policy` combines the lists of several dims and
    tensors. All other dims are static.

    GearError (a ValueError): other gears than it has already, a dim that the tensor does not have,
    fewer than 2 sizes or more than 100, a sparse or nested tensor. GearTypeError (a TypeError): no
    tensor, no dict of integers to lists of integers. Rules that depend on options of the compiler
    (0 and 1, the number of combinations) are checked at the first call.

    >>> x = torch.ones(2, 8)
    >>> kernelmill.inference.set_dim_gears(x, {0: [2, 4, 16]})
    """
    import torch

    from kernelmill.torch_internals.dynamo import marks

    if not isinstance(tensor, torch.Tensor):  # type: ignore[reportUnnecessaryIsInstance]
        raise GearTypeError(f"gears are set on tensors, not on {type(tensor).__name__}")
    if tensor.layout != torch.strided or tensor.is_nested:
        raise GearError(
            f"the tensor of shape {list(tensor.shape)} has the layout {tensor.layout}: gears are "
            "for dense tensors; convert it with .to_dense() first"
        )
    gears = declare(dim_gears, tensor.shape)
    known = gears_of(tensor)
    if known is not None and known.dims != gears.dims:
        raise GearError(
            f"the tensor of shape {list(tensor.shape)} has gears already, {_shown(known)}, which "
            f"cannot be changed to {_shown(gears)}: use another tensor, as tensor.clone()"
        )
    # With 0 or 1 among the sizes nothing may be concluded from the size at the first call.
    functions = marks.get()
    if functions is None:
        return
    varying = functions.unbacked if gears.smallest < 2 else functions.dynamic
    dims = {dim for dim, _ in gears.dims}
    for dim in range(tensor.dim()):
        mark = varying if dim in dims else functions.static
        mark(tensor, dim)
    setattr(tensor, ATTRIBUTE, gears)


def _shown(gears: DimGears) -> str:
    return "{" + ", ".join(f"{dim}: {list(values)}" for dim, values in gears.dims) + "}"
