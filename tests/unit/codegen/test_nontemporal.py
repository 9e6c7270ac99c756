"""What a kernel marks nontemporal is stored past the caches, where its memory is aligned for it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from kernelmill import codegen
from kernelmill.codegen.memory import MARK
from kernelmill.core.dim import sym
from kernelmill.core.dtype import BF16, F32
from kernelmill.core.target.isa import NAMED
from kernelmill.core.target.machine import Machine
from kernelmill.kernel.text import parse_kernel
from tests.compiled import graph, lowered, program
from tests.unit.codegen.native import TARGETS, Native

LARGE = Machine.shared_bytes // 4


def double(count, access="out nontemporal"):
    return parse_kernel(
        f"""kernel double(x: f32[{count}] in, y: f32[{count}] {access}) tasks({count // 4096}) {{
          for i = 0 to 256 step 1 {{
            %a: f32x16 = load x[task * 4096 + i * 16]
            %b: f32x16 = add(%a, %a)
            store y[task * 4096 + i * 16], %b
          }}
        }}"""
    )


@pytest.mark.parametrize("count", [4096, LARGE])
@pytest.mark.parametrize(
    ("access", "marked"), [("out nontemporal", True), ("out", False), ("inout", False)]
)
def test_the_mark_decides_and_not_the_size(count, access, marked):
    text = codegen.llvm_ir(double(count, access), NAMED["x86-64-v4"])
    assert (MARK in text) == marked
    assert ("sfence" in text) == marked


@pytest.mark.parametrize(
    ("bytes", "isa", "marked"),
    [
        (Machine.shared_bytes, NAMED["x86-64-v3"], True),
        (Machine.shared_bytes - 4096, NAMED["x86-64-v3"], False),
        (Machine.shared_bytes, NAMED["aarch64-neon"], False),
    ],
    ids=str,
)
def test_lowering_marks_what_is_too_large_for_the_shared_cache(bytes, isa, marked):
    built = graph(lambda b, x: b.emit("neg", x), (F32, (bytes // 4096, 1024)))
    (kernel,) = lowered(built, Machine(isa)).kernels.values()
    assert [buffer.nontemporal for buffer in kernel.buffers] == [False, marked]
    smaller = replace(Machine(isa), shared_bytes=bytes // 2)
    (kernel,) = lowered(built, smaller).kernels.values()
    assert kernel.buffers[1].nontemporal == isa.has_nontemporal


def test_what_is_updated_or_of_unknown_size_is_not_marked():
    n = sym("n", 1 << 30, 1 << 40)
    built = graph(lambda b, x: b.emit("neg", x), (F32, (n,)))
    (kernel,) = lowered(built, Machine(NAMED["x86-64-v4"])).kernels.values()
    assert not any(buffer.nontemporal for buffer in kernel.buffers)


@pytest.mark.parametrize("target", TARGETS.values(), ids=str)
@pytest.mark.parametrize("offset", [0, 1, 8])
def test_results_are_the_same_wherever_the_memory_begins(target, offset):
    native = Native(double(LARGE), target)
    x = np.arange(LARGE, dtype=np.float32)
    memory = torch.zeros(LARGE + 16).numpy()
    y = memory[offset : offset + LARGE]
    native({"x": x, "y": y}, tasks=(0, LARGE // 4096))
    assert np.array_equal(y, 2 * x)
    assert not memory[:offset].any() and not memory[offset + LARGE :].any()


def test_parts_of_vectors_are_stored_as_ever():
    """Rows that are no whole number of vectors begin anywhere."""
    rows, columns = LARGE // 1000, 1001
    built = graph(lambda b, x: b.emit("neg", x), (F32, (rows, columns)))
    x = torch.randn(rows, columns)
    assert torch.equal(program(lowered(built))(x)[0], -x)


@pytest.mark.parametrize("target", TARGETS.values(), ids=str)
@pytest.mark.parametrize("dtype", [F32, BF16])
def test_lowered_programs_use_them(dtype, target):
    """Where a register of the type that is computed in fills one that is stored."""
    count = Machine.shared_bytes // dtype.bytes
    built = graph(lambda b, x: b.emit("neg", x), (dtype, (count // 1024, 1024)))
    made = lowered(built, Machine(target))
    (kernel,) = made.kernels.values()
    text = codegen.llvm_ir(kernel, target)
    assert (MARK in text) == (dtype == F32 and target.has_nontemporal)
    x = torch.randn(count // 1024, 1024).to(torch.float32 if dtype == F32 else torch.bfloat16)
    assert torch.equal(program(made, Machine(target))(x)[0], -x)
