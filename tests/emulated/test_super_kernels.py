"""Drivers of super kernels on the emulated processor: teams of threads give what launches one after
the other do."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings

from kernelmill import codegen
from kernelmill.core.target.machine import host
from kernelmill.kernel.interpreter import run_kernel
from kernelmill.plan.ir import Plan, sub_launches
from kernelmill.superkernel.driver import driver_ir
from kernelmill.superkernel.launch_fusion import form
from tests.emulation import Emulator
from tests.properties.test_super_kernels import (
    OPTIONS,
    SIZE,
    Step,
    image,
    kernel,
    kernels_of,
    plan_of,
    programs,
)


def memory_of(plan: Plan) -> list[np.ndarray]:
    """The plan's buffers: two inputs with numbers, the others empty."""
    arena = np.zeros(int(str(plan.arena_bytes)), np.uint8)
    found: list[np.ndarray] = []
    for spec in plan.buffers:
        if spec.kind == "input":
            found.append(torch.randn(SIZE).numpy())
        elif spec.kind == "arena":
            offset = int(str(spec.offset))
            found.append(arena[offset : offset + SIZE * 4].view(np.float32))
        else:
            found.append(np.zeros(SIZE, np.float32))
    return found


@pytest.mark.parametrize("threads", [1, 2])
@settings(max_examples=12, suppress_health_check=list(HealthCheck))
@given(program=programs(), options=OPTIONS)
def test_same_results(
    threads: int, program: tuple[list[Step], list[int]], options: str, emulated: Emulator
) -> None:
    steps, results = program
    plan, kernels = plan_of(steps, results, options), kernels_of(steps)
    formed = form(plan, kernels, threads=2).plan
    (one,) = formed.supers
    launches = list(sub_launches(formed, one))
    text = driver_ir(one, launches, codegen.spin_hint(host().isa))
    torch.manual_seed(0)
    wanted = memory_of(formed)
    torch.manual_seed(0)
    got = memory_of(formed)
    for launch in launches:
        names = (buffer.name for buffer in kernels[launch.kernel].buffers)
        arrays = (wanted[number] for number in launch.buffers)
        run_kernel(kernels[launch.kernel], dict(zip(names, arrays, strict=True)))
    objects = {kernel(step[0], step[1]).name: image(step[0], step[1]) for step in steps}
    buffers = [got[number] for launch in launches for number in launch.buffers]
    emulated.run_team(
        (one.name, codegen.emit(text, host().isa)), objects, buffers, threads, scratch=0
    )
    for number in results:
        np.testing.assert_array_equal(got[number], wanted[number])
