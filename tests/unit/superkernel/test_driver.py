"""How the threads of a super kernel wait for each other, as machine code.

An emulator on x86-64 orders memory more strictly than ARM processors do, so that nothing that runs
here would notice if a barrier were missing.
"""

from __future__ import annotations

import re

import pytest

from kernelmill import codegen
from kernelmill.codegen import compile
from kernelmill.core.target.isa import NAMED
from kernelmill.plan.ir import sub_launches
from kernelmill.superkernel.driver import driver_ir
from kernelmill.superkernel.launch_fusion import form
from tests.properties.test_super_kernels import Step, kernels_of, plan_of


@pytest.mark.parametrize(
    ("target", "loads", "stores", "hint"),
    [("aarch64-v8.6", "ldar", "stlr", "isb"), ("aarch64-neon", "ldar", "stlr", "isb"),
     ("x86-64-v3", "mov[a-z]*", "mov[a-z]*", "pause")],
)  # fmt: skip
def test_what_a_thread_wrote_is_released_and_acquired(
    target: str, loads: str, stores: str, hint: str
) -> None:
    """Launches that read the one before in another order of its elements: threads have to wait."""
    steps: list[Step] = [(8, False, 0, 1, "")]
    steps += [(8, True, 1, number, "") for number in (2, 3, 4)]
    formed = form(plan_of(steps, [5], ""), kernels_of(steps), threads=2).plan
    (one,) = formed.supers
    isa = NAMED[target]
    text = driver_ir(one, list(sub_launches(formed, one)), codegen.spin_hint(isa))
    assert len(re.findall(r"load atomic .* acquire", text)) == 1, "one function waits for all"
    released = len(re.findall(r"store atomic .* release", text))
    assert released >= 2
    words = re.findall(r"^\t([a-z]+)\b", compile.emit(text, isa, assembly=True).decode(), re.M)
    for word, least in ((loads, 1), (stores, released), (hint, 1)):
        assert sum(re.fullmatch(word, each) is not None for each in words) >= least, word
