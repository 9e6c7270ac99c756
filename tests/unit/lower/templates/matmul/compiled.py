"""A contraction over torch tensors: its kernel, run both ways, and the right answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from kernelmill.core.dim import Dim, as_sym, evaluate, linear_part, product, sym
from kernelmill.core.dtype import F32, DType, to_torch
from kernelmill.core.target.machine import Machine, host
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.interpreter import run_kernel
from kernelmill.kernel.ir import Kernel, Value
from kernelmill.kernel.verifier import verify_kernel
from kernelmill.lower.elements.axes import Dims
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.emit.access import Along, StoreElement
from kernelmill.lower.emit.packed import panel_shape
from kernelmill.lower.templates.matmul.blocked_tiles import ReadA, ReadB, Sums
from kernelmill.lower.templates.matmul.schedule import (
    RowClasses,
    Schedule,
    emit_classes,
    plan_classes,
    plan_contraction,
)
from kernelmill.lower.templates.matmul.spec import Contraction, Operand
from tests.machine_code import MachineCode, compiled_object, runs_here

FLAVOURS = ("k", "outer", "strided", "packed", "computed k", "computed outer")
"""How an operand may lie: what is contiguous, in panels, or computed from what lies so."""

_GUARD = 64
"""Elements around the result that must stay as they are."""


@dataclass
class Case:
    """C[batch, m, n] = bias[n] + sum over k of A * B, with operands of random small numbers.

    `dynamic` names the sizes ("m", "n", "k") that the kernel learns only when it is called; with
    `by_size` it may have classes of them.
    """

    m: int
    n: int
    k: tuple[int, ...]
    batch: tuple[int, ...] = ()
    a: str = "k"
    b: str = "packed"
    dtype: DType = F32
    accumulate: DType = F32
    result: DType = F32
    dynamic: str = ""
    target: Machine | None = None
    adjust: Callable[[Schedule], Schedule] = lambda schedule: schedule
    by_size: bool = False

    # ---- tensors ----------------------------------------------------------------------------

    @cached_property
    def left(self) -> Tensor:
        """A as (batch, m, k...)."""
        return self._random(self.a, self.m, 1)

    @cached_property
    def right(self) -> Tensor:
        """B as (batch, n, k...)."""
        return self._random(self.b, self.n, 2)

    @cached_property
    def bias(self) -> Tensor:
        """One number for each column, in the accumulator's type."""
        generator = torch.Generator().manual_seed(3)
        return torch.randint(-9, 9, (self.n,), generator=generator).to(to_torch(self.accumulate))

    def _random(self, flavour: str, outer: int, seed: int) -> Tensor:
        # Small integers: every sum is exact in every type, in whatever order it is made.
        low = 0 if self.dtype.kind == "uint" else -4
        generator = torch.Generator().manual_seed(seed)
        shape = (outer, *self.k) if flavour == "packed" else (*self.batch, outer, *self.k)
        values = torch.randint(low, 5, shape, generator=generator).to(to_torch(self.dtype))
        return values.expand(*self.batch, outer, *self.k)

    def expected(self) -> Tensor:
        """The right answer."""
        exact = torch.float64 if self.accumulate.is_float else torch.int64
        left = self.left.to(exact) * (2 if self.a.startswith("computed") else 1)
        right = self.right.to(exact) * (2 if self.b.startswith("computed") else 1)
        left = left.reshape(*self.batch, self.m, int(np.prod(self.k)))
        right = right.reshape(*self.batch, self.n, int(np.prod(self.k)))
        sums = (left.unsqueeze(-2) * right.unsqueeze(-3)).sum(-1)
        return (sums + self.bias.to(exact)).to(to_torch(self.result))

    # ---- kernel -----------------------------------------------------------------------------

    def size(self, name: str, number: int) -> Dim:
        """A size as the kernel sees it."""
        return sym(name) if name in self.dynamic else number

    @cached_property
    def spec(self) -> Contraction:
        """What is to be computed."""
        m, n = self.size("m", self.m), self.size("n", self.n)
        k = (self.size("k", self.k[0]), *self.k[1:])
        return Contraction(
            self.batch,
            m,
            n,
            k,
            self._operand("a", self.a, m, k),
            self._operand("b", self.b, n, k),
            self.accumulate,
            self._store(m, n),
        )

    @cached_property
    def schedule(self) -> Schedule:
        """How it is planned, adjusted."""
        return self.adjust(plan_contraction(self.spec, self.target or host()))

    @cached_property
    def classes(self) -> RowClasses:
        """How it is planned by the number of rows, where it may be."""
        if not self.by_size:
            return ()
        return plan_classes(self.spec, self.target or host(), self.schedule)

    @cached_property
    def builder(self) -> KernelBuilder:
        """Where the kernel is written."""
        return KernelBuilder("contraction", "MatMul")

    @cached_property
    def kernel(self) -> Kernel:
        """The verified kernel."""
        builder = self.builder
        sizes = {"m": self.spec.m, "n": self.spec.n, "k": self.spec.k[0]}
        symbols = (as_sym(size) for size in sizes.values())
        builder.kernel.dims += [symbol for symbol in symbols if symbol is not None]
        for name, flavour, outer, width in self._sides():
            elements = product(self.batch) * _extent(flavour, outer, self.spec.k)
            if flavour == "packed":
                elements = product(panel_shape(outer, self.spec.depth, width))
            builder.buffer(name, self.dtype, elements, "in")
        builder.buffer("bias", self.accumulate, self.spec.n, "in")
        elements = product((*self.batch, self.spec.m, self.spec.n))
        builder.buffer("c", self.result, elements + 2 * _GUARD, "inout")
        if self.classes:
            emit_classes(builder, self.spec, self.classes)
        else:
            self.schedule.emit_kernel(builder, self.spec)
        verify_kernel(builder.kernel)
        return builder.kernel

    def _sides(self) -> list[tuple[str, str, Dim, int]]:
        return [
            ("a", self.a, self.spec.m, self.schedule.rows),
            ("b", self.b, self.spec.n, self.schedule.width),
        ]

    def _operand(self, name: str, flavour: str, outer: Dim, k: Dims) -> Operand:
        if flavour == "packed":
            return Operand(None, packed=name)
        computed, _, along = flavour.rpartition(" ")
        strides, whole = _strides(along, outer, k), _extent(flavour, outer, k)
        factor = 2 if computed else 1

        def load(b: KernelBuilder, batch: Dims, at: Dim, ki: Dims, lane: Lane | None) -> Value:
            index = _offset(batch, self.batch) * whole
            for position, stride in zip((at, *ki), strides, strict=True):
                index = index + position * stride
            value = _load(b, name, index, self.dtype, lane)
            if self.dtype != self.accumulate:
                value = b.op("cast", value, dtype=self.accumulate)
            return b.op("mul", value, factor) if computed else value

        def expect(batch: Dims, at: Dim, number: Dim) -> None:
            index = _offset(batch, self.batch) * whole + at * product(k) + number
            self.builder.prefetch(name, index)

        direct, contiguous = not computed, None if along == "strided" else Along(along)
        near = expect if direct and contiguous is Along.K else None
        return Operand(load, contiguous, direct, near)

    def _store(self, m: Dim, n: Dim) -> StoreElement:
        def store(
            b: KernelBuilder, batch: Dims, row: Dim, column: Dim, lane: Lane, value: Value
        ) -> None:
            at = _offset((*batch, row), (*self.batch, m)) * n + column
            bias = b.load("bias", _base(column, lane), self.accumulate, lane.count, lane.mask)
            value = b.op("add", value, bias)
            if self.result != self.accumulate:
                value = b.op("cast", value, dtype=self.result)
            b.store("c", _base(at, lane) + _GUARD, value, lane.mask)

        return store

    # ---- memory and runs --------------------------------------------------------------------

    def _memory(self) -> dict[str, Tensor]:
        left = _laid_out(self.left, self.a, len(self.batch), self.schedule.rows)
        right = _laid_out(self.right, self.b, len(self.batch), self.schedule.width)
        size = int(np.prod(self.batch)) * self.m * self.n
        result = torch.full((size + 2 * _GUARD,), 77, dtype=to_torch(self.result))
        return {"a": left, "b": right, "bias": self.bias, "c": result}

    @property
    def values(self) -> dict[str, int]:
        """The values of the kernel's dims."""
        sizes = {"m": self.m, "n": self.n, "k": self.k[0]}
        return {symbol.name: sizes[symbol.name] for symbol in self.kernel.dims}

    def interpreted(self) -> Tensor:
        """The result by the kernel interpreter, which checks every access."""
        memory = self._memory()
        run_kernel(self.kernel, {name: _bits(t).numpy() for name, t in memory.items()}, self.values)
        return self._result(memory["c"])

    def compiled(self) -> Tensor:
        """The result by machine code; scratch is full of NaN before. Code that this processor
        cannot run is compiled, and the kernel interpreter runs in its place."""
        memory, kernel = self._memory(), self.kernel
        isa = (self.target or host()).isa
        image = compiled_object(kernel, isa)
        if not runs_here(isa):
            return self.interpreted()
        buffers = [memory[buffer.name] for buffer in kernel.buffers]
        dims = [*self.values.values()][: len(kernel.dims)]
        tasks, scratch = (evaluate(size, self.values) for size in (kernel.tasks, kernel.scratch))
        MachineCode(image, kernel.name)(buffers, dims, [(0, tasks)], scratch)
        return self._result(memory["c"])

    def _result(self, flat: Tensor) -> Tensor:
        guards = torch.cat((flat[:_GUARD], flat[len(flat) - _GUARD :]))
        assert bool((guards == 77).all()), "the kernel wrote beside the result"
        return flat[_GUARD : len(flat) - _GUARD].reshape(*self.batch, self.m, self.n)

    def check(self) -> None:
        """Compiled and right."""
        torch.testing.assert_close(self.compiled(), self.expected(), rtol=0, atol=0)


def adjusted(**changes: int | ReadA | ReadB | Sums) -> Callable[[Schedule], Schedule]:
    """Plan as usual, but with these fields."""
    return lambda schedule: replace(schedule, **changes)  # pyright: ignore[reportArgumentType]


# ---- addressing -----------------------------------------------------------------------------


def _offset(index: Dims, shape: Dims) -> Dim:
    offset: Dim = 0
    for position, size in zip(index, shape, strict=True):
        offset = offset * size + position
    return offset


def _base(index: Dim, lane: Lane) -> Dim:
    linear = linear_part(index, lane.symbol.name)
    assert linear is not None and linear[0] == 1, f"{index} does not run along the lane"
    return linear[1]


def _strides(along: str, outer: Dim, k: Dims) -> tuple[Dim, ...]:
    """Elements between neighbours along the outer axis and along each k."""
    inner = [product(k[i + 1 :]) for i in range(len(k))]
    if along == "outer":
        return (1, *(stride * outer for stride in inner))
    scale = 2 if along == "strided" else 1
    return (product(k) * scale, *(stride * scale for stride in inner))


def _extent(flavour: str, outer: Dim, k: Dims) -> Dim:
    """Elements of memory for one batch index."""
    return outer * product(k) * (2 if flavour == "strided" else 1)


def _load(b: KernelBuilder, name: str, index: Dim, dtype: DType, lane: Lane | None) -> Value:
    if lane is None:
        return b.load(name, index, dtype)
    linear = linear_part(index, lane.symbol.name)
    assert linear is not None
    stride, base = linear
    return b.load(name, base, dtype, lane.count, lane.mask, stride)


def _laid_out(operand: Tensor, flavour: str, batch: int, width: int) -> Tensor:
    """The flat memory of an operand (batch, outer, k...)."""
    if flavour == "packed":
        rows = operand[(0,) * batch].flatten(1)
        panels = -(-len(rows) // width)
        padded = torch.nn.functional.pad(rows, (0, 0, 0, panels * width - len(rows)))
        return padded.reshape(panels, width, rows.shape[1]).transpose(1, 2).flatten()
    if flavour.endswith("outer"):
        return operand.movedim(batch, -1).flatten()
    if flavour == "strided":
        return torch.stack((operand, torch.full_like(operand, 99)), -1).flatten()
    return operand.flatten()


def _bits(tensor: Tensor) -> Tensor:
    return tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor
