"""Lowering tells of each kernel as soon as it is made."""

from __future__ import annotations

from kernelmill.core.dtype import F32, InputRole
from kernelmill.core.target.machine import host
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Graph
from kernelmill.kernel.text import print_kernel
from kernelmill.lower.driver.kernels import KernelCache
from kernelmill.lower.driver.lowered import NewKernel
from kernelmill.lower.driver.program import lower_graph


def graph(name: str) -> Graph:
    builder = GraphBuilder(name)
    x = builder.input("x", F32, (8, 64))
    weight = builder.input("w", F32, (64, 32), role=InputRole.PARAM)
    y = builder.emit("matmul", x, weight)
    builder.graph.results = [y, builder.emit("reduce_sum", y, dims=(1,))]
    return builder.graph


def test_every_kernel_is_told_once_with_its_text_and_shapes() -> None:
    told: list[NewKernel] = []
    lowered = lower_graph(graph("g"), host(), announce=told.append)
    assert [new.kernel.name for new in told] == list(lowered.kernels)
    assert [new.ref for new in told] == list(lowered.plan.kernels)
    product = next(new for new in told if new.kernel.type.startswith("MatMul"))
    assert product.text == print_kernel(product.kernel, name=False)
    assert (8, 64) in product.shapes and len(product.shapes) == len(product.kernel.buffers)


def test_kernels_of_another_program_are_told_without_their_text() -> None:
    cache = KernelCache()
    lower_graph(graph("g"), host(), cache=cache)
    told: list[NewKernel] = []
    lowered = lower_graph(graph("h"), host(), cache=cache, announce=told.append)
    assert [new.kernel for new in told] == list(lowered.kernels.values())
    assert {new.text for new in told} == {""}
