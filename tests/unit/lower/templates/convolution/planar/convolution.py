"""A planar convolution, compiled and run on torch tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from kernelmill.core.dim import Dim, linear_part, product
from kernelmill.core.dtype import F32
from kernelmill.core.target.machine import Machine, host
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.interpreter import run_kernel
from kernelmill.kernel.ir import Kernel, Value
from kernelmill.kernel.verifier import verify_kernel
from kernelmill.lower.elements.axes import Dims
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.emit.access import Along
from kernelmill.lower.emit.packed import panel_shape
from kernelmill.lower.schedule.candidate import OPEN
from kernelmill.lower.templates.convolution.planar.layout import Schedule, WindowPanels, plan_planar
from kernelmill.lower.templates.convolution.planar.spec import PlanarConvolution, Window
from kernelmill.lower.templates.matmul.spec import Contraction, Operand
from tests.machine_code import MachineCode, compiled_object


@dataclass
class Convolution:
    """conv2d of a random (images, groups * channels, height, width) image.

    `packed` weights are in panels, if there is one group; `offset` makes the image's elements
    computed: x + 1 inside of it, and still zero beyond its edge.
    """

    images: int
    channels: int
    size: tuple[int, int]
    outputs: int
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    packed: bool = True
    offset: bool = False
    target: Machine | None = None
    adjust: Callable[[Schedule], Schedule] | None = None

    def __post_init__(self) -> None:
        # Panels are the same for every batch index, and each group has weights of its own.
        self.packed = self.packed and self.groups == 1

    @cached_property
    def image(self) -> Tensor:
        generator = torch.Generator().manual_seed(1)
        shape = (self.images, self.groups * self.channels, *self.size)
        return torch.randint(-4, 5, shape, generator=generator).float()

    @cached_property
    def weight(self) -> Tensor:
        generator = torch.Generator().manual_seed(2)
        shape = (self.groups * self.outputs, self.channels, *self.kernel)
        return torch.randint(-4, 5, shape, generator=generator).float()

    def expected(self) -> Tensor:
        """The right answer."""
        return torch.nn.functional.conv2d(
            self.image + (1 if self.offset else 0), self.weight, None,
            self.stride, self.padding, self.dilation, self.groups,
        )  # fmt: skip

    @cached_property
    def out(self) -> tuple[int, int]:
        """Sizes of the result."""
        shape = self.expected().shape
        return shape[2], shape[3]

    @cached_property
    def spec(self) -> PlanarConvolution:
        """What is to be computed: batch is (image, group)."""
        channels, (high, wide) = self.channels, self.kernel
        window = Window(
            self._image, self.size, self.out, self.kernel, self.stride, self.dilation, self.padding
        )
        depth = channels * high * wide

        def weight(b: KernelBuilder, batch: Dims, m: Dim, k: Dims, lane: Lane | None) -> Value:
            row = batch[1] * self.outputs + m
            place = row * depth + (k[0] * high + k[1]) * wide + k[2]
            if lane is None:
                return b.load("a", place, F32)
            linear = linear_part(place, lane.symbol.name)
            assert linear is not None
            return b.load("a", linear[1], F32, lane.count, lane.mask, linear[0])

        def store(b: KernelBuilder, batch: Dims, m: Dim, n: Dim, lane: Lane, value: Value) -> None:
            row = (batch[0] * self.groups + batch[1]) * self.outputs + m
            linear = linear_part(row * product(self.out) + n, lane.symbol.name)
            assert linear is not None and linear[0] == 1
            b.store("c", linear[1], value, lane.mask)

        contraction = Contraction(
            (self.images, self.groups), self.outputs, product(self.out), (channels, high, wide),
            Operand(None if self.packed else weight, Along.K, packed="a" if self.packed else None),
            Operand(None, Along.OUTER, direct=False, source=WindowPanels(window)), F32, store,
        )  # fmt: skip
        return PlanarConvolution(contraction, window)

    def _image(
        self, b: KernelBuilder, batch: Dims, channel: Dim, position: tuple[Dim, Dim], lane: Lane
    ) -> Value:
        (height, width), (y, x) = self.size, position
        plane = (batch[0] * self.groups + batch[1]) * self.channels + channel
        linear = linear_part((plane * height + y) * width + x, lane.symbol.name)
        assert linear is not None
        value = b.load("b", linear[1], F32, lane.count, lane.mask, linear[0])
        return b.op("add", value, 1.0) if self.offset else value

    @cached_property
    def schedule(self) -> Schedule:
        """How it is planned."""
        planned = plan_planar(self.spec, self.target or host(), OPEN)
        return planned if self.adjust is None else self.adjust(planned)

    @property
    def rows(self) -> int:
        """Rows of a panel of weights."""
        return self.schedule.packed_rows

    @cached_property
    def kernel_ir(self) -> Kernel:
        """The verified kernel."""
        builder = KernelBuilder("convolution", "Conv2D")
        panels = product(panel_shape(self.outputs, self.spec.contraction.depth, self.rows))
        builder.buffer("a", F32, panels if self.packed else self.weight.numel(), "in")
        builder.buffer("b", F32, self.image.numel(), "in")
        builder.buffer("c", F32, self.expected().numel(), "out")
        self.schedule.emit(builder, self.spec)
        verify_kernel(builder.kernel)
        return builder.kernel

    def memory(self) -> dict[str, Tensor]:
        """The kernel's buffers."""
        weight = self.weight.flatten(1)
        if self.packed:
            rows = self.rows
            panels = -(-self.outputs // rows)
            weight = torch.nn.functional.pad(weight, (0, 0, 0, panels * rows - self.outputs))
            weight = weight.reshape(panels, rows, -1).transpose(1, 2)
        result = torch.full(self.expected().shape, 77.0)
        return {"a": weight.flatten(), "b": self.image.flatten(), "c": result.flatten()}

    def interpreted(self) -> Tensor:
        """The result by the kernel interpreter, which checks every access."""
        memory = self.memory()
        run_kernel(self.kernel_ir, {name: tensor.numpy() for name, tensor in memory.items()})
        return memory["c"].reshape(self.expected().shape)

    def compiled(self) -> Tensor:
        """The result by machine code; scratch is full of NaN before."""
        memory, kernel = self.memory(), self.kernel_ir
        image = compiled_object(kernel, (self.target or host()).isa)
        assert isinstance(kernel.tasks, int) and isinstance(kernel.scratch, int)
        buffers = [memory[name] for name in "abc"]
        MachineCode(image, kernel.name)(buffers, (), [(0, kernel.tasks)], kernel.scratch)
        return memory["c"].reshape(self.expected().shape)

    def check(self) -> None:
        """Compiled and right."""
        torch.testing.assert_close(self.compiled(), self.expected(), rtol=0, atol=0)
