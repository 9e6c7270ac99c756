"""Which outputs may be written over which inputs, told from kernels as text."""

from __future__ import annotations

import numpy as np
import pytest

from kernelmill.core.errors import VerificationError
from kernelmill.kernel.in_place import overwritable
from kernelmill.kernel.interpreter import run_kernel
from kernelmill.kernel.parser import parse_kernel
from kernelmill.kernel.verifier import verify_kernel

HEAD = "kernel k(x: f32[64] in, y: f32[64] out) tasks(4)"


def pairs(text: str) -> dict[str, set[str]]:
    kernel = parse_kernel(text)
    verify_kernel(kernel)
    return {output: set(inputs) for output, inputs in overwritable(kernel).items()}


SAME_PLACE = f"""{HEAD} {{
  for i = 0 to 16 step 4 {{
    %0: f32x4 = load x[task*16+i]
    %1: f32x4 = exp(%0)
    store y[task*16+i], %1
  }}
}}"""


def test_what_is_read_and_written_at_one_place() -> None:
    assert pairs(SAME_PLACE) == {"y": {"x"}}


def test_a_mark_that_the_indices_do_not_bear_out_is_refused() -> None:
    verify_kernel(parse_kernel(SAME_PLACE.replace("] out", "] out over(x)")))
    wrong = SAME_PLACE.replace("] out", "] out over(x)").replace("load x[task*16+i]", "load x[0]")
    with pytest.raises(VerificationError, match="buffer y cannot lie over x"):
        verify_kernel(parse_kernel(wrong))
    with pytest.raises(VerificationError, match="buffer y cannot lie over z"):
        verify_kernel(parse_kernel(SAME_PLACE.replace("] out", "] out over(z)")))


def test_writing_over_it_gives_the_same() -> None:
    kernel = parse_kernel(SAME_PLACE)
    x, y = np.linspace(-1, 1, 64, dtype=np.float32), np.zeros(64, np.float32)
    run_kernel(kernel, {"x": x, "y": y})
    run_kernel(kernel, {"x": x, "y": x})
    np.testing.assert_array_equal(x, y)


def test_a_place_counted_by_a_let() -> None:
    text = f"""{HEAD} {{
      %0: i64 = index(<task>)
      let n = %0 in [0, 3]
      %1: f32x16 = load x[n*16]
      store y[n*16], %1
    }}"""
    assert pairs(text) == {"y": {"x"}}


@pytest.mark.parametrize(
    "body",
    [
        "%0: f32x4 = load x[task*16+i+1] %1: f32x4 = exp(%0) store y[task*16+i], %1",
        "%0: f32x4 = load x[task*16+i] stride 2 store y[task*16+i], %0",
        "%0: f32 = load x[task*16+i] store y[task*16+i], %0 %1: f32 = load x[task*16+i]",
        "%0: f32x4 = load x[0] store y[task*16+i], %0",
        "repeat { %0: f32x4 = load x[task*16+i] store y[task*16+i], %0 %1: f32 = load x[0]"
        " %2: bool = gt(%1, 0.0) } while %2",
        "%0: f32x4 = load x[task*16] store y[task*16], %0",
        "%0: f32x4 = load x[i] store y[i], %0",
        "%0: f32x4 = load x[task*16+min(i, 11)] store y[task*16+min(i, 11)], %0",
        "%0: i64x4 = iota() %1: f32x4 = gather x[task*16+i + %0] store y[task*16+i], %1",
        "%0: f32x4 = load x[task*16+i] %1: i64x4 = iota() scatter y[task*16+i + %1], %0",
    ],
    ids=[
        "beside", "stride", "later", "once-read-by-all", "repeated",
        "written-in-every-pass", "written-by-every-task", "pushed-back", "gathered", "scattered",
    ],
)  # fmt: skip
def test_what_may_not_be_written_over(body: str) -> None:
    text = f"{HEAD} {{ for i = 0 to 12 step 4 {{ {body} }} }}"
    assert pairs(text) == {}


def test_lanes_that_are_read_and_not_written() -> None:
    def text(read: str, write: str) -> str:
        return f"""{HEAD} {{
          %0: i64 = index(<5>)
          %1: boolx16 = lane_mask(%0)
          %2: f32x16 = load x[task*16]{read}
          store y[task*16], %2{write}
        }}"""

    assert pairs(text(" mask %1", " mask %1")) == {"y": {"x"}}
    assert pairs(text(" mask %1", "")) == {"y": {"x"}}
    assert pairs(text("", " mask %1")) == {}


def test_another_dtype_and_what_is_read_in_a_loop_before() -> None:
    other = "kernel k(x: f32[64] in, y: i32[64] out) tasks(64)"
    bits = "%0: f32 = load x[task] %1: i32 = bitcast(%0) store y[task], %1"
    assert pairs(f"{other} {{ {bits} }}") == {}
    text = f"""{HEAD} {{
      %0: f32 = splat(0.0)
      %1 = for i = 0 to 16 step 1 carry (%2: f32 = %0) {{
        %3: f32 = load x[task*16+i]
        %4: f32 = add(%2, %3)
        yield %4
      }}
      for j = 0 to 16 step 1 {{
        %5: f32 = load x[task*16+j]
        %6: f32 = sub(%5, %1)
        store y[task*16+j], %6
      }}
    }}"""
    assert pairs(text) == {}


def test_a_branch_is_a_place_of_its_own() -> None:
    text = f"""{HEAD} {{
      %0: f32 = load x[task]
      %1: bool = lt(%0, 0.0)
      if %1 {{
        store y[task], %0
      }}
    }}"""
    assert pairs(text) == {}
