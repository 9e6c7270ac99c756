"""Which dims `squeeze` may take out. Torch traces sizes that may be 1 as ones that are not, and
leaves no guard."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import fx

from kernelmill.torch_internals.graphs import all_nodes

_aten = torch.ops.aten
_SQUEEZES = (_aten.squeeze, _aten.squeeze_, _aten.squeeze_copy)


def squeezed(gm: fx.GraphModule) -> Iterator[tuple[int, Any]]:
    """The dims that the squeezes of a graph are asked about, with their sizes, symbols or not."""
    for node in all_nodes(gm):
        packet = getattr(node.target, "overloadpacket", None)
        if packet not in _SQUEEZES or not isinstance(node.args[0], fx.Node):
            continue
        shape = node.args[0].meta["val"].shape
        dims: Any = node.args[1] if len(node.args) > 1 and shape else range(len(shape))
        for dim in dims if isinstance(dims, Iterable) else (dims,):
            yield dim, shape[dim]
