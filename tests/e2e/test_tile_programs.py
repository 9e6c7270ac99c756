"""Programs whose products are of the types that tile units take, from several threads, with teams
of several sizes, and in forked children: what a thread has in its tiles is its own. Elsewhere the
same programs run on what the machine has."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

import kernelmill
from kernelmill.ops import quant_matmul
from tests.forking import in_child
from tests.tolerances import assert_close

pytestmark = pytest.mark.usefixtures("strict")


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


class Halves(nn.Module):
    """Products of bf16, of which one has edges in all of its sizes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(70, 96), nn.Linear(96, 45)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x)))


class Bytes(nn.Module):
    """A product of bytes."""

    weight: Tensor
    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.register_buffer("weight", torch.randint(-127, 128, (200, 77), dtype=torch.int8))
        self.register_buffer("scale", torch.rand(77) * 1e-3)

    def forward(self, x: Tensor) -> Tensor:
        return quant_matmul(x, self.weight, self.scale, output_dtype=torch.bfloat16)


def calls() -> list[Callable[[], None]]:
    """Compiled programs on their arguments: each call compares with the first one, and that was
    compared with eager."""
    models = [(Halves().eval().bfloat16(), torch.randn(120, 70).bfloat16())]
    models += [(Bytes().eval(), torch.randint(-127, 128, (50, 200), dtype=torch.int8))]
    found: list[Callable[[], None]] = []
    for model, x in models:
        compiled = torch.compile(model, backend=kernelmill.get_backend(), dynamic=False)
        first = compiled(x)
        assert_close(first, model(x))

        def again(
            compiled: Callable[[Tensor], Tensor] = compiled, x: Tensor = x, first: Tensor = first
        ) -> None:
            with torch.no_grad():
                assert torch.equal(compiled(x), first)

        found.append(again)
    return found


def test_two_threads_run_different_programs_at_once() -> None:
    with torch.no_grad():
        programs = calls()
    start, done = threading.Barrier(2), list[int]()

    def run(number: int) -> None:
        start.wait()
        for _ in range(200):
            programs[number]()
        done.append(number)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [0, 1]


def test_teams_of_any_size_give_the_same() -> None:
    with torch.no_grad():
        programs = calls()
    for threads in (1, 4, 2, 7):
        torch.set_num_threads(threads)
        for program in programs:
            program()


def test_a_forked_child_runs_them() -> None:
    with torch.no_grad():
        programs = calls()

    def child() -> None:
        torch.set_num_threads(1)
        for program in programs:
            program()
        with torch.no_grad():
            torch._dynamo.reset()
            for program in calls():
                program()

    in_child(child)
    for program in programs:
        program()
