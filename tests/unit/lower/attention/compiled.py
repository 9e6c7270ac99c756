"""Compiles an attention over strided torch tensors, and runs it on them."""

from __future__ import annotations

import ctypes
import math

import torch
from torch import Tensor

from kernelmill import codegen
from kernelmill.core.dim import Dim, as_sym, evaluate, linear_part, sym
from kernelmill.core.dtype import BOOL, F32, F64, DType, from_torch
from kernelmill.core.target import Target, host
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value
from kernelmill.lower.attention import (
    AttentionSchedule,
    AttentionSpec,
    emit_attention,
    plan_attention,
)  # fmt: skip
from kernelmill.lower.attention.spec import Dims, LoadElement, StoreElement
from kernelmill.lower.lane import Lane
from tests.unit.codegen.native import link

MARGIN = 64
"""Elements around each tensor that no kernel may change, filled with NaN."""


def surrounded(tensor: Tensor) -> Tensor:
    """The same values and strides inside a larger memory of NaN (or True)."""
    reach = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    fill = float("nan") if tensor.is_floating_point() else True
    room = torch.full((max(reach, 0) + 2 * MARGIN,), fill, dtype=tensor.dtype)
    return room.as_strided(tensor.shape, tensor.stride(), MARGIN).copy_(tensor)


def _address(batch: Dims, row: Dim, column: Dim, strides: tuple[int, ...]) -> Dim:
    index: Dim = 0
    for position, stride in zip((*batch, row, column), strides, strict=True):
        index = index + position * stride
    return index


def loader(name: str, tensor: Tensor, accumulate: DType, group: int = 1) -> LoadElement:
    """Reads `tensor` (B, H / group, rows, columns) for a query's batch index."""
    dtype = from_torch(tensor.dtype)
    assert dtype is not None

    def load(b: KernelBuilder, batch: Dims, row: Dim, column: Dim, lane: Lane | None) -> Value:
        head = batch[1] // group
        index = _address((batch[0], head), row, column, tensor.stride())
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


def storer(name: str, tensor: Tensor) -> StoreElement:
    """Writes `tensor` (B, H, rows, columns)."""
    dtype = from_torch(tensor.dtype)
    assert dtype is not None

    def store(
        b: KernelBuilder, batch: Dims, row: Dim, column: Dim, lane: Lane | None, value: Value
    ) -> None:
        index = _address(batch, row, column, tensor.stride())
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
    """A compiled attention for tensors of these strides; `dynamic` leaves rows and keys open."""

    def __init__(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None,
        causal: bool = False, scale: float | None = None, dynamic: bool = False,
        target: Target | None = None,
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
        self.spec = AttentionSpec(
            batch=(batch, heads),
            rows=sym("s0") if dynamic else rows,
            keys=sym("s1") if dynamic else key.shape[2],
            depth=depth,
            value_depth=value.shape[3],
            scale=1 / math.sqrt(depth) if scale is None else scale,
            causal=causal,
            query=loader("q", query, accumulate),
            key=loader("k", key, accumulate, group),
            value=loader("v", value, accumulate, group),
            store=storer("o", self.result),
            mask=None if mask is None else loader("m", self.tensors["m"], accumulate),
            mask_kind="keep" if mask is not None and mask.dtype == torch.bool else "add",
            accumulate=accumulate,
            group=group,
            key_contiguous_along="d" if key.stride(3) == 1 else "n",
        )
        target = target or host()
        self.schedule: AttentionSchedule = plan_attention(self.spec, target)
        self._compile(target)

    def _compile(self, target: Target) -> None:
        builder = KernelBuilder("attention", "Attention", self.schedule.tasks)
        for name, tensor in self.tensors.items():
            dtype = from_torch(tensor.dtype)
            assert dtype is not None
            elements = tensor.untyped_storage().nbytes() // tensor.element_size()
            builder.buffer(name, dtype, elements, "out" if name == "o" else "in")
        builder.kernel.scratch = self.schedule.scratch
        symbols = (as_sym(self.spec.rows), as_sym(self.spec.keys))
        builder.kernel.dims += [symbol for symbol in symbols if symbol is not None]
        emit_attention(builder, self.spec, self.schedule)
        self.kernel = builder.kernel
        image = codegen.compile_kernel(self.kernel, target)
        self._tracker, address = link(image, "attention")
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        self._function = ctypes.CFUNCTYPE(None, pointer, pointer, number, number, pointer)(address)

    def __call__(self, *tensors: Tensor) -> Tensor:
        """Run on the tensors it was made for, or on others (q, k, v, result[, m]) if dynamic."""
        used = dict(zip(self.tensors, tensors, strict=True)) if tensors else self.tensors
        sizes = {"s0": used["q"].shape[2], "s1": used["k"].shape[2]}
        pointers = (ctypes.c_void_p * len(used))(*(t.data_ptr() for t in used.values()))
        numbers = (ctypes.c_int64 * 2)(*sizes.values())
        scratch = torch.full((self.schedule.scratch // 4 + 16,), float("nan"))
        aligned = (scratch.data_ptr() + 63) // 64 * 64
        # One task at a time: tasks are independent, in any order.
        for task in reversed(range(evaluate(self.schedule.tasks, sizes))):
            self._function(pointers, numbers, task, task + 1, aligned)
        return used["o"]
