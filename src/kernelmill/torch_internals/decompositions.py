"""Torch's decompositions of operators: tables and parts of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from kernelmill.core.dataclass import dataclass
from kernelmill.torch_internals.registry import internal

Table = dict[Any, Callable[..., Any]]


@dataclass(frozen=True)
class _Tables:
    core: Callable[[], Table]
    with_composites: Callable[[], Table]
    of: Callable[[Sequence[Any]], Table]


@internal(
    "decompositions.tables",
    reason="taking operators without a lowering apart before they are lowered",
    fallback="such operators run in ATen",
)
def _tables() -> _Tables | None:
    from torch import _decomp

    works = bool(_decomp.get_decompositions([torch.ops.aten.dist]))
    tables = _Tables(
        _decomp._core_aten_decompositions_post_autograd,
        _decomp.core_aten_decompositions,
        _decomp.get_decompositions,
    )
    return tables if works else None


def torch_table(beyond_core: Sequence[Any], composites: bool) -> Table:
    """Return torch's decompositions: of operators outside of the core set, and of those named.

    `composites` adds those that autograd decomposes, which only graphs of torch.export still have:
    finding them takes 80 ms.
    """
    tables = _tables.get()
    if tables is None:
        return {}
    core = tables.with_composites if composites else tables.core
    return {**core(), **tables.of(beyond_core)}


@internal(
    "decompositions.memory_format",
    reason="laying what is resized, unpooled or shuffled in memory as eager does",
    fallback="resizing is torch's decomposition; max_unpool2d and channel_shuffle run in ATen",
)
def _memory_format() -> Callable[[Tensor], torch.memory_format] | None:
    from torch._prims_common import suggest_memory_format

    right = suggest_memory_format(torch.empty(1, 2, 3, 3)) == torch.contiguous_format
    return suggest_memory_format if right else None


def memory_format_of() -> Callable[[Tensor], torch.memory_format] | None:
    """Return a function that gives the memory format of eager's result; None without one."""
    return _memory_format.get()


def lying_as_operand(decompose: Callable[..., Tensor]) -> Callable[..., Tensor] | None:
    """Wrap a decomposition with a row-major result so that it has the memory format of the operand,
    as eager's; None where torch does not tell formats."""
    memory_format = _memory_format.get()
    if memory_format is None:
        return None

    def run(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return decompose(x, *args, **kwargs).contiguous(memory_format=memory_format(x))

    return run


@dataclass(frozen=True)
class Recurrent:
    """Parts of torch's decompositions of recurrent layers: the table of them by operator, and the
    parts of an LSTM (see torch/_decomp/decompositions.py)."""

    table: Table
    one_layer_lstm: Callable[..., Any]
    gather_params: Callable[..., Any]
    run_layers: Callable[..., Any]


@internal(
    "decompositions.recurrent",
    reason="taking the few steps of short recurrent layers apart, in training",
    fallback="recurrent layers train in torch",
)
def recurrent() -> Recurrent | None:
    from torch._decomp import decomposition_table, decompositions

    parts: Any = decompositions
    made = Recurrent(
        decomposition_table, parts.one_layer_lstm, parts.gather_params, parts._rnn_helper
    )
    names = ("gru", "rnn_tanh", "rnn_relu")
    known = all(getattr(torch.ops.aten, name).input in decomposition_table for name in names)
    return made if known else None
