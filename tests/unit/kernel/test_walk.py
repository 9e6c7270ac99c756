"""Going through the statements of a kernel."""

from __future__ import annotations

from kernelmill.kernel.ir import Kernel, statements_of, used_symbols
from kernelmill.kernel.text import parse_kernel

TEXT = """
kernel walked(x: f32[s0] in, y: f32[s0*s1] out) dims(s0, s1, s2) tasks(4) {
  %0: i64 = index(<s0>)
  let n0 = %0 in [0, s0]
  %1: bool = lt(%0, 3)
  for i0 = 0 to s0 step 1 {
    %2: f32 = load x[i0]
    if %1 {
      store y[i0], %2
    } else {
      prefetch x[task]
      repeat {
        store y[n0], %2
      } while %1
    }
  }
}
"""


def walked() -> Kernel:
    return parse_kernel(TEXT)


def test_statements_come_in_the_order_of_the_text() -> None:
    names = [type(statement).__name__ for statement in statements_of(walked().body)]
    assert names == [
        "IndexValue", "Let", "Instr", "For", "Load", "If", "Store", "Prefetch", "Repeat", "Store",
    ]  # fmt: skip


def test_symbols_are_found_wherever_they_stand_and_no_others() -> None:
    assert used_symbols(walked()) == {"s0", "s1", "n0", "i0", "task"}
