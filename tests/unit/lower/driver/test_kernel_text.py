"""What lowering decides for code generation is said in the kernel's text."""

from __future__ import annotations

import re

import pytest

from kernelmill.codegen import llvm_ir
from kernelmill.core.dtype import BOOL, F32, I8
from kernelmill.core.target.isa import NAMED, Isa
from kernelmill.core.target.machine import Machine
from kernelmill.kernel.text import print_kernel
from tests.compiled import graph, lowered


def text_of(made) -> str:
    return "".join(map(print_kernel, made.kernels.values()))


@pytest.mark.parametrize(
    ("isa", "outside"),
    [(NAMED["x86-64-v3"], "lowest"), (NAMED["aarch64-neon"], "nearest")],
    ids=str,
)
def test_floats_that_no_integer_holds_become_what_the_isa_makes_of_them(
    isa: Isa, outside: str
) -> None:
    made = graph(lambda b, x: b.emit("cast", x, dtype=I8), (F32, (3, 40)))
    text = text_of(lowered(made, Machine(isa)))
    assert text.count("outside=") == text.count(f'{{outside="{outside}"}}') > 0


def test_outputs_that_may_lie_over_inputs_are_marked() -> None:
    made = graph(lambda b, x, y: b.emit("add", x, y), (F32, (3, 40)), (F32, (3, 40)))
    (kernel,) = lowered(made).kernels.values()
    assert [buffer.over for buffer in kernel.buffers] == [(), (), ("b0", "b1")]
    made = graph(lambda b, x: b.emit("reduce_sum", x, dims=(1,)), (F32, (3, 40)))
    (kernel,) = lowered(made).kernels.values()
    assert [buffer.over for buffer in kernel.buffers] == [(), ()]


def test_memory_that_may_be_shared_and_no_other_may_alias() -> None:
    shape = (3, 40)
    made = graph(lambda b, *xs: b.emit("where", *xs), (BOOL, shape), (F32, shape), (F32, shape))
    (kernel,) = lowered(made).kernels.values()
    (head,) = re.findall(r"define internal void .*", llvm_ir(kernel, NAMED["x86-64-v3"]))
    kinds = head.partition("(")[2].split(",")[: len(kernel.buffers)]
    for buffer, kind in zip(kernel.buffers, kinds, strict=True):
        assert ("noalias" in kind) == (buffer.dtype == BOOL)
        assert ("readonly" in kind) == (buffer.access == "in")
    assert len(kinds) == 4
