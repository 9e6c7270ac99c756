"""Calls with so many parameters that several threads compare them."""

from collections.abc import Callable

import pytest
import torch

from kernelmill.plan.ir import Plan, TensorResult
from kernelmill.runtime.program import Program, load
from tests.unit.runtime.kernels import add, buffer, double, launch, ref, tensor_input

PARAMETERS, SIZE = 300, 5 * 1024
"""How many, and of how many elements: of more than two pages, so that those are watched."""


def plan() -> Plan:
    """x plus twice each parameter, which is packed."""
    inputs, sums = PARAMETERS + 1, 2 * PARAMETERS + 1
    packed = range(inputs, sums)
    places = (sums, sums + 1)
    results = (*(places[n % 2] for n in range(PARAMETERS - 1)), sums + 2)
    return Plan(
        name="many",
        symbols=(),
        inputs=(
            tensor_input("x", SIZE),
            *(tensor_input(f"p{n}", SIZE, role="param") for n in range(PARAMETERS)),
        ),
        buffers=(
            *(buffer("input", SIZE, source=i) for i in range(inputs)),
            *(buffer("packed", SIZE) for _ in packed),
            buffer("arena", SIZE, offset=0),
            buffer("arena", SIZE, offset=4 * SIZE),
            buffer("tensor", SIZE),
        ),
        prepare=tuple(launch("double", (1 + n, place), SIZE) for n, place in enumerate(packed)),
        steps=tuple(
            launch("add", (before, place, result), SIZE)
            for before, place, result in zip((0, *results), packed, results, strict=False)
        ),
        results=(TensorResult(sums + 2),),
        kernels=(ref("add"), ref("double")),
        arena_bytes=8 * SIZE,
    )


@pytest.fixture(scope="module")
def program() -> Program:
    return load(plan(), {"add": add(), "double": double()})


@pytest.fixture(params=[1, 2, 4])
def threads(request: pytest.FixtureRequest, threads_as_before: None) -> None:
    torch.set_num_threads(request.param)


def in_place(weight: torch.Tensor) -> None:
    weight += 1.0


def through_numpy(weight: torch.Tensor) -> None:
    """Of which torch knows nothing: in the middle, and in the pages that it shares."""
    numbers = weight.numpy()
    for place in (SIZE // 2, 0, SIZE - 1):
        numbers[place] += 1.0


def other_memory(weight: torch.Tensor) -> None:
    weight.data = torch.randn(SIZE)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("change", [in_place, through_numpy, other_memory])
def test_every_change_is_noticed_whoever_looks(
    program: Program, change: Callable[[torch.Tensor], None]
) -> None:
    weights = [torch.randn(SIZE) for _ in range(PARAMETERS)]
    x = torch.randn(SIZE)

    def check() -> None:
        expected = x.clone()
        for weight in weights:
            expected += 2 * weight
        (found,) = program(x, *weights)
        assert torch.equal(found, expected)

    check()
    for places in ((), (0,), (PARAMETERS - 1,), (150, 17), (16, 15, 299), ()):
        for place in places:
            change(weights[place])
        packed = program.report()["repacks"]
        check()
        check()
        assert program.report()["repacks"] == packed + len(places)
