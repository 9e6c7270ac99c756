"""Gears compiled behind the first call: which program serves while others are made."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch.testing import assert_close

from kernelmill import CompilerConfig, GearError, get_backend
from kernelmill.backend import gear_calls
from kernelmill.compiler import pipeline
from kernelmill.core.errors import UnsupportedError
from kernelmill.inference import set_dim_gears
from kernelmill.runtime import background

SIZES = [2, 4, 8, 16, 32]
FIRST = 8


class Work:
    """What was handed to the background, done piece by piece, and the compiles of all threads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pieces: Iterator[None] = iter(())
        self.submitted = 0
        self.compiled = 0
        lowered = pipeline.lower_graph

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.compiled += 1
            return lowered(*args, **kwargs)

        def submit(work: background.Work) -> None:
            self.submitted += 1
            self.pieces = work()

        monkeypatch.setattr(pipeline, "lower_graph", counted)
        monkeypatch.setattr(gear_calls.background, "submit", submit)

    def compiles(self) -> int:
        """How many graphs were lowered since the last time."""
        found, self.compiled = self.compiled, 0
        return found

    def everything(self) -> None:
        """Do all that is left."""
        for _ in self.pieces:
            pass


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    return Work(monkeypatch)


def lazily(function: Any, **options: Any) -> Any:
    config = CompilerConfig()
    config.experimental_config.gears_eager = False
    for name, value in options.items():
        setattr(config.inference_config, name, value)
    counters.clear()
    return torch.compile(function, backend=get_backend(compiler_config=config), fullgraph=True)


def geared(size: int = FIRST, sizes: list[int] = SIZES) -> Tensor:
    x = torch.randn(size, 6)
    set_dim_gears(x, {0: sizes})
    return x


def rows(x: Tensor) -> Tensor:
    """Every row by itself: it may be padded."""
    return torch.relu(x * 2).softmax(-1)


def columns(x: Tensor) -> Tensor:
    """Every row decides all others: it may not."""
    return x.softmax(0) + x.mean(0)


def right(model: Any, function: Any, size: int) -> None:
    x = torch.randn(size, 6)
    ours, eager = model(x), function(x)
    assert_close(ours, eager)
    assert ours.stride() == eager.stride()


def test_a_larger_gear_serves_smaller_ones_meanwhile(work: Work) -> None:
    model = lazily(rows)
    x = geared()
    assert_close(model(x), rows(x))
    assert work.compiles() == 1
    for size in (2, 4, 8, 2):
        right(model, rows, size)
    assert work.compiles() == 0
    assert counters["stats"]["unique_graphs"] == 1


def test_a_gear_that_nothing_serves_is_compiled_for_its_call(work: Work) -> None:
    model = lazily(rows)
    model(geared())
    work.compiles()
    right(model, rows, 32)
    assert work.compiles() == 1
    for size in (32, 16, 2):
        right(model, rows, size)
    assert work.compiles() == 0


def test_what_may_not_be_padded_waits_for_its_own_gear(work: Work) -> None:
    model = lazily(columns)
    model(geared())
    work.compiles()
    right(model, columns, 4)
    assert work.compiles() == 1


def test_the_program_for_all_sizes_serves_meanwhile(work: Work) -> None:
    model = lazily(columns)
    model(geared())
    next(work.pieces)
    work.compiles()
    for size in SIZES:
        right(model, columns, size)
    assert work.compiles() == 0


@pytest.mark.parametrize("function", [rows, columns])
def test_all_gears_have_programs_in_the_end(work: Work, function: Any) -> None:
    model = lazily(function)
    model(geared())
    work.everything()
    work.compiles()
    for size in SIZES:
        right(model, function, size)
    with pytest.raises(GearError, match=r"\[0\]=5"):
        model(torch.randn(5, 6))
    with pytest.raises(GearError):
        model(torch.randn(4, 7))
    assert (work.compiles(), work.submitted) == (0, 1)


def test_a_few_gears_need_no_program_for_all_sizes(work: Work) -> None:
    model = lazily(columns)
    model(geared(2, [2, 4]))
    assert work.compiles() == 1
    work.everything()
    assert work.compiles() == 1


@pytest.mark.parametrize("miss", ["pad", "dynamic"])
def test_sizes_that_are_no_gear(work: Work, miss: str) -> None:
    model = lazily(rows, gear_miss=miss)
    x = geared(5)
    assert_close(model(x), rows(x))
    for size in (3, 9, 31, 4, 32, 2):
        right(model, rows, size)
    work.everything()
    for size in (3, 9, 31, 4, 32, 2):
        right(model, rows, size)
    if miss == "pad":
        with pytest.raises(GearError):
            model(torch.randn(33, 6))
    else:
        right(model, rows, 33)
    assert counters["stats"]["unique_graphs"] == 1


def test_a_gear_that_cannot_be_compiled_runs_in_torch(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = lazily(columns)
    model(geared())

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise UnsupportedError("not this one")

    monkeypatch.setattr(pipeline, "lower_graph", refuse)
    monkeypatch.delenv("KERNELMILL_STRICT", raising=False)
    for _ in range(2):
        right(model, columns, 4)


def test_a_forked_child_begins_the_work_anew(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    model = lazily(columns)
    model(geared())
    assert work.submitted == 1
    monkeypatch.setattr(os, "getpid", lambda: -1)
    right(model, columns, 4)
    right(model, columns, 16)
    assert work.submitted == 2


def test_weights_and_training(work: Work) -> None:
    torch.manual_seed(0)
    reference = nn.Sequential(nn.Linear(6, 6), nn.GELU(), nn.Linear(6, 2))
    net = copy.deepcopy(reference)
    model = lazily(net)
    for step, size in enumerate((8, 4, 32, 2, 16)):
        x = geared(size) if step == 0 else torch.randn(size, 6)
        for module, call in ((net, model), (reference, reference)):
            module.zero_grad()
            call(x).square().sum().backward()
        for ours, eager in zip(net.parameters(), reference.parameters(), strict=True):
            assert_close(ours.grad, eager.grad)
        if step == 2:
            work.everything()
    assert counters["stats"]["unique_graphs"] == 1


def test_the_background_finishes_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    model = lazily(rows)
    model(geared())
    background.wait()
    work = Work(monkeypatch)
    for size in SIZES:
        right(model, rows, size)
    assert work.compiles() == 0


def test_eager_gears_are_all_compiled_at_the_first_call(work: Work) -> None:
    counters.clear()
    model = torch.compile(rows, backend=get_backend(), fullgraph=True)
    model(geared())
    assert work.compiles() > 0
    for size in SIZES:
        right(model, rows, size)
    assert (work.compiles(), work.submitted) == (0, 0)
