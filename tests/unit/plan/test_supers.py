"""Super kernels in plans: as text, as one launch, and what the verifier refuses."""

from dataclasses import replace
from typing import Any

import pytest

from kernelmill.config.super_kernel_marks import Mark
from kernelmill.core.errors import VerificationError
from kernelmill.plan.ir import (
    LINES_BUFFER,
    WHOLE_TEAM,
    Plan,
    SuperKernel,
    TensorResult,
    whole_launch,
)
from kernelmill.plan.text import parse_plan, print_plan
from kernelmill.plan.verifier import verify_plan
from tests.unit.runtime.kernels import buffer, launch, ref, tensor_input

SUPER = SuperKernel("sk", "sp1", 0, 2, (WHOLE_TEAM, (0, 0)), ((), (0,)))
PLAN = Plan(
    "p", (), (tensor_input("x", 8),),
    (buffer("input", 8, source=0), buffer("tensor", 8), buffer("tensor", 8)), (),
    (replace(launch("double", (0, 1), 8), mark=Mark("sp1", "stream-fusion=1")),
     launch("double", (1, 2), 4, work=7)),
    (TensorResult(1), TensorResult(2)), (ref("double"),), supers=(SUPER,),
)  # fmt: skip


def test_text() -> None:
    verify_plan(PLAN)
    text = print_plan(PLAN)
    assert 'mark "sp1?stream-fusion=1"' in text
    assert 'super sk scope "sp1" from 0 {\n    part(0, 64)\n    part(0, 0) waits(0)\n  }' in text
    assert parse_plan(text) == PLAN


def test_as_one_launch() -> None:
    whole = whole_launch(PLAN, SUPER)
    assert whole.buffers == (LINES_BUFFER, 0, 1, 1, 2)
    assert (whole.kernel, whole.tasks, whole.work) == ("sk", 12, 107)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"last": 3}, "its steps are not there"),
        ({"name": "double"}, "its name is no name, or that of another"),
        ({"parts": (WHOLE_TEAM,)}, "not one part"),
        ({"parts": (WHOLE_TEAM, (64, 64))}, "is no part of a team"),
        ({"waits": ((), (1,))}, "waits for one that does not come before"),
    ],
)
def test_verifier(change: dict[str, Any], message: str) -> None:
    with pytest.raises(VerificationError, match=message):
        verify_plan(replace(PLAN, supers=(replace(SUPER, **change),)))
