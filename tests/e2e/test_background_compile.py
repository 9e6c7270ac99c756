"""Graphs compiled behind their calls: torch runs these until the program is there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import kernelmill
from kernelmill import CompilerConfig, GearError, get_backend
from kernelmill.backend.entry import Backend
from kernelmill.compiler import pipeline
from kernelmill.core.errors import StoreError, UnsupportedError
from kernelmill.inference import cache_compile, finish_packing, set_dim_gears
from kernelmill.runtime import background


class Behind:
    """What was handed to the background, and the graphs that were lowered."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waiting: list[Iterator[None]] = []
        self.lowered = 0
        lower = pipeline.lower_graph

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.lowered += 1
            return lower(*args, **kwargs)

        monkeypatch.setattr(pipeline, "lower_graph", counted)
        monkeypatch.setattr(background, "submit", lambda work: self.waiting.append(work()))

    def finish(self) -> None:
        """Do all that waits."""
        while self.waiting:
            for _ in self.waiting.pop(0):
                pass


@pytest.fixture
def behind(monkeypatch: pytest.MonkeyPatch) -> Behind:
    return Behind(monkeypatch)


def in_background(**options: Any) -> Backend:
    config = CompilerConfig()
    config.experimental_config.compile_in_background = True
    for name, value in options.items():
        setattr(config.inference_config, name, value)
    return get_backend(compiler_config=config)


def compiled(function: Any, backend: Backend, **options: Any) -> Any:
    return torch.compile(function, backend=backend, fullgraph=True, **options)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 16), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x))).softmax(-1)


def test_torch_runs_calls_until_the_program_is_there(behind: Behind) -> None:
    net, backend = Net().eval(), in_background()
    model = compiled(net, backend)
    x = torch.randn(4, 6)
    with torch.no_grad():
        for _ in range(2):
            assert torch.equal(model(x), net(x))
        assert (behind.lowered, backend.captures) == (0, [])
        behind.finish()
        assert behind.lowered == 1
        (capture,) = backend.captures
        assert capture.direct and capture.compile_seconds > 0
        assert_close(model(x), net(x))
        # Weights are packed by the program, and writes to them are seen.
        net.first.bias.add_(1)
        assert_close(model(x), net(x))
    assert behind.lowered == 1


def test_the_program_answers_after_the_background(behind: Behind) -> None:
    def plus(x: Tensor) -> Tensor:
        return x + 1

    model = compiled(plus, in_background())
    model(torch.ones(3))
    behind.finish()
    x = torch.ones(3)
    with torch.profiler.profile() as seen:
        result = model(x)
    assert_close(result, x + 1)
    events: Any = seen.events()
    assert "aten::add" not in {event.name for event in events}


def test_new_sizes_run_in_torch_too(behind: Behind) -> None:
    net = Net().eval()
    model = compiled(net, in_background(), dynamic=True)
    with torch.no_grad():
        for size in (3, 4, 5):
            x = torch.randn(size, 6)
            assert torch.equal(model(x), net(x))
        behind.finish()
        for size in (3, 7):
            x = torch.randn(size, 6)
            assert_close(model(x), net(x))
    assert behind.lowered == 1


def test_arguments_are_written_to_once(behind: Behind) -> None:
    def count(x: Tensor) -> tuple[Tensor, Tensor]:
        x.add_(1)
        return x, x * 2

    model = compiled(count, in_background())
    x = torch.zeros(5)
    for turn in (1, 2, 3):
        same, double = model(x)
        assert same is x
        assert_close(x, torch.full((5,), float(turn)))
        assert_close(double, torch.full((5,), 2.0 * turn))
        if turn == 2:
            behind.finish()
    assert behind.lowered == 1


def test_results_that_are_views_and_constants_of_the_model(behind: Behind) -> None:
    def views(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x.t(), x[0], x * torch.tensor([1.0, 2.0, 3.0])

    model = compiled(views, in_background())
    x = torch.randn(2, 3)
    for _ in range(2):
        for ours, eager in zip(model(x), views(x), strict=True):
            assert_close(ours, eager)
            assert ours.stride() == eager.stride()
            assert (ours.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()) == (
                eager.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
            )
        behind.finish()


def test_autocast_is_that_of_the_trace(behind: Behind) -> None:
    net = Net().eval()
    model = compiled(net, in_background())
    x = torch.randn(4, 6)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        expected = net(x)
        for _ in range(2):
            ours = model(x)
            assert ours.dtype == expected.dtype
            assert_close(ours, expected, rtol=2e-2, atol=2e-2)
            behind.finish()


def test_training_is_compiled_at_its_first_call(behind: Behind) -> None:
    net = Net()
    model = compiled(net, in_background())
    model(torch.randn(4, 6)).sum().backward()
    assert behind.lowered == 2  # forward and backward
    assert net.first.weight.grad is not None


def test_what_cannot_be_compiled_stays_in_torch(
    behind: Behind, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("KERNELMILL_STRICT", raising=False)

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise UnsupportedError("not this one")

    monkeypatch.setattr(pipeline, "lower_graph", refuse)
    backend = in_background()
    model = compiled(torch.sin, backend)
    x = torch.randn(3)
    assert torch.equal(model(x), x.sin())
    behind.finish()
    assert torch.equal(model(x), x.sin())
    assert [capture.refused for capture in backend.captures] == ["not this one"]


def test_errors_are_raised_at_the_next_calls_until_somebody_has_mended_them(
    behind: Behind, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise StoreError("the folder is another user's")

    plain = pipeline.open_store
    monkeypatch.setattr(pipeline, "open_store", fail)
    model = compiled(torch.cos, in_background())
    x = torch.randn(3)
    assert torch.equal(model(x), x.cos())
    behind.finish()
    for _ in range(2):
        with pytest.raises(StoreError, match="another user's"):
            model(x)
    monkeypatch.setattr(pipeline, "open_store", plain)  # somebody has mended it
    assert_close(model(x), x.cos())
    assert behind.lowered == 1


def test_a_forked_child_begins_anew(behind: Behind, monkeypatch: pytest.MonkeyPatch) -> None:
    model = compiled(torch.tan, in_background())
    x = torch.randn(3)
    model(x)
    assert len(behind.waiting) == 1
    monkeypatch.setattr(os, "getpid", lambda: -1)
    for _ in range(2):
        assert torch.equal(model(x), x.tan())
    assert len(behind.waiting) == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_that_was_forked_meanwhile_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "submit", lambda work: None)  # the parent never gets to it
    model = compiled(torch.tan, in_background())
    x = torch.randn(3)
    model(x)
    monkeypatch.undo()
    child = os.fork()
    if child == 0:
        right = torch.equal(model(x), x.tan())
        background.wait()
        right = right and torch.allclose(model(x), x.tan())
        os._exit(0 if right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_another_precision_is_compiled_in_the_background_too(behind: Behind) -> None:
    net = Net().eval()
    model = compiled(net, in_background())
    x = torch.randn(4, 6)
    before = torch.get_float32_matmul_precision()
    try:
        with torch.no_grad():
            for precision in ("highest", "medium"):
                torch.set_float32_matmul_precision(precision)
                assert_close(model(x), net(x), rtol=1e-2, atol=1e-2)
                behind.finish()
                assert_close(model(x), net(x), rtol=1e-2, atol=1e-2)
    finally:
        torch.set_float32_matmul_precision(before)


def test_it_finishes_by_itself_beside_callers() -> None:
    net, backend = Net().eval(), in_background()
    model = compiled(net, backend)
    x = torch.randn(4, 6)
    with torch.no_grad():
        while not backend.captures:
            assert_close(model(x), net(x))
        finish_packing()
        assert_close(model(x), net(x))
    assert not backend.captures[0].refused


# ---- gears, cached methods, reports --------------------------------------------------------------

SIZES = [2, 4, 8]


def rows(x: Tensor) -> Tensor:
    """Every row by itself: it may be padded."""
    return torch.relu(x * 2).softmax(-1)


def columns(x: Tensor) -> Tensor:
    """Every row decides all others: it may not."""
    return x.softmax(0) + x.mean(0)


def geared(size: int) -> Tensor:
    x = torch.randn(size, 6)
    set_dim_gears(x, {0: SIZES})
    return x


@pytest.mark.parametrize("function", [rows, columns])
@pytest.mark.parametrize("miss", ["error", "dynamic"])
def test_gears_run_in_torch_until_theirs_is_there(behind: Behind, function: Any, miss: str) -> None:
    model = compiled(function, in_background(gear_miss=miss))
    first = geared(4)
    assert_close(model(first), function(first))
    for done in (False, True):
        for size in (2, 4, 8, 5):
            x = torch.randn(size, 6)
            if size in SIZES or miss == "dynamic":
                assert_close(model(x), function(x))
                continue
            with pytest.raises(GearError, match=r"\[0\]=5"):
                model(x)
        assert (behind.lowered > 0) == done
        behind.finish()


def test_padding_is_refused_at_the_first_call(behind: Behind) -> None:
    model = compiled(columns, in_background(gear_miss="pad"))
    with pytest.raises(Exception, match="could change"):
        model(geared(4))


def test_sizes_between_gears_are_padded(behind: Behind) -> None:
    model = compiled(rows, in_background(gear_miss="pad"))
    first = geared(4)
    assert_close(model(first), rows(first))
    for size in (3, 8, 5, 7):
        x = torch.randn(size, 6)
        assert_close(model(x), rows(x))
    behind.finish()
    for size in (3, 8, 5, 7):
        x = torch.randn(size, 6)
        assert_close(model(x), rows(x))
    with pytest.raises(GearError):
        model(torch.randn(9, 6))


def test_gears_whose_compile_has_failed_are_compiled_at_their_calls(
    behind: Behind, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = compiled(columns, in_background())
    first = geared(4)
    model(first)
    lower = pipeline.lower_graph

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(pipeline, "lower_graph", fail)
    with pytest.raises(MemoryError):
        behind.finish()
    monkeypatch.setattr(pipeline, "lower_graph", lower)
    assert_close(model(first), columns(first))
    assert behind.lowered == 1


def test_cached_methods_and_reports_wait(behind: Behind, tmp_path: Path) -> None:
    config = CompilerConfig()
    config.experimental_config.compile_in_background = True
    net = Net().eval()
    x = torch.randn(4, 6)
    method: Any = cache_compile(net.forward, config=config, cache_dir=str(tmp_path))
    with torch.no_grad():
        assert_close(method(x), net(x))
        assert behind.lowered == 1
        told = kernelmill.explain(net, x, compiler_config=config)
    assert behind.lowered == 2
    assert "graph" in str(told)
