"""The ways of calling torch.compile: graph breaks, dynamic shapes, autocast, threads, modes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

from tests import zoo
from tests.tolerances import assert_close

pytestmark = pytest.mark.usefixtures("strict")


def graphs_compiled() -> int:
    """Graphs captured since the counters were cleared."""
    return counters["stats"]["unique_graphs"]


def test_graph_breaks(backend: str) -> None:
    def function(x: Tensor) -> Tensor:
        y = torch.softmax(x * 2, dim=-1)
        torch._dynamo.graph_break()
        if y.sum().item() > 1.5:
            y = y + 1
        return y.cumsum(0)

    counters.clear()
    compiled = torch.compile(function, backend=backend, fullgraph=False)
    for rows in (1, 3):
        x = torch.randn(rows, 5)
        assert_close(compiled(x), function(x))
    assert graphs_compiled() >= 2


@pytest.mark.parametrize("name", ["pointwise", "reduce", "matmul", "view", "norm"])
def test_one_dynamic_program_serves_every_size(name: str, backend: str) -> None:
    weight = torch.randn(16, 8)
    functions: dict[str, Callable[[Tensor], Any]] = {
        "pointwise": lambda x: torch.where(x > 0, x.exp(), x * 3) + x.shape[0],
        "reduce": lambda x: (x.sum(0), x.mean(), x.amax(1), x.argmin(0)),
        "matmul": lambda x: torch.relu(x @ weight),
        "view": lambda x: torch.cat([x[1:], x.flip(0)], 0).reshape(-1, 4, 4).transpose(1, 2),
        "norm": lambda x: nn.functional.layer_norm(x, (16,)).softmax(0),
    }
    function = functions[name]
    counters.clear()
    compiled = torch.compile(function, backend=backend, fullgraph=True, dynamic=True)
    for rows in (3, 7, 4, 64, 129):
        x = torch.randn(rows, 16)
        assert_close(compiled(x), function(x))
    assert graphs_compiled() == 1


def test_dynamic_batch_and_length_of_a_model(backend: str) -> None:
    model = zoo.bert(small=True).model
    counters.clear()
    compiled = torch.compile(model, backend=backend, fullgraph=True, dynamic=True)
    for batch, length in ((2, 12), (3, 9), (5, 20)):
        args = (torch.randint(0, 99, (batch, length)), torch.ones(batch, length, dtype=torch.long))
        with torch.no_grad():
            assert_close(compiled(*args), model(*args))
    assert graphs_compiled() == 1


def test_static_shapes_compile_once_for_each_size(backend: str) -> None:
    counters.clear()
    compiled = torch.compile(lambda x: x.relu() + 1, backend=backend, dynamic=False)
    for rows in (3, 4, 3):
        x = torch.randn(rows, 5)
        assert_close(compiled(x), x.relu() + 1)
    assert graphs_compiled() == 2


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_gradient_modes(mode: Callable[[], Any], backend: str) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
    compiled = torch.compile(model, backend=backend)
    x = torch.randn(3, 8)
    with mode():
        actual, expected = compiled(x), model(x)
    assert_close(actual, expected)
    assert actual.requires_grad == expected.requires_grad
    assert actual.is_inference() == expected.is_inference()


def test_the_same_model_in_all_gradient_modes(backend: str) -> None:
    model = nn.Linear(8, 8)
    compiled = torch.compile(model, backend=backend)
    x = torch.randn(3, 8)
    for mode in (torch.no_grad, torch.enable_grad, torch.inference_mode, torch.no_grad):
        with mode():
            assert_close(compiled(x), model(x))


def test_autocast(backend: str) -> None:
    case = zoo.bert(small=True)
    compiled = torch.compile(case.model, backend=backend, fullgraph=True)
    with torch.no_grad():
        exact = case.model.double()(*case.args)
        case.model.float()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            expected, actual = case.model(*case.args), compiled(*case.args)
    assert any(leaf.dtype == torch.bfloat16 for leaf in actual.values())
    assert_close(actual, expected, exact)


def test_calls_from_several_threads(backend: str) -> None:
    model = zoo.mlp(blocks=2).model
    compiled = torch.compile(model, backend=backend)
    inputs = [torch.randn(4, 64) for _ in range(4)]
    with torch.no_grad():
        expected = [model(x) for x in inputs]
        assert_close(compiled(inputs[0]), expected[0])
    wrong: list[str] = []

    def work(number: int) -> None:
        with torch.no_grad():
            for _ in range(50):
                try:
                    assert_close(compiled(inputs[number]), expected[number])
                except Exception as error:  # shown by the main thread
                    wrong.append(f"thread {number}: {error}")
                    return

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_first_calls_from_several_threads(backend: str) -> None:
    inputs = [torch.randn(2 + number, 8) for number in range(3)]
    results: list[Tensor | None] = [None] * 3

    def work(number: int) -> None:
        scale = number + 1
        compiled = torch.compile(lambda x: (x * scale).softmax(-1), backend=backend)
        results[number] = compiled(inputs[number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_close(results, [(x * (n + 1)).softmax(-1) for n, x in enumerate(inputs)])


def test_the_number_of_threads_can_change_between_calls(backend: str) -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        return torch.softmax(x @ y, dim=-1).sum(0)

    x, y = torch.randn(200, 64), torch.randn(64, 300)
    expected = function(x, y)
    compiled = torch.compile(function, backend=backend)
    for threads in (1, 2, 1):
        torch.set_num_threads(threads)
        assert_close(compiled(x, y), expected)


def test_mutated_arguments(backend: str) -> None:
    def function(x: Tensor, out: Tensor) -> Tensor:
        out[1:3] = x.sum(0)
        x.mul_(2)
        return out + 1

    states = []
    for run in (torch.compile(function, backend=backend), function):
        x, out = torch.arange(12.0).reshape(3, 4), torch.zeros(5, 4)
        states.append((run(x, out), x, out))
    assert_close(*states)


def test_results_that_alias(backend: str) -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        y = x + 1
        return y, y.t(), x, x[0]

    x = torch.randn(3, 4)
    first, transposed, same, row = torch.compile(function, backend=backend)(x)
    assert same is x
    assert transposed.data_ptr() == first.data_ptr()
    assert row.data_ptr() == x.data_ptr()
    assert_close((first, transposed, same, row), function(x))


def test_results_that_are_not_tensors(backend: str) -> None:
    def function(x: Tensor) -> dict[str, Any]:
        return {"value": x * 2, "size": x.shape[0] * 3, "none": None, "text": "as it is"}

    result = torch.compile(function, backend=backend, dynamic=True)(torch.ones(4, 2))
    assert (result["size"], result["none"], result["text"]) == (12, None, "as it is")
    assert torch.equal(result["value"], torch.full((4, 2), 2.0))


def test_results_of_earlier_calls_keep_their_values(backend: str) -> None:
    compiled = torch.compile(lambda x: x.exp().sum(1), backend=backend)
    inputs = [torch.randn(6, 6) for _ in range(3)]
    results = [compiled(x) for x in inputs]
    assert_close(results, [x.exp().sum(1) for x in inputs])


def test_marked_sizes_that_the_model_makes_equal(backend: str) -> None:
    """Each of two equal sizes comes as an integer of its own, by a name with dots."""

    def function(batch: dict[str, Tensor]) -> Tensor:
        return (batch["left"] @ batch["right"].T) * batch["left"].shape[0]

    counters.clear()
    compiled = torch.compile(function, backend=backend, fullgraph=True, dynamic=True)
    for rows, columns in ((3, 8), (5, 9)):
        given = {"left": torch.randn(rows, columns), "right": torch.randn(4, columns)}
        for tensor in given.values():
            torch._dynamo.mark_dynamic(tensor, 1)
        assert_close(compiled(given), function(given))
    assert graphs_compiled() == 1
