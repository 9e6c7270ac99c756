"""Which outputs may be written over which inputs, told from kernels as text."""

from __future__ import annotations

import numpy as np
import pytest

from kernelmill.core.errors import VerificationError
from kernelmill.kernel.in_place import overwritable
from kernelmill.kernel.interpreter import run_kernel
from kernelmill.kernel.text import parse_kernel
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
        "%0: f32x4 = load x[task*16+min(i, 6)] store y[task*16+min(i, 6)], %0",
        "%0: f32x8 = load x[task*16+i] store y[task*16+i], %0",
        "%0: f32x4 = load x[task*8+i] store y[task*8+i], %0",
        "%0: f32x4 = load x[task*16+i//8] store y[task*16+i//8], %0",
        "%0: f32x4 = load x[task*16+i % 8] store y[task*16+i % 8], %0",
        "%0: f32x4 = load x[task*16+i] store y[task*16+i], %0"
        " %1: f32x4 = load x[task*16+i] store y[task*16+i], %1",
        "%0: f32x4 = load x[task*16+i] store y[task*16+i], %0"
        " for j = 0 to 2 step 1 { %1: f32x2 = load x[task*16+i+2*j] store y[task*16+i+2*j], %1 }",
        "%0: f32x4 = load x[task*16+i] store y[task*16+i], %0"
        " %1: f32 = load x[task*16+i+6] store y[task*16+i+6], %1",
        "%0: i64 = index(<2-i>) %1: boolx4 = lane_mask(%0) %2: f32x4 = load x[task+i] mask %1"
        " store y[task+i], %2 mask %1",
        "%0: i64x4 = iota() %1: f32x4 = gather x[task*16+i + %0] store y[task*16+i], %1",
        "%0: f32x4 = load x[task*16+i] %1: i64x4 = iota() scatter y[task*16+i + %1], %0",
    ],
    ids=[
        "beside", "stride", "later", "once-read-by-all", "repeated",
        "written-in-every-pass", "written-by-every-task", "pushed-back", "wider-than-the-step",
        "of-the-next-task", "rounded", "around", "again", "again-in-a-loop", "of-the-next-pass",
        "masked-but-of-the-next-task", "gathered", "scattered",
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


ROWS = "kernel k(x: f32[n*m] in, y: f32[n*m] out) dims(n, m) tasks(n)"


@pytest.mark.parametrize(
    "body",
    [
        "for i = 0 to (m//4) step 1 { %0: f32x4 = load x[task*m+i*4] store y[task*m+i*4], %0 }"
        " %1: i64 = index(<m-(m//4)*4>) %2: boolx4 = lane_mask(%1)"
        " %3: f32x4 = load x[task*m+(m//4)*4] mask %2 store y[task*m+(m//4)*4], %3 mask %2",
        "for i = 0 to m step 8 { %0: i64 = index(<m-i>) %1: boolx8 = lane_mask(%0)"
        " %2: f32x8 = load x[task*m+i] mask %1 store y[task*m+i], %2 mask %1 }",
        "for i = 0 to m step 1 { %0: f32 = load x[i*n+task] store y[i*n+task], %0 }",
    ],
    ids=["rest", "masked", "columns"],
)  # fmt: skip
def test_rows_of_every_length(body: str) -> None:
    assert pairs(f"{ROWS} {{ {body} }}") == {"y": {"x"}}


def test_rows_that_meet() -> None:
    body = "for i = 0 to m step 8 { %0: f32x8 = load x[task*m+i] store y[task*m+i], %0 }"
    assert pairs(f"{ROWS} {{ {body} }}") == {}


def test_columns_in_strips_and_what_is_left_of_them() -> None:
    strip = "for r{0} = 0 to 4 step 1 {{ {1} }}"
    left = "%{0}: f32x{0} = load x[r{0}*10+{1}] store y[r{0}*10+{1}], %{0}"
    body = "for i = 0 to 2 step 1 {" + strip.format(4, left.format(4, "i*4")) + "}"
    head = "kernel k(x: f32[40] in, y: f32[40] out) tasks(1)"
    assert pairs(f"{head} {{ {body} {strip.format(2, left.format(2, '8'))} }}") == {"y": {"x"}}
    assert pairs(f"{head} {{ {body} {strip.format(2, left.format(2, '7'))} }}") == {}


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ("%0: f32 = load x[0] store y[0], %0 %1: f32 = load x[0]", "has been written there"),
        ("%0: f32 = load x[0] store y[task], %0", "has been written there|another task has read"),
    ],
)
def test_running_a_kernel_shows_a_mark_that_is_wrong(body: str, wrong: str) -> None:
    """Also where the two lie apart."""
    head = "kernel k(x: f32[2] in, y: f32[2] out over(x)) tasks(2)"
    kernel = parse_kernel(f"{head} {{ {body} }}")
    with pytest.raises(VerificationError, match=wrong):
        run_kernel(kernel, {"x": np.ones(2, np.float32), "y": np.zeros(2, np.float32)})
