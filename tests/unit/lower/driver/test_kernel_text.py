"""What lowering decides for code generation is said in the kernel's text."""

from __future__ import annotations

import pytest

from kernelmill.core.dtype import F32, I8
from kernelmill.core.isa import NAMED, Isa
from kernelmill.core.machine import Machine
from kernelmill.kernel.printer import print_kernel
from tests.compiled import graph, lowered


def text_of(made) -> str:
    return "".join(map(print_kernel, made.kernels.values()))


@pytest.mark.parametrize(
    ("isa", "outside"),
    [(NAMED["x86-64-v3"], "lowest"), (Isa("aarch64-unknown-linux-gnu", "generic"), "nearest")],
    ids=str,
)
def test_floats_that_no_integer_holds_become_what_the_isa_makes_of_them(
    isa: Isa, outside: str
) -> None:
    made = graph(lambda b, x: b.emit("cast", x, dtype=I8), (F32, (3, 40)))
    text = text_of(lowered(made, Machine(isa)))
    assert text.count("outside=") == text.count(f'{{outside="{outside}"}}') > 0
