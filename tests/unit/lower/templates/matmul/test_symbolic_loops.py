"""What the inner loops of products for all sizes consist of."""

from __future__ import annotations

import pytest

from kernelmill.core.dim import sym
from kernelmill.core.dtype import F32
from kernelmill.core.target.machine import PROFILES
from tests.unit.lower.templates.matmul.inner_loops import kernel_of, loops
from tests.unit.lower.templates.matmul.test_tiled import product


@pytest.mark.parametrize(
    ("target", "word"),
    [
        ("x86-64-v2", "mulps"), ("x86-64-v3", "vfmadd"), ("x86-64-v4", "vfmadd"),
        ("aarch64-neon", "fmla"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("depth", [384, 1536])
def test_no_number_of_a_call_is_computed_in_each_pass(target: str, word: str, depth: int) -> None:
    """How far ahead the next panel is fetched depends on the rows. LLVM used to divide for that in
    every pass, which took longer than what the pass is for."""
    machine = PROFILES[target]
    made = product(F32, F32, "b", "b")(sym("rows", 2), depth, 384)
    found = loops(kernel_of(made, machine), word, machine)
    assert found
    for loop in found:
        divided = [line for line in loop if "div" in line.split()[0] and "ps" not in line]
        assert not divided, loop
