"""How arguments have to lie in memory, where the code of an exported program has asked for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from kernelmill.aot.exported import Exported
from kernelmill.artifact.layouts import STRIDES, strides_found, strides_name
from kernelmill.artifact.manifest import Guard
from kernelmill.artifact.paths import Path, name_of_argument
from kernelmill.backend.gears import symbolic
from kernelmill.backend.layouts import following
from kernelmill.core.errors import UnsupportedError

_OFFSET = "storage_offset"


def asked_layouts(exported: Exported, asked: Sequence[str]) -> Iterator[Guard]:
    """What is asked of the strides of arguments by code that `asked` by these methods: they have to
    be what they were, or what a dense tensor has. The trace has the answers for those alone.

    Any tensor that is asked may be a view of any argument. UnsupportedError where the answer is not
    the same for all that a file takes, and nothing can check it.
    """
    if not asked:
        return
    nodes = exported.gm.graph.find_nodes(op="placeholder")
    for node, path in zip(nodes, exported.leaves, strict=False):  # weights come behind them
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            continue
        if _OFFSET in asked:
            raise UnsupportedError(
                f"it asks for {_OFFSET}() of tensors, which is another one for each argument"
            )
        yield _strides(path, value)


def _strides(path: Path, value: torch.Tensor) -> Guard:
    sizes, strides = list(map(symbolic, value.shape)), list(map(symbolic, value.stride()))
    dims = following(sizes, strides, lambda n: strides[n].is_Integer)
    if dims is None:
        raise UnsupportedError(
            f"it asks for strides, and those of argument {name_of_argument(path)!r} do not follow "
            "from its sizes: pass a contiguous tensor"
        )
    dims.sort()
    found = strides_found(str(strides[n]) if inner < 0 else inner for n, inner in dims)
    return Guard(STRIDES, path, found, strides_name(dims))
