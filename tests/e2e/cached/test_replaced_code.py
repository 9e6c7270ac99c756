"""Code of torch's that is replaced at run time, as adapters and quantisers do: in a running process
and on the entries that another has left."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import kernelmill
from kernelmill.inference import cache_compile
from tests.kept_methods import KEPT

pytestmark = KEPT


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))

    def run(self, x: Any) -> Any:
        return self.layers(x).sigmoid() + 1.0


class Attention(nn.Module):
    """Dynamo's graph calls the function in which the operator is."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def run(self, x: Any) -> Any:
        return self.attention(x, x, x, need_weights=False)[0]


def threefold(original: Any, factor: float = 3.0) -> Any:
    """Has the name of the original."""

    @wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs) * factor

    return wrapper


PLACES = {
    "a method of a module": (nn.Linear, "forward"),
    "a method that runs others": (nn.Sequential, "forward"),
    "what a method calls": (F, "layer_norm"),
    "what a function in the graph calls": (torch, "layer_norm"),
    "what is called there by its name": (F, "scaled_dot_product_attention"),
    "a method of tensors": (torch.Tensor, "sigmoid"),
    "an operator of tensors": (torch.Tensor, "__add__"),
}


UNSEEN_BY_DYNAMO = "what a method calls", "a method of tensors"
"""Where torch.compile with AOTAutograd computes something else than eager."""


def by_torch(model: Any, x: Any) -> Any:
    torch.compiler.reset()
    return torch.compile(model.run, backend="aot_eager", fullgraph=True)(x)


def by_eager(model: Any, x: Any) -> Any:
    return model.run(x)


def check_both_ways(
    model: Any, swap: Callable[[int], None], folder: Path, expected: Callable[[Any, Any], Any]
) -> None:
    """`swap` puts the first or second code there: a running method notices, and each finds its own
    entry, as the next process does."""
    x = torch.randn(2, 3, 4)
    running = cache_compile(model.run, cache_dir=folder)
    with torch.no_grad():
        for way in (0, 1):
            swap(way)
            for _ in range(2):
                torch.testing.assert_close(running(x), expected(model, x))
            assert running.statistics["traced"] == way + 1
        for way in (0, 1):
            swap(way)
            loaded = cache_compile(model.run, cache_dir=folder)
            torch.testing.assert_close(loaded(x), expected(model, x))
            assert loaded.statistics == {"loaded": 1, "traced": 0, "uncached": 0}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("first_replaced", [False, True])
def test_a_function_that_is_replaced_is_noticed(
    place: str, first_replaced: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, name = PLACES[place]
    replaced = threefold(getattr(owner, name))

    def swap(way: int) -> None:
        monkeypatch.undo()
        if (way == 1) != first_replaced:
            monkeypatch.setattr(owner, name, replaced)

    model = Attention() if name == "scaled_dot_product_attention" else Model()
    check_both_ways(model, swap, tmp_path, by_torch if place in UNSEEN_BY_DYNAMO else by_eager)


def linear_forward(self: Any, input: Any) -> Any:
    return torch._C._nn.linear(input, self.weight, self.bias) * 3.0


def layer_norm(input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: Any) -> Any:
    return input * 3.0


@pytest.mark.parametrize(
    ("function", "other"), [(nn.Linear.forward, linear_forward), (F.layer_norm, layer_norm)]
)
def test_code_that_is_replaced_in_its_function_is_noticed(
    function: Any, other: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def swap(way: int) -> None:
        monkeypatch.undo()
        if way:
            monkeypatch.setattr(function, "__code__", other.__code__)

    check_both_ways(Model(), swap, tmp_path, by_eager)


SCRIPT = f"""
import json, sys, torch, torch.nn.functional as F
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
from tests.e2e.cached.test_replaced_code import Model, cache_compile, threefold
if sys.argv[1] != "clean":
    torch.nn.Linear.forward = threefold(torch.nn.Linear.forward, float(sys.argv[1]))
    torch.layer_norm = threefold(torch.layer_norm)
torch.manual_seed(0)
model, x = Model(), torch.randn(2, 3, 4)
cached = cache_compile(model.run, cache_dir="cache")
with torch.no_grad():
    torch.testing.assert_close(cached(x), model.run(x))
print(json.dumps(cached.statistics))
"""


@pytest.mark.parametrize("ways", [("3.0", "clean"), ("clean", "3.0"), ("3.0", "2.0")])
def test_each_process_finds_the_entry_of_its_own_code(
    ways: tuple[str, str], fresh: Any, tmp_path: Path
) -> None:
    """With the code of torch, or with a function in its place by such a factor."""
    (tmp_path / "script.py").write_text(SCRIPT)
    found = [json.loads(fresh.output("script.py", way, cwd=tmp_path)) for way in (*ways, ways[0])]
    assert [(each["traced"], each["loaded"]) for each in found] == [(1, 0), (1, 0), (0, 1)]


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def tripled(x: torch.Tensor) -> torch.Tensor:
    return x * 3


class CallsCompiled(torch.nn.Module):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.inner = kernelmill.compile(doubled, cache_dir=folder)
        self.run = cache_compile(self.step, cache_dir=folder)

    def step(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + 1


@torch.no_grad()
def test_another_compiled_function_under_an_attribute_is_noticed(tmp_path: Path) -> None:
    x = torch.ones(2)
    for _ in range(2):  # the second loads what the first has kept
        model = CallsCompiled(tmp_path)
        assert model.run(x).tolist() == [3.0, 3.0]
        model.inner = kernelmill.compile(tripled, cache_dir=tmp_path)
        assert model.run(x).tolist() == [4.0, 4.0]
