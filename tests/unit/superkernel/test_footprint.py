"""What a task is said to touch is all that it touches, and rows are known as a task's own."""

import numpy as np
import pytest

from kernelmill.core.dim import evaluate
from kernelmill.kernel.interpreter import run_kernel
from kernelmill.kernel.ir import Kernel
from kernelmill.kernel.numeric import Array
from kernelmill.kernel.text import parse_kernel
from kernelmill.plan.ir import KernelRef, Launch, Plan, TensorResult
from kernelmill.superkernel.footprint import Footprint, Footprints
from tests.unit.runtime.kernels import buffer, tensor_input

SIZE = 120

BODIES = {
    "offset": ("task * 24 + i", "for i = 0 to 24 step 1", 5),
    "running": ("i", "for i = task * 24 to task * 24 + 24 step 1", 5),
    "uneven": ("i", f"for i = task * 25 to min(task * 25 + 25, {SIZE}) step 1", 5),
    "stepped": ("i + 1", "for i = task * 24 to task * 24 + 23 step 2", 5),
    "turned": (f"{SIZE - 1} - i", "for i = task * 24 to task * 24 + 24 step 1", 5),
    "interleaved": ("i * 5 + task", "for i = 0 to 24 step 1", 5),
    "none": ("i", "for i = 0 to 0 step 1", 2),
}


def kernel(name: str) -> Kernel:
    """y[index] = x[index] + x[index] in a loop."""
    index, loop, tasks = BODIES[name]
    return parse_kernel(f"""kernel k(x: f32[{SIZE}] in, y: f32[{SIZE}] inout) tasks({tasks})
      type "K" {{
      {loop} {{
        %a: f32 = load x[{index}]
        %b: f32 = add(%a, %a)
        store y[{index}], %b
      }}
    }}""")


def claims(kernel: Kernel) -> tuple[Footprint, ...]:
    launch = Launch("k", (0, 1), (), evaluate(kernel.tasks, {}), 0, 0)
    plan = Plan(
        "one", (), (tensor_input("x", SIZE),), (buffer("input", SIZE, source=0),
        buffer("tensor", SIZE)), (), (launch,), (TensorResult(1),), (KernelRef("k", "K", "k"),),
    )  # fmt: skip
    return Footprints(plan, {launch.kernel: kernel}).of(launch)


@pytest.mark.parametrize("name", BODIES)
def test_nothing_else_is_touched(name: str) -> None:
    one = kernel(name)
    read, written = claims(one)
    x = np.arange(SIZE, dtype=np.float32)
    whole: Array = np.zeros(SIZE, dtype=np.float32)
    run_kernel(one, {"x": x, "y": whole})
    for task in range(evaluate(one.tasks, {})):
        seen, mine = (np.zeros(SIZE, dtype=bool) for _ in range(2))
        for claim, mask in ((read, seen), (written, mine)):
            low, high = claim.of_tasks(task, task + 1)
            mask[max(0, low // 4) : high // 4] = True
        y: Array = np.zeros(SIZE, dtype=np.float32)
        run_kernel(
            one, {"x": np.where(seen, x, np.float32(np.nan)), "y": y}, None, range(task, task + 1)
        )
        assert not y[~mine].any() and not np.isnan(y).any()
        assert np.array_equal(y[y != 0], whole[y != 0])


@pytest.mark.parametrize(
    ("name", "stride"),
    [("offset", 96), ("running", 96), ("uneven", 100), ("stepped", 96), ("turned", 0),
     ("interleaved", 0)],
)  # fmt: skip
def test_rows_of_a_task(name: str, stride: int) -> None:
    assert [claim.stride for claim in claims(kernel(name))] == [stride, stride]
