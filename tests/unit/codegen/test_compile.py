"""The objects: their symbols, their determinism, threads, errors, the processors they are for."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from kernelmill import codegen
from kernelmill.codegen import compile
from kernelmill.core.dtype import F32
from kernelmill.core.errors import CodegenError
from kernelmill.core.target.isa import NAMED, Isa, host_isa
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Kernel
from tests.unit.codegen.native import TARGETS, Native


def scaled(factor: float, op: str = "mul") -> Kernel:
    builder = KernelBuilder(f"scaled_{abs(int(factor))}", "Mul")
    builder.buffer("x", F32, 1024, "in")
    builder.buffer("y", F32, 1024, "out")
    with builder.loop(0, 1024, 16) as loop:
        value = builder.load("x", loop.index, F32, 16)
        value = builder.op(op, value, factor)
        builder.store("y", loop.index, value)
    return builder.kernel


def test_object_needs_nothing_from_outside() -> None:
    image = codegen.compile_kernel(scaled(2), host_isa())
    assert codegen.external_symbols(image) == ()


def test_outside_functions_are_named() -> None:
    for target in (NAMED["x86-64-v2"], NAMED["x86-64-v3"], NAMED["x86-64-v4"]):
        kernel = scaled(3, "rem")
        assert codegen.external_symbols(kernel, target) == ("fmodf",)


def test_text_and_object_are_the_same_every_time() -> None:
    first, second = scaled(3), scaled(3)
    assert codegen.llvm_ir(first, host_isa()) == codegen.llvm_ir(second, host_isa())
    assert codegen.compile_kernel(first, host_isa()) == codegen.compile_kernel(second, host_isa())


def test_threads_compile_at_the_same_time() -> None:
    kernels = [scaled(i) for i in range(24)]
    with ThreadPoolExecutor(4) as pool:
        images = list(pool.map(lambda kernel: codegen.compile_kernel(kernel, host_isa()), kernels))
    assert images == [codegen.compile_kernel(kernel, host_isa()) for kernel in kernels]


@pytest.mark.parametrize(("level", "register"), [(2, "xmm"), (3, "ymm"), (4, "zmm")])
def test_vectors_use_the_registers_of_the_target(level: int, register: str) -> None:
    text = codegen.assembly(scaled(2), NAMED[f"x86-64-v{level}"])
    widest = max(name for name in ("xmm", "ymm", "zmm") if name in text)
    assert widest == register


@pytest.mark.parametrize("level", TARGETS)
def test_every_target_that_runs_here_runs(level: int) -> None:
    x, y = np.arange(1024, dtype=np.float32), np.zeros(1024, np.float32)
    Native(scaled(2), TARGETS[level])({"x": x, "y": y})
    np.testing.assert_array_equal(y, x * 2)


def test_other_architectures_compile() -> None:
    for target in (NAMED["aarch64-neon"], Isa("riscv64-unknown-linux-gnu", "generic")):
        assert codegen.compile_kernel(scaled(2), target).startswith(b"\x7fELF")


def test_llvm_s_refusal_is_an_error_with_its_words() -> None:
    with pytest.raises(CodegenError, match="expected top-level entity"):
        compile.emit("nonsense", host_isa())
    broken = "define void @f() {\n  %x = add i32 1, 1\n}"
    with pytest.raises(CodegenError, match="expected instruction opcode"):
        compile.emit(broken, host_isa())


def test_versions_are_ingredients() -> None:
    assert codegen.GENERATOR_VERSION
    assert "llvmlite" in codegen.llvm_version()
