"""Operations and accesses counted in kernels' texts."""

from __future__ import annotations

import pytest

from kernelmill.core.target.machine import profile
from kernelmill.kernel.text import parse_kernel
from kernelmill.report.gather import CountedWork, compute_time, work_of

MACHINE = profile("x86-64-v3")

MULTIPLY_ADD = """
kernel k(a: f32[64] in, b: f32[64] in, c: f32[64] out) tasks(4) type "K" {
  for i = task*16 to task*16+16 step 8 {
    %0: f32x8 = load a[i]
    %1: f32x8 = load b[i]
    %2: f32x8 = fma(%0, %1, %1)
    store c[i], %2
  }
}
"""

TRIANGLE = """
kernel k(a: f32[16] in, c: f32[16] out) tasks(1) type "K" {
  for i = 0 to 4 step 1 {
    for j = 0 to i+1 step 1 {
      %0: f32 = load a[j]
      %1: f32 = add(%0, %0)
      store c[i*4+j], %1
    }
  }
}
"""

BRANCH = """
kernel k(a: f32[64] in, c: f32[64] out) dims(n in [1, 64]) tasks(1) type "K" {
  %0: i64 = index(<n>)
  %1: bool = gt(%0, 8)
  if %1 {
    %2: f32x8 = load a[0]
    %3: f32x8 = exp(%2)
    store c[0], %3
  }
}
"""

SEARCH = """
kernel k(a: f32[64] in, c: f32[64] out) tasks(1) type "K" {
  %end = repeat carry(%at: i64 = 0) {
    %next: i64 = add(%at, 1)
    %more: bool = lt(%next, 8)
    yield %next
  } while %more
}
"""


def counted(text: str, dims: tuple[int, ...] = (), tasks: int = 1) -> CountedWork | None:
    return work_of(parse_kernel(text), dims, tasks, MACHINE.isa)


def test_a_multiply_add_is_two_operations_and_one_instruction_a_vector() -> None:
    work = counted(MULTIPLY_ADD, tasks=4)
    assert work is not None
    assert work.operations == 2 * 64
    assert work.instructions == {"operations": 8}  # of 256 bits
    assert work.elements == {"a": 64, "b": 64, "c": 64}
    assert compute_time(work, MACHINE, 2) == pytest.approx(8 / MACHINE.rates.operations / 2)


def test_loops_whose_bounds_depend_on_others_are_counted() -> None:
    work = counted(TRIANGLE)
    assert work is not None
    assert work.operations == 1 + 2 + 3 + 4
    assert work.elements == {"a": 10, "c": 10}


@pytest.mark.parametrize(("n", "operations"), [(8, 0), (9, 8)])
def test_branches_on_sizes_are_followed(n: int, operations: int) -> None:
    work = counted(BRANCH, (n,))
    assert work is not None and work.operations == operations


def test_a_function_takes_as_many_instructions_as_lowering_takes_it_for() -> None:
    work = counted(BRANCH, (9,))
    assert work is not None and work.instructions == {"operations": 12}


def test_a_loop_whose_end_depends_on_data_is_not_counted() -> None:
    assert counted(SEARCH) is None
