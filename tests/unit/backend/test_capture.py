"""Graphs of Dynamo's through AOTAutograd and the compiler, and those that cannot go there."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._dynamo.exc import BackendCompilerFailed

from kernelmill.backend import Backend, Capture, get_backend
from kernelmill.backend import capture as module
from kernelmill.backend.report import or_in_torch
from kernelmill.core.errors import InputError


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELMILL_STRICT", "1")


def compiled(function: Callable[..., Any], **options: Any) -> tuple[Callable[..., Any], Backend]:
    torch._dynamo.reset()
    backend = get_backend()
    return torch.compile(function, backend=backend, **options), backend


def agrees(function: Callable[..., Any], *args: Any, **options: Any) -> list[Capture]:
    """What was captured when the compiled function gave eager's result, twice."""
    run, backend = compiled(function, **options)
    mine, eager = copy.deepcopy(args), copy.deepcopy(args)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(run(*mine), function(*eager), rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(mine, eager)
    return backend.captures


# ---- inference --------------------------------------------------------------------------------


@pytest.mark.usefixtures("strict")
def test_dynamo_calls_the_program_itself() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8)).eval()
    (capture,) = agrees(model, torch.randn(3, 4))
    assert (capture.kind, capture.direct, capture.refused) == ("inference", True, "")


@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize(
    ("function", "options", "gradient"),
    [
        (lambda x: (x[1:], x + 1), {}, True),  # a view has its argument's gradient
        (lambda x: x + 1, {"dynamic": True}, False),  # Dynamo asks which sizes are dynamic
    ],
)
def test_where_aotautograd_has_work_left_it_does_it(
    function: Any, options: Any, gradient: bool
) -> None:
    (capture,) = agrees(function, torch.randn(4, 4, requires_grad=gradient), **options)
    assert not capture.direct


@pytest.mark.usefixtures("strict")
def test_views_are_returned_without_the_wrapper() -> None:
    (capture,) = agrees(lambda x: (x[1:], x + 1, (x * 2)[0]), torch.randn(4, 4))
    assert capture.direct


@pytest.mark.usefixtures("strict")
def test_arguments_are_written_to_without_the_wrapper() -> None:
    def step(cache: Tensor, x: Tensor, at: Tensor) -> Tensor:
        cache.index_copy_(0, at, x)
        return cache.sum(0)

    (capture,) = agrees(step, torch.zeros(6, 3), torch.randn(1, 3), torch.tensor([2]))
    assert capture.direct


@pytest.mark.usefixtures("strict")
def test_version_counters_of_written_arguments_move() -> None:
    run, _ = compiled(lambda x: x.add_(1))
    x = torch.ones(3)
    with torch.no_grad():
        run(x)
        before = x._version
        run(x)
    assert x._version > before


@pytest.mark.usefixtures("strict")
def test_constants_of_the_graph_go_along() -> None:
    (capture,) = agrees(lambda x: x * torch.tensor([1.0, 2.0, 3.0]), torch.ones(3))
    assert capture.direct


@pytest.mark.usefixtures("strict")
def test_graph_breaks_split_the_function() -> None:
    def function(x: Tensor) -> Tensor:
        y = x.sin() * 2
        torch._dynamo.graph_break()
        return y.cos() + x

    assert [c.kind for c in agrees(function, torch.randn(5))] == ["inference", "inference"]


@pytest.mark.usefixtures("strict")
def test_changed_parameters_are_noticed() -> None:
    model = nn.Linear(4, 4)
    run, _ = compiled(model)
    x = torch.randn(2, 4)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(run(x), model(x))
            model.weight.mul_(2)


@pytest.mark.usefixtures("strict")
def test_a_bad_argument_is_named() -> None:
    """Dynamo's guards catch most; what they let through the program checks."""
    model = nn.Linear(4, 4)
    run, backend = compiled(model)
    with torch.no_grad():
        run(torch.ones(2, 4))
        guarded = run(torch.ones(3, 4))
    assert guarded.shape == (3, 4)
    assert len(backend.captures) == 2


# ---- training ---------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.qkv = nn.Linear(8, 24)
        self.out = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).view(2, 5, 3, 2, 4).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + F.gelu(self.out(attended.transpose(1, 2).reshape(2, 5, 8)))


@pytest.mark.usefixtures("strict")
def test_gradients_are_eagers() -> None:
    model = Block()
    run, backend = compiled(model)
    x = torch.randn(2, 5, 8)
    gradients = [
        torch.autograd.grad(f(x).square().mean(), list(model.parameters())) for f in (model, run)
    ]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)
    assert [capture.kind for capture in backend.captures] == ["forward", "backward"]


@pytest.mark.usefixtures("strict")
def test_batch_norm_trains_and_keeps_its_statistics() -> None:
    eager = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).train()
    mine = copy.deepcopy(eager)
    run, _ = compiled(mine)
    for _ in range(2):
        x = torch.randn(3, 2, 6, 6)
        eager(x).sum().backward()
        run(x).sum().backward()
    for (name, have), (_, want) in zip(mine.named_buffers(), eager.named_buffers(), strict=True):
        torch.testing.assert_close(have, want, rtol=1e-5, atol=1e-6, msg=name)
    for have, want in zip(mine.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(have.grad, want.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("strict")
def test_saved_slices_reach_the_backward() -> None:
    """What is saved with gaps in the trace is dense here; the backward is compiled for that."""

    def function(x: Tensor, w: Tensor) -> Tensor:
        a, b = (x @ w).split(3, dim=1)
        return (a.exp() * b.sin()).sum()

    run, _ = compiled(function)
    torch.manual_seed(0)
    x, w = torch.randn(4, 5) / 4, torch.randn(5, 6, requires_grad=True)
    (want,) = torch.autograd.grad(function(x, w), w)
    (have,) = torch.autograd.grad(run(x, w), w)
    torch.testing.assert_close(have, want)


# ---- whole graphs that stay with torch --------------------------------------------------------


def outside(x: Tensor) -> Tensor:
    return x[1:].as_strided((2,), (1,), 0) + 1


def test_a_graph_that_cannot_be_carried_runs_in_torch(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "kernelmill.backend"):
        (capture,) = agrees(outside, torch.ones(3))
    assert "as_strided of a view" in capture.refused
    lines = [record.getMessage() for record in caplog.records if "runs in torch" in record.message]
    assert len(lines) == 1


def test_the_warning_names_an_error_that_has_no_text(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELMILL_STRICT", "0")

    def fails() -> None:
        raise MemoryError

    assert or_in_torch("graph_0", fails, str) == "MemoryError"
    assert "graph_0 runs in torch: MemoryError" in caplog.text


@pytest.mark.usefixtures("strict")
def test_strict_mode_raises_instead() -> None:
    run, _ = compiled(outside)
    with pytest.raises(BackendCompilerFailed, match="as_strided of a view"):
        run(torch.ones(3))


def test_overlapping_arguments_that_are_written_to() -> None:
    base = torch.randn(4, 4)
    run, backend = compiled(lambda x, y: (x.add_(1), y * 2)[1])
    kept = base.clone()
    with torch.no_grad():
        result = run(base[0:3], base[1:4])
        kept[0:3].add_(1)
    torch.testing.assert_close(result, kept[1:4] * 2)
    torch.testing.assert_close(base, kept)
    assert "share memory" in backend.captures[0].refused


def test_a_fault_of_ours_becomes_a_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> object:
        raise AssertionError("a bug")

    monkeypatch.setattr("kernelmill.compiler.pipeline.Compiler.compile", broken)
    (capture,) = agrees(lambda x: x + 1, torch.ones(3))
    assert capture.refused == "a bug"


def test_errors_for_the_caller_are_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*args: object) -> object:
        raise InputError("argument 'x': bad")

    monkeypatch.setattr("kernelmill.compiler.pipeline.Compiler.compile", refuses)
    run, _ = compiled(lambda x: x + 1)
    with pytest.raises(BackendCompilerFailed, match="argument 'x': bad"):
        run(torch.ones(3))


def test_nested_tensors() -> None:
    run, backend = compiled(lambda x: x.sin() * 2)
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    with torch.no_grad():
        result = run(nested)
    torch.testing.assert_close(result.values(), nested.values().sin() * 2)
    assert "nested" in backend.captures[0].refused


@pytest.mark.usefixtures("strict")
def test_equal_kernels_of_different_sizes() -> None:
    """One kernel serves both tensors, each launch with its own sizes."""
    agrees(lambda a, b: (a.sin(), b.sin()), torch.randn(3), torch.randn(40), dynamic=True)


def test_no_way_around_torch_is_taken_with_a_version_that_was_not_tested(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(module, "TESTED", frozenset({"1.0"}))
    backend = get_backend()
    with torch.no_grad():
        compiled = torch.compile(lambda x: x.sin() + 1.0, backend=backend)
        torch.testing.assert_close(compiled(torch.ones(3)), torch.ones(3).sin() + 1.0)
    assert [capture.direct for capture in backend.captures] == [False]
