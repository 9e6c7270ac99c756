"""Programs whose products are of the types that tile units take, from several threads, with teams
of several sizes, and in forked children: what a thread has in its tiles is its own. Elsewhere the
same programs run on what the machine has, and with the unit emulated."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from kernelmill import CompilerConfig, codegen, get_backend
from kernelmill.core.target.isa import NAMED, Isa, why_not_here, withheld
from kernelmill.kernel.ir import Kernel
from kernelmill.kernel.text import print_kernel
from kernelmill.ops import quant_matmul
from tests.forking import in_child
from tests.tile_unit import REAL
from tests.tolerances import assert_close

pytestmark = pytest.mark.usefixtures("strict", "threads_as_before")


EMULATED = "x86-64-v4-amx-emulated"
needs_avx512 = pytest.mark.skipif(bool(why_not_here(NAMED[EMULATED])), reason="no AVX512-BF16")


@pytest.fixture(params=["native", pytest.param(EMULATED, marks=needs_avx512)])
def target(request: pytest.FixtureRequest) -> str:
    return request.param


class Halves(nn.Module):
    """Products of bf16, of which one has edges in all of its sizes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(170, 320), nn.Linear(320, 145)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x)))


class Bytes(nn.Module):
    """A product of bytes."""

    weight: Tensor
    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.register_buffer("weight", torch.randint(-127, 128, (400, 277), dtype=torch.int8))
        self.register_buffer("scale", torch.rand(277) * 1e-3)

    def forward(self, x: Tensor) -> Tensor:
        return quant_matmul(x, self.weight, self.scale, output_dtype=torch.bfloat16)


def calls(target: str) -> list[Callable[[], None]]:
    """Compiled programs on their arguments: each call compares with the first one, and that was
    compared with eager."""
    models = [(Halves().eval().bfloat16(), torch.randn(120, 170).bfloat16())]
    models += [(Bytes().eval(), torch.randint(-127, 128, (50, 400), dtype=torch.int8))]
    found: list[Callable[[], None]] = []
    config = CompilerConfig()
    config.target = target
    for model, x in models:
        compiled = torch.compile(model, backend=get_backend(compiler_config=config), dynamic=False)
        first = compiled(x)
        assert_close(first, model(x))

        def again(
            compiled: Callable[[Tensor], Tensor] = compiled, x: Tensor = x, first: Tensor = first
        ) -> None:
            with torch.no_grad():
                assert torch.equal(compiled(x), first)

        found.append(again)
    return found


@pytest.mark.parametrize(
    "target", [pytest.param("native", marks=REAL), pytest.param(EMULATED, marks=needs_avx512)]
)
def test_their_products_are_of_tiles(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if target == "native" and withheld():
        pytest.skip(withheld())
    monkeypatch.delenv("KERNELMILL_TARGET", raising=False)
    monkeypatch.setenv("KERNELMILL_KERNEL_META", str(tmp_path))
    texts: list[str] = []
    whole = codegen.compile_kernel

    def compile_kernel(kernel: Kernel, isa: Isa) -> bytes:
        texts.append(print_kernel(kernel))
        return whole(kernel, isa)

    monkeypatch.setattr(codegen, "compile_kernel", compile_kernel)
    with torch.no_grad():
        calls(target)
    products = [text for text in texts if "tile_dot" in text]
    assert sum("tile_bf16" in text for text in products) == 2
    assert sum("tile_i8i8" in text for text in products) == 1


def test_two_threads_run_different_programs_at_once(target: str) -> None:
    with torch.no_grad():
        programs = calls(target)
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


def test_teams_of_any_size_give_the_same(target: str) -> None:
    with torch.no_grad():
        programs = calls(target)
    for threads in (1, 4, 2, 7):
        torch.set_num_threads(threads)
        for program in programs:
            program()


def test_a_forked_child_runs_them(target: str) -> None:
    with torch.no_grad():
        programs = calls(target)

    def child() -> None:
        torch.set_num_threads(1)
        for program in programs:
            program()
        with torch.no_grad():
            torch._dynamo.reset()
            for program in calls(target):
                program()

    in_child(child)
    for program in programs:
        program()
