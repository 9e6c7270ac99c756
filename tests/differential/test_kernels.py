"""Random kernels: what is compiled computes what the interpreter does, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelmill.core.dim import evaluate
from kernelmill.core.dtype import BF16, F32
from kernelmill.kernel.interpreter import run_kernel
from kernelmill.kernel.ir import Kernel
from kernelmill.kernel.numeric import Array, cast, numpy_dtype
from kernelmill.kernel.text import parse_kernel, print_kernel
from kernelmill.kernel.verifier import verify_kernel
from tests.kernels import DIM, LARGEST, SCRATCH_BYTES, kernels, memory
from tests.unit.codegen.native import Native

QUICK = settings(max_examples=60, derandomize=True, suppress_health_check=list(HealthCheck))


def same(mine: Array, theirs: Array, kernel: Kernel, name: str) -> None:
    """Equal, with one NaN as good as another."""
    dtype = next(buffer.dtype for buffer in kernel.buffers if buffer.name == name)
    if dtype == BF16:
        mine, theirs = cast(mine, BF16, F32), cast(theirs, BF16, F32)
    message = f"buffer {name} of\n{print_kernel(kernel)}"
    np.testing.assert_array_equal(mine, theirs, message)
    if dtype.is_float:
        numbers = ~np.isnan(theirs)
        np.testing.assert_array_equal(
            np.signbit(mine[numbers]), np.signbit(theirs[numbers]), f"signs in {message}"
        )


def check(kernel: Kernel, seed: int, size: int) -> None:
    verify_kernel(kernel)
    expected, actual = memory(kernel, seed), memory(kernel, seed)
    run_kernel(kernel, expected, {DIM: size})
    tasks = evaluate(kernel.tasks, {DIM: size})
    Native(kernel)(actual, [size], (0, tasks), scratch=SCRATCH_BYTES)
    for name in expected:
        same(actual[name], expected[name], kernel, name)


@QUICK
@given(kernels(), st.integers(0, 9), st.integers(1, LARGEST))
def test_compiled_kernels_do_what_the_interpreter_does(
    kernel: Kernel, seed: int, size: int
) -> None:
    check(kernel, seed, size)


@QUICK
@given(kernels())
def test_text_reads_back(kernel: Kernel) -> None:
    for name in (True, False):
        text = print_kernel(kernel, name)
        again = parse_kernel(text)
        verify_kernel(again)
        assert print_kernel(again, name) == text


@QUICK
@given(kernels(), st.integers(0, 9), st.integers(1, LARGEST))
def test_a_kernel_read_back_means_the_same(kernel: Kernel, seed: int, size: int) -> None:
    first, second = memory(kernel, seed), memory(kernel, seed)
    run_kernel(kernel, first, {DIM: size})
    again = parse_kernel(print_kernel(kernel))
    run_kernel(again, second, {again.dims[0].name: size})
    for name in first:
        same(second[name], first[name], kernel, name)


NARROWED = [("i64", "i32"), ("i32", "i16"), ("f32", "bf16"), ("f32", "u8"), ("i16", "i8")]


@pytest.mark.parametrize(("source", "target"), NARROWED)
@pytest.mark.parametrize("lanes", [2, 4, 8, 16])
def test_lanes_that_a_known_mask_leaves_out_are_not_written(
    source: str, target: str, lanes: int
) -> None:
    # A tail of one element is where LLVM has stored more than the element.
    outside = '{outside="lowest"}' if (source, target) == ("f32", "u8") else ""
    for count in (0, 1, lanes - 1):
        text = f"""
        kernel tail(x: {source}[16] in, y: {target}[16] inout) tasks(1) {{
          %n: i64 = index(<{count}>)
          %m: boolx{lanes} = lane_mask(%n)
          %x: {source}x{lanes} = load x[0]
          %y: {target}x{lanes} = cast(%x){outside}
          store y[0], %y mask %m
        }}"""
        kernel = parse_kernel(text)
        expected = {
            buffer.name: np.full(16, number, numpy_dtype(buffer.dtype))
            for buffer, number in zip(kernel.buffers, (0, 77), strict=True)
        }
        actual = {name: array.copy() for name, array in expected.items()}
        run_kernel(kernel, expected)
        Native(kernel)(actual)
        np.testing.assert_array_equal(actual["y"], expected["y"])
