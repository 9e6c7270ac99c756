"""Models with LSTM, GRU and RNN layers, which Dynamo is told to trace: eager's results."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import kernelmill
import kernelmill.aot
from kernelmill.backend.entry import Backend
from kernelmill.frontend.recurrent import MOST_STEPS
from tests.compiled import reported
from tests.tolerances import assert_close

KINDS = {"lstm": nn.LSTM, "gru": nn.GRU, "tanh": nn.RNN, "relu": nn.RNN}


@pytest.fixture(autouse=True)
def traced() -> Iterator[None]:
    with torch._dynamo.config.patch(allow_rnn=True):
        yield


def layer(kind: str, *sizes: int, **options: Any) -> nn.Module:
    options = {"nonlinearity": kind, **options} if kind in ("tanh", "relu") else options
    return KINDS[kind](*sizes, **options)


def fallbacks(module: nn.Module, *args: Any, dynamic: bool | None = None) -> list[str]:
    """Compares two calls without gradients with eager's; what ran as ATen."""
    backend, reports = reported()
    with torch.no_grad():
        compiled = torch.compile(module, backend=backend, dynamic=dynamic, fullgraph=True)
        for _ in range(2):
            assert_same(compiled(*args), module(*args))
    return [operator for report in reports for operator, _, _ in report.fallbacks]


def assert_same(actual: Any, expected: Any) -> None:
    ours, theirs = (torch.utils._pytree.tree_leaves(r) for r in (actual, expected))
    for a, b in zip(ours, theirs, strict=True):
        assert_close(a, b)
        assert a.stride() == b.stride()


@pytest.mark.parametrize("options", [
    {"bidirectional": True, "bias": False}, {"batch_first": True, "num_layers": 2},
], ids=["both ways", "two layers from a state"])  # fmt: skip
@pytest.mark.parametrize("kind", KINDS)
def test_few_steps_are_kernels(kind: str, options: dict[str, Any]) -> None:
    module = layer(kind, 5, 8, **options).eval()
    cells = options.get("num_layers", 1) * (1 + options.get("bidirectional", False))
    x = torch.randn(3, 3, 5)
    hidden = torch.randn(cells, 3, 8)
    states = ((hidden, torch.randn(cells, 3, 8)) if kind == "lstm" else hidden,)
    assert not fallbacks(module, x, *(states if "num_layers" in options else ()))


@pytest.mark.parametrize("size", [8, 13, 64])
@pytest.mark.parametrize("kind", KINDS)
def test_many_steps_are_kernels(kind: str, size: int) -> None:
    """More than a register tile has columns, and rows that are no multiple of its."""
    module = layer(kind, 5, size, batch_first=True, bidirectional=True, num_layers=2).eval()
    assert not fallbacks(module, torch.randn(5, 70, 5))


@pytest.mark.parametrize("kind", KINDS)
def test_sizes_that_vary(kind: str) -> None:
    module = layer(kind, 5, 24, batch_first=True, bidirectional=True).eval()
    backend, reports = reported()
    compiled = torch.compile(module, backend=backend, dynamic=True, fullgraph=True)
    with torch.no_grad():
        for batch, length in ((2, 4), (3, 7), (9, 50), (2, 2)):
            x = torch.randn(batch, length, 5)
            assert_same(compiled(x), module(x))
    assert not any(report.fallbacks for report in reports)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_change_or_are_arguments(kind: str) -> None:
    module, x = layer(kind, 5, 24).eval(), torch.randn(6, 3, 5)
    compiled = torch.compile(module, backend=Backend())
    with torch.no_grad():
        assert_same(compiled(x), module(x))
        for parameter in module.parameters():
            parameter.mul_(0.5)
            assert_same(compiled(x), module(x))

        def call(weights: dict[str, Tensor]) -> Any:
            return torch.func.functional_call(module, weights, (x,))

        weights = {name: torch.randn_like(p) * 0.1 for name, p in module.named_parameters()}
        assert_same(torch.compile(call, backend=Backend())(weights), call(weights))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", [*KINDS, "projected"])
def test_half_types_have_states_of_float32(kind: str, dtype: torch.dtype) -> None:
    options: dict[str, Any] = {"num_layers": 2, "bidirectional": True}
    if kind == "projected":
        kind, options["proj_size"] = "lstm", 9
    module = layer(kind, 5, 24, **options).eval().to(dtype)
    x = torch.randn(20, 3, 5).to(dtype)
    exact, _ = copy.deepcopy(module).double()(x.double())
    backend, reports = reported()
    with torch.no_grad():
        found, _ = torch.compile(module, backend=backend, fullgraph=True)(x)
        expected, _ = module(x)
    assert [report.fallbacks for report in reports] == [[]]
    assert found.dtype == dtype and found.stride() == expected.stride()
    assert (found - exact).abs().max() <= (expected - exact).abs().max()


@pytest.mark.parametrize(
    "options",
    [{}, {"bidirectional": True, "bias": False}, {"batch_first": True, "num_layers": 3},
     {"bidirectional": True, "num_layers": 2}],
    ids=["plain", "both ways", "from a state", "both ways, two layers"],
)  # fmt: skip
@pytest.mark.parametrize(("size", "width"), [(8, 3), (33, 17), (64, 32)])
def test_projections_are_kernels(size: int, width: int, options: dict[str, Any]) -> None:
    module = nn.LSTM(5, size, proj_size=width, **options).eval()
    cells = options.get("num_layers", 1) * (1 + options.get("bidirectional", False))
    x = torch.randn(7, 7, 5)
    states = torch.randn(cells, 7, width), torch.randn(cells, 7, size)
    assert not fallbacks(module, x, *((states,) if "batch_first" in options else ()))


def test_projections_wider_than_the_cell_are_atens() -> None:
    sizes = (32, 5), (32, 11), (32,), (32,), (11, 8)
    weights = [torch.randn(size) / 9 for size in sizes]
    states = [torch.randn(1, 2, 11), torch.randn(1, 2, 8)]

    def function(x: Tensor) -> Any:
        return torch.lstm(x, states, weights, True, 1, 0.0, False, False, False)

    x, (backend, reports) = torch.randn(3, 2, 5), reported()
    with torch.no_grad():
        assert_same(torch.compile(function, backend=backend, fullgraph=True)(x), function(x))
    (reason,) = [reason for report in reports for _, reason, _ in report.fallbacks]
    assert "wider than its cell" in reason


def test_projections_of_sizes_that_vary_and_weights_that_change() -> None:
    module = nn.LSTM(5, 24, batch_first=True, bidirectional=True, proj_size=7).eval()
    backend, reports = reported()
    compiled = torch.compile(module, backend=backend, dynamic=True, fullgraph=True)
    with torch.no_grad():
        for batch, length in ((2, 4), (3, 7), (9, 50), (2, 2)):
            x = torch.randn(batch, length, 5)
            assert_same(compiled(x), module(x))
            for parameter in module.parameters():
                parameter.mul_(0.9)
    assert not any(report.fallbacks for report in reports)


class Tagger(nn.Module):
    """Words to tags: an embedding, a recurrent layer both ways, a linear layer."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 6)
        self.body = layer(kind, 6, 8, batch_first=True, bidirectional=True)
        self.head = nn.Linear(16, 3)

    def forward(self, words: Tensor) -> Tensor:
        return self.head(torch.relu(self.body(self.embed(words))[0])).log_softmax(-1)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_training(kind: str) -> None:
    model, words = Tagger(kind), torch.randint(0, 20, (2, 4))
    ours, theirs = model, copy.deepcopy(model)
    backend = Backend()
    torch.compile(ours, backend=backend)(words).square().sum().backward()
    theirs(words).square().sum().backward()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert a.grad is not None and b.grad is not None
        assert_close(a.grad, b.grad)
    assert not any(capture.refused for capture in backend.captures)


def test_what_torch_takes_apart_wrongly_runs_in_torch() -> None:
    """Dropout between layers, and graphs without bound."""
    for module, steps, reason in (
        (nn.LSTM(5, 8, 2, dropout=0.5), 3, "lstm in training, with dropout between layers"),
        (nn.GRU(5, 8), MOST_STEPS + 1, "gru in training, too long"),
    ):
        x = torch.randn(steps, 2, 5)
        torch._dynamo.reset()
        backend = Backend()
        compiled = torch.compile(module, backend=backend)
        torch.manual_seed(7)
        actual = compiled(x)
        torch.manual_seed(7)
        assert_same(actual, module(x))
        assert [capture.refused for capture in backend.captures] == [reason]


def test_dropout_without_gradients_draws_eagers_numbers() -> None:
    module, x = nn.LSTM(5, 8, 2, dropout=0.5), torch.randn(3, 2, 5)
    with torch.no_grad():
        compiled = torch.compile(module, backend=Backend())
        torch.manual_seed(7)
        actual = compiled(x)
        torch.manual_seed(7)
        assert_same(actual, module(x))


def test_autocast_runs_in_torch() -> None:
    module, x, backend = nn.LSTM(5, 8), torch.randn(3, 2, 5), Backend()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        compiled = torch.compile(module, backend=backend)
        try:
            expected = module(x)
        except RuntimeError:  # torch has none in bfloat16 for processors without AVX-512
            with pytest.raises(RuntimeError):
                compiled(x)
        else:
            assert_same(compiled(x), expected)
    assert [capture.refused for capture in backend.captures] == ["lstm under autocast"]


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_exported_layers(kind: str, tmp_path: Path) -> None:
    module = layer(kind, 5, 8, batch_first=True).eval()
    for steps in (3, MOST_STEPS + 1):
        x = torch.randn(2, steps, 5)
        path = kernelmill.aot.compile(module, (x,), path=tmp_path / f"{steps}.kmill")
        program = kernelmill.aot.load(path)
        with torch.no_grad():
            assert_same(program(x), module(x))
        assert program.report()["aten_calls"] == 0


@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_cells_are_kernels(cell: Any) -> None:
    assert not fallbacks(cell(5, 8), torch.randn(3, 5))


def test_gates_of_heads_before_a_scan() -> None:
    """The second gate multiplies the first and is kept as well, both in the first one's memory."""

    def run(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
        blocks = x.reshape(4, 4, 8).permute(1, 0, 2)
        gates = ((blocks @ weight).transpose(0, 1).reshape(2, 2, 32) for weight in (w, v))
        first, second = gates
        scaled, kept = first * second, second.sin()
        return torch.stack([scaled[:, 0], kept[:, 1] * scaled[:, 0] + scaled[:, 1]], 1)

    args = torch.randn(2, 2, 32), torch.randn(4, 8, 8), torch.randn(4, 8, 8)
    with torch.no_grad():
        compiled = torch.compile(run, backend=Backend(), fullgraph=True)
        assert_close(compiled(*args), run(*args))
