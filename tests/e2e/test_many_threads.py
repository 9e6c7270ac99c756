"""More threads than processors: whole models give the bits that they give on one thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from kernelmill.backend.entry import Backend
from kernelmill.compiler.linking import Compiled
from kernelmill.config import CompilerConfig
from kernelmill.core.target.machine import host
from kernelmill.inference import set_dim_gears
from kernelmill.runtime.calls import tables
from kernelmill.runtime.layout import FrameHeader
from kernelmill.runtime.program import Program
from tests.tolerances import assert_close
from tests.torch_settings import threads_set
from tools.scale_cores import DecoderLayer, build

pytestmark = pytest.mark.usefixtures("strict")

MOST = 64
THREADS = (3, 8, 16, 33, MOST)


@pytest.fixture(autouse=True)
def regions_of_little_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads share each launch of several tasks, which in small models are too short for that."""
    machine = replace(host(), region_work_ns=4)
    monkeypatch.setattr(tables, "host", lambda: machine)


class Calls:
    """Calls of a compiled model, each of which can be made again with another number of threads:
    Dynamo would compile anew."""

    def __init__(self, config: CompilerConfig | None = None) -> None:
        self.made: list[Compiled[Program]] = []
        self.last: Callable[[], Any] = lambda: None
        self._backend = Backend(config, on_compiled=self.made.append)

    def __call__(self, module: torch.fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        compiled = self._backend(module, examples)

        def call(*args: Any) -> Any:
            self.last = lambda: compiled(*args)
            return compiled(*args)

        return call

    def prepare(self) -> None:
        """Check that the next calls may have all threads, and forget that some were held up."""
        for each in self.made:
            for frame in each.program.engine.pool.frames:
                header = FrameHeader.from_address(frame.address)
                assert header.threads >= MOST
                header.limit = 0

    def most_tasks(self) -> int:
        """The most tasks of a launch."""
        steps = [step for each in self.made for step in each.program.plan.steps]
        return max(getattr(step, "tasks", 0) for step in steps)


def check(model: nn.Module, given: Iterable[Tensor], config: CompilerConfig | None = None) -> Calls:
    """Compile and call with each of the arguments, then again with each number of threads."""
    calls = Calls(config)
    compiled = torch.compile(model, backend=calls, fullgraph=True)
    with torch.no_grad():
        for x in given:
            with threads_set(MOST):  # the first call makes room for as many
                found = compiled(x)
            if config is None:
                assert_close(found, model(x))
            with threads_set(1):
                (expected,) = calls.last()
            for count in THREADS:
                calls.prepare()
                with threads_set(count):
                    (again,) = calls.last()
                assert torch.equal(again, expected), f"{count} threads"
    return calls


def test_a_network_of_convolutions() -> None:
    model, x = build("ResNet-50", small=True)
    assert check(model, [x]).most_tasks() >= 16


def test_an_encoder() -> None:
    model, x = build("BERT-base 8 x 128", small=True)
    assert check(model, [x]).most_tasks() >= MOST


def test_a_quantised_encoder() -> None:
    model, x = build("BERT-base 8 x 128", small=True)
    config = CompilerConfig()
    config.quantize = "int8"
    calls = check(model, [x], config)
    with torch.no_grad():
        (found,) = calls.last()
        lost = (found - model(x)).norm() / model(x).norm()
    assert 1e-5 < lost < 0.05


class Remembers(nn.Module):
    """Layers of a decoder, and a buffer that each call writes to."""

    def __init__(self) -> None:
        super().__init__()
        sizes = (256, 8, 2, 512, 63)
        self.layers = nn.Sequential(DecoderLayer(*sizes), DecoderLayer(*sizes))
        self.rows: Tensor
        self.place: Tensor
        self.register_buffer("rows", torch.randn(64, 256))
        self.register_buffer("place", torch.tensor([7]))

    def forward(self, x: Tensor) -> Tensor:
        x = self.layers(x)
        self.rows.index_copy_(0, self.place, x[0])
        return x + self.rows.sum(0)


def test_a_token_of_a_decoder() -> None:
    torch.manual_seed(0)
    model = Remembers().eval()
    check(model, [torch.randn(1, 1, 256)])


def test_gears() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(256, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 256), nn.Softmax(-1)
    ).eval()
    batches = [torch.randn(size, 80, 256) for size in (2, 4, 8)]
    for x in batches:
        set_dim_gears(x, {0: [2, 4, 8]})
    calls = check(model, batches)
    assert len(calls.made) >= 3 and calls.most_tasks() >= MOST
