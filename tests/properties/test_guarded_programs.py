"""Programs of dynamic sizes whose results, arenas, scratch and arguments lie between pages that
nobody may touch: one that reads or writes outside of them ends the process, or fails by the bytes
that alignment leaves between. A run of the tests has few programs; `pytest --every-size` many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tests.zoo as zoo
from kernelmill.core.dtype import F32
from kernelmill.core.target.machine import host
from tests.guard_pages import GuardedMemory
from tests.programs.check import by_name, check
from tests.programs.generator import generate
from tests.programs.modes import Subject
from tests.programs.program import module_text
from tests.tolerances import assert_close

QUICK, MANY = range(400, 406), range(400, 560)
"""Seeds of random programs."""

LANES = host().isa.lanes(F32)


@pytest.fixture(params=["at the end of a page", "at its beginning"])
def memory(request: pytest.FixtureRequest) -> Iterator[GuardedMemory]:
    with GuardedMemory(request.param == "at the end of a page") as guarded:
        yield guarded
        guarded.check()


def run(
    model: Callable[..., Any], calls: Sequence[Sequence[Tensor]], memory: GuardedMemory,
    axes: Sequence[int] = (0,),
) -> None:  # fmt: skip
    """Compiled for all sizes of these axes of its arguments, each call equals eager."""
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="kernelmill")
    with torch.no_grad():
        for call in calls:
            given = memory.moved(call)
            for one in given:
                for axis in axes:
                    if one.dim() > axis and one.shape[axis] > 1:
                        torch._dynamo.mark_dynamic(one, axis)
            assert_close(compiled(*given), model(*call))
            memory.check()


@pytest.mark.parametrize("width", [LANES // 2, LANES, 2 * LANES])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_products_of_one_column(dtype: torch.dtype, width: int, memory: GuardedMemory) -> None:
    weight, linear = torch.randn(5, 1).to(dtype), nn.Linear(5, 1).to(dtype)
    calls = [[torch.randn(n, width, 5).to(dtype)] for n in (2, 3, 5, 7, 2, 1)]
    run(lambda x: (x @ weight, linear(x), torch.sin(x).sum(1)), calls, memory)


def test_images_of_any_width(memory: GuardedMemory) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 5, 3, stride=2), nn.MaxPool2d(2)
    )
    widths = (9, 12, 3 * LANES, 4 * LANES + 1, 10)
    run(model.eval(), [[torch.randn(1, 3, 11, n)] for n in widths], memory, axes=(3,))


@pytest.mark.parametrize("name", ["bert", "gpt2", "resnet50", "vit"])
def test_models(name: str, memory: GuardedMemory, every_size: bool) -> None:
    if not every_size and name != "gpt2":
        pytest.skip("one model is enough without --every-size")
    case = zoo.BUILDERS[name]()
    calls = [[torch.cat([one] * n)[: 2 * n - 1] for one in case.args] for n in (2, 3, 1, LANES)]
    run(lambda *args: case.model(*args)[0], calls, memory)


def test_random_programs(
    memory: GuardedMemory, every_size: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, mode = Subject.arguments, by_name("dynamic")
    monkeypatch.setattr(Subject, "arguments", lambda *subject: memory.moved(arguments(*subject)))
    programs = [made for made in map(generate, MANY if every_size else QUICK) if not made.gradient]
    assert programs
    for made in programs:
        verdict = check(made, mode)
        assert verdict.status != "wrong", f"{verdict.detail}\n{module_text(made)}"
        memory.check()
