"""Compiles an attention over strided torch tensors, and runs it on them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kernelmill.core.dim import Dim, as_sym, linear_part, sym
from kernelmill.core.dtype import BOOL, F32, F64, DType, from_torch
from kernelmill.core.target.machine import Machine, host
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.axes import Dims
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.emit.access import Along
from kernelmill.lower.templates.attention.spec import AttentionSpec, LoadEntry, MaskKind, StoreEntry
from kernelmill.lower.templates.attention.template import (
    AttentionClasses,
    AttentionSchedule,
    emit_attention_classes,
    plan_attention_classes,
)
from tests.unit.lower.launched import Launched, address, elements, surrounded


def loader(name: str, tensor: Tensor, accumulate: DType, group: int = 1) -> LoadEntry:
    """Reads `tensor` (B, H / group, rows, columns) for a query's batch index."""
    dtype = from_torch(tensor.dtype)
    assert dtype is not None

    def load(b: KernelBuilder, batch: Dims, row: Dim, column: Dim, lane: Lane | None) -> Value:
        head = batch[1] // group
        index = address((batch[0], head, row, column), tensor.stride())
        if lane is None:
            value = b.load(name, index, dtype)
        else:
            linear = linear_part(index, lane.symbol.name)
            assert linear is not None
            stride, base = linear
            lanes = 1 if stride == 0 else lane.count
            mask = None if stride == 0 else lane.mask
            value = b.load(name, base, dtype, lanes, mask, 1 if stride == 0 else stride)
        if dtype in (BOOL, accumulate):
            return value
        return b.op("cast", value, dtype=accumulate)

    return load


def storer(name: str, tensor: Tensor) -> StoreEntry:
    """Writes `tensor` (B, H, rows, columns)."""
    dtype = from_torch(tensor.dtype)
    assert dtype is not None

    def store(
        b: KernelBuilder, batch: Dims, row: Dim, column: Dim, lane: Lane | None, value: Value
    ) -> None:
        index = address((*batch, row, column), tensor.stride())
        if value.type.dtype != dtype:
            value = b.op("cast", value, dtype=dtype)
        if lane is None:
            b.store(name, index, value)
            return
        linear = linear_part(index, lane.symbol.name)
        assert linear is not None
        b.store(name, linear[1], value, mask=lane.mask, stride=linear[0])

    return store


class Attention:
    """A compiled attention for tensors of these strides; sizes named in `dynamic` stay open."""

    def __init__(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None,
        causal: bool = False, scale: float | None = None, dynamic: str = "",
        target: Machine | None = None,
    ) -> None:  # fmt: skip
        batch, heads, rows, depth = query.shape
        group = heads // key.shape[1]
        dtype = from_torch(query.dtype)
        accumulate = F64 if dtype == F64 else F32
        empty = torch.zeros(batch, rows, heads, value.shape[3], dtype=query.dtype)
        self.result = surrounded(empty).transpose(1, 2)
        self.tensors = {"q": query, "k": key, "v": value, "o": self.result}
        if mask is not None:
            self.tensors["m"] = mask.expand(batch, heads, rows, key.shape[2])
        bools = mask is not None and mask.dtype == torch.bool
        self.spec = AttentionSpec(
            batch=(batch, heads),
            rows=sym("s0") if "m" in dynamic else rows,
            keys=sym("s1") if "n" in dynamic else key.shape[2],
            depth=depth,
            value_depth=value.shape[3],
            scale=1 / math.sqrt(depth) if scale is None else scale,
            causal=causal,
            query=loader("q", query, accumulate),
            key=loader("k", key, accumulate, group),
            value=loader("v", value, accumulate, group),
            store=storer("o", self.result),
            mask=None if mask is None else loader("m", self.tensors["m"], accumulate),
            mask_kind=MaskKind.KEEP if bools else MaskKind.ADD,
            accumulate=accumulate,
            group=group,
            key_contiguous_along=Along.K if key.stride(3) == 1 else Along.OUTER,
        )
        target = target or host()
        self.classes: AttentionClasses = plan_attention_classes(self.spec, target)
        self.schedule: AttentionSchedule = self.classes[-1].schedule
        builder = KernelBuilder("attention", "Attention")
        for name, tensor in self.tensors.items():
            dtype = from_torch(tensor.dtype)
            assert dtype is not None
            builder.buffer(name, dtype, elements(tensor), "out" if name == "o" else "in")
        symbols = (as_sym(self.spec.rows), as_sym(self.spec.keys))
        builder.kernel.dims += [symbol for symbol in symbols if symbol is not None]
        emit_attention_classes(builder, self.spec, self.classes)
        self.kernel = Launched(builder.kernel, target)

    def __call__(self, *tensors: Tensor) -> Tensor:
        """Run on the tensors it was made for, or on others (q, k, v, result[, m]) if dynamic."""
        used = dict(zip(self.tensors, tensors, strict=True)) if tensors else self.tensors
        self.kernel(used, {"s0": used["q"].shape[2], "s1": used["k"].shape[2]})
        return used["o"]
