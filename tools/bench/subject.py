"""A model under measurement: what zoo's case says, and what a contestant or a limit has to know."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from tests.zoo import Case
from tools.bench.limits import FLOATS


@dataclass(frozen=True)
class Subject:
    """A model with its arguments.

    kind     what its products are made of: decides which peak is its limit
    twin     the model as exporters to ONNX and OpenVINO are to see it, where that differs
    onnx     makes the ONNX model, where no exporter can
    flops    operations of a call where torch's counter does not know them; 0: it does
    copies   whether a call is one reading of its memory and one writing, its limit being a copy
    wrong    a contestant with a larger relative error is out of the race
    precision  what torch.set_float32_matmul_precision is told, for all contestants
    """

    case: Case
    kind: str = FLOATS
    twin: nn.Module | None = None
    onnx: Callable[[], bytes] | None = None
    flops: int = 0
    copies: bool = False
    wrong: float = 1e-2
    precision: str = "highest"

    @property
    def name(self) -> str:
        return self.case.name

    @property
    def args(self) -> tuple[Tensor, ...]:
        return self.case.args

    @contextmanager
    def settings(self) -> Generator[None]:
        """Inside, torch is told what it has to be told for this model."""
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(self.precision)
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)


def refill(args: tuple[Tensor, ...]) -> None:
    """New random contents of the same kind, in place: integers are the old ones in another order,
    whole numbers having a meaning (tokens, positions, masks)."""
    for arg in args:
        if arg.is_floating_point():
            arg.normal_()
        elif arg.dtype == torch.int8:
            arg.random_(-127, 128)
        else:
            arg.copy_(arg.flatten()[torch.randperm(arg.numel())].reshape(arg.shape))


def poison(result: Any) -> None:
    """Fill the memory that the next result is likely to get with NaN, and free it."""
    for tensor in tensors(result):
        waste = torch.empty(tensor.shape, dtype=tensor.dtype)
        waste.fill_(torch.nan if waste.is_floating_point() else -1)


def tensors(result: Any) -> list[Tensor]:
    """Return all tensors of a nested result."""
    return [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]


def operations(subject: Subject) -> int:
    """Multiplications and additions of a call."""
    if subject.flops:
        return subject.flops
    counter = FlopCounterMode(display=False, custom_mapping={_ATTENTION: _attention_operations})
    with torch.no_grad(), counter:
        subject.case.model(*subject.args)
    return counter.get_total_flops()


_ATTENTION = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
"""What attention is on CPUs, which torch's counter does not know."""


def _attention_operations(
    query: torch.Size, key: torch.Size, value: torch.Size, dropout: float = 0.0,
    causal: bool = False, **_: Any,
) -> int:  # fmt: skip
    """Of tensors (batch, heads, tokens, size of a head): the two products. Of causal attention half
    of the scores need not be computed."""
    operations = sdpa_flop_count(query, key, value)
    return operations // 2 if causal else operations


def traffic(subject: Subject) -> int:
    """Bytes that a call has to move: weights and buffers once, arguments, results. Of embedding
    tables only some rows are read, which does not count."""
    model = subject.case.model
    kept: dict[int, Tensor] = {}
    for module in model.modules():
        if not isinstance(module, nn.Embedding):
            own = (*module.parameters(recurse=False), *module.buffers(recurse=False))
            kept.update({t.data_ptr(): t for t in own})
    result = subject.case.run()
    return sum(
        t.numel() * t.element_size() for t in (*kept.values(), *subject.args, *tensors(result))
    )
