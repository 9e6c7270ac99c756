"""Dims that `squeeze` removes. Torch traces sizes that may be 1 as not 1, without a guard."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import fx

from kernelmill.torch_internals.tracing import all_nodes

_aten = torch.ops.aten
_SQUEEZES = (_aten.squeeze, _aten.squeeze_, _aten.squeeze_copy)


def squeezed(gm: fx.GraphModule) -> Iterator[tuple[int, Any]]:
    """Yield the dims that the squeezes of a graph test, with their sizes, symbolic or not."""
    for node in all_nodes(gm):
        packet = getattr(node.target, "overloadpacket", None)
        if packet not in _SQUEEZES or not isinstance(node.args[0], fx.Node):
            continue
        shape = node.args[0].meta["val"].shape
        dims: Any = node.args[1] if len(node.args) > 1 and shape else range(len(shape))
        for dim in dims if isinstance(dims, Iterable) else (dims,):
            yield dim, shape[dim]
