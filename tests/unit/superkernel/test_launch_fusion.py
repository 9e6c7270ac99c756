"""Where the memory of a super kernel's kernels lies."""

from kernelmill.superkernel.launch_fusion import form
from tests.properties.test_super_kernels import SIZE, Step, kernels_of, plan_of


def test_only_what_runs_side_by_side_is_placed_apart() -> None:
    chain: list[Step] = [(48, False, n + 1, n + 1, "") for n in range(8)]
    branches: list[Step] = [(48, False, 9, 9, "#a,0"), (48, False, 9, 9, "#b,0")]
    steps = [*chain, *branches, (48, False, 10, 11, "")]
    plan = plan_of(steps, [12], "")
    formed = form(plan, kernels_of(steps), threads=2).plan
    (one,) = formed.supers
    assert len(set(one.parts)) == 3
    assert formed.arena_bytes == plan.arena_bytes == 3 * SIZE * 4 // 64 * 64
    left, right = (formed.buffers[n].offset for n in (10, 11))
    assert left != right
