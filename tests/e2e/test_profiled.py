"""What profilers see of compiled programs: torch's own, the recorder of `explain`, and perf."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

import kernelmill
from kernelmill.backend.entry import Backend
from kernelmill.compiler.linking import Compiled
from kernelmill.core.dim import evaluate
from kernelmill.plan.ir import AtenCall, Launch
from kernelmill.runtime.linking import linker
from kernelmill.runtime.program import Program
from kernelmill.runtime.recorder import Recorder, Span
from tests.forking import in_child

X = torch.randn(48, 64)


class Model(nn.Module):
    """A super kernel, an ATen call, a kernel behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 96), nn.Linear(96, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with kernelmill.scope.super_kernel("block"):
            x = self.second(torch.tanh(self.first(x)))
        return torch.linalg.qr(x)[0] + 1


@dataclass
class CompiledModel:
    model: nn.Module
    program: Program

    def __call__(self) -> torch.Tensor:
        with torch.inference_mode():
            return self.model(X)


@pytest.fixture
def compiled() -> CompiledModel:
    model, made = with_programs(Model())
    with torch.inference_mode():
        model(X)
    (only,) = made
    return CompiledModel(model, only.program)


def with_programs(model: nn.Module) -> tuple[Any, list[Compiled[Program]]]:
    """The compiled model, and the programs that are made for its calls."""
    made: list[Compiled[Program]] = []
    return torch.compile(model.eval(), backend=Backend(on_compiled=made.append)), made


def kernel_meta() -> Path:
    return Path(os.environ["KERNELMILL_KERNEL_META"])


def names(session: profile) -> Counter[str]:
    return Counter({event.key: event.count for event in session.key_averages()})


def addresses(program: Program) -> list[int]:
    return [record.kernel for record in program.engine.tables.launch_records]


def test_torch_profiler_shows_kernels_and_super_kernels_by_name(compiled: CompiledModel) -> None:
    before, expected = addresses(compiled.program), compiled()
    with profile(activities=[ProfilerActivity.CPU]) as session:
        assert torch.equal(compiled(), expected)
        compiled()
    shown, plan = names(session), compiled.program.plan
    titles = {ref.name: ref.title for ref in plan.kernels}
    assert all((kernel_meta() / f"{title}.o").exists() for title in titles.values())
    launched = Counter(titles[step.kernel] for step in plan.steps if isinstance(step, Launch))
    assert plan.supers and all(shown[title] == 2 * count for title, count in launched.items())
    assert all(shown[whole.name] == 2 for whole in plan.supers)
    assert addresses(compiled.program) == before
    with profile(activities=[ProfilerActivity.CPU]) as another:
        compiled()
    assert all(names(another)[title] == count for title, count in launched.items())


def test_a_program_compiled_during_a_session_is_shown_too() -> None:
    model, made = with_programs(nn.Sequential(nn.Linear(64, 32), nn.Sigmoid()))
    with torch.inference_mode(), profile(activities=[ProfilerActivity.CPU]) as session:
        model(X)
    (only,) = made
    launched = {s.kernel for s in only.program.plan.steps if isinstance(s, Launch)}
    titles = {ref.title for ref in only.program.plan.kernels if ref.name in launched}
    assert titles and titles <= names(session).keys()


def tasks(spans: list[Span]) -> Counter[int]:
    found: Counter[int] = Counter()
    for span in spans:
        found[span.step] += span.tasks
    return found


def test_a_recording_has_all_tasks_of_all_steps(compiled: CompiledModel) -> None:
    before, expected, plan = addresses(compiled.program), compiled(), compiled.program.plan
    recorder = Recorder([compiled.program.engine])
    with recorder:
        assert addresses(compiled.program) != before
        assert torch.equal(compiled(), expected)
        spans = recorder.take()
        assert recorder.take() == []
    assert addresses(compiled.program) == before
    compiled()
    assert recorder.take() == []
    for number, step in enumerate(plan.steps):
        own = [span for span in spans if span.step == number and not span.whole]
        if isinstance(step, AtenCall):
            assert len(own) == 1
        else:
            assert sum(span.tasks for span in own) == evaluate(step.tasks, {})
    (whole,) = plan.supers
    around = [span for span in spans if span.whole]
    assert {span.step for span in around} == {whole.first}
    for span in spans:
        assert span.begin <= span.end and span.program == 0
        if whole.first <= span.step < whole.last and not span.whole:
            assert any(w.thread == span.thread and w.begin <= span.begin <= span.end <= w.end
                       for w in around)  # fmt: skip


def test_a_recording_of_one_thread_has_the_same_steps(request: pytest.FixtureRequest) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        compiled: CompiledModel = request.getfixturevalue("compiled")
        with Recorder([compiled.program.engine]) as recorder:
            compiled()
            spans = recorder.take()
    finally:
        torch.set_num_threads(threads)
    assert len({span.thread for span in spans}) == 1
    assert {span.step for span in spans} == set(range(len(compiled.program.plan.steps)))


def test_perf_finds_the_code_of_each_kernel_under_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = Path(linker.path())
    monkeypatch.setattr(linker, "_named", {})
    monkeypatch.setenv("KERNELMILL_PERF_MAP", "1")
    try:
        model, made = with_programs(nn.Sequential(nn.Linear(64, 16), nn.Softmax(-1)))
        with torch.inference_mode():
            model(X)
        engine = made[0].program.engine
        lines = [line.split(" ", 2) for line in path.read_text().splitlines()]
        spans = {title: (int(start, 16), int(size, 16)) for start, size, title in lines}
        for ref in engine.plan.kernels:
            start, size = spans[ref.title]
            assert start <= engine.kernels[ref.name] < start + size
        assert path.stat().st_mode & 0o077 == 0
        in_child(lambda: _same_text(path))
    finally:
        path.unlink(missing_ok=True)


def _same_text(path: Path) -> None:
    own = Path(linker.path())
    assert own != path and own.read_text() == path.read_text()
    own.unlink()


def test_a_file_for_perf_that_is_a_link_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    target = tmp_path / "precious"
    target.write_text("mine")
    monkeypatch.setattr(linker, "_named", {})
    monkeypatch.setattr(linker, "path", lambda: str(tmp_path / "perf.map"))
    os.symlink(target, tmp_path / "perf.map")
    linker.name(0x1000, 16, "kernel")
    assert target.read_text() == "mine"
    assert "perf does not get the names of kernels" in caplog.text
