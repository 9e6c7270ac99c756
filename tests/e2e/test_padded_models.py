"""Real models, traced once, whose graphs run on padded arguments: eager's results, unasked for."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from kernelmill.compiler.pipeline import Compiler
from kernelmill.core.errors import PaddingError
from kernelmill.graph.interpreter import run_graph
from kernelmill.graph.ir import DimInput, Graph
from kernelmill.passes.padding.analysis import padding_of
from kernelmill.runtime.gears.padded_calls import Resizing
from tests import zoo
from tests.tolerances import assert_close

MULTIPLE = 16


class PaddedProgram:
    """A program that pads every size to a multiple of 16, and runs its graph node by node."""

    def __init__(self, graph: Graph, masks: frozenset[str]) -> None:
        self.graph = graph
        self.symbols = [
            (number, entry.symbol.name)
            for number, entry in enumerate(graph.inputs)
            if isinstance(entry, DimInput)
        ]
        names = frozenset(name for _, name in self.symbols)
        self.padding = padding_of(graph, names, masks)
        self.gears: list[dict[str, int]] = []

    def call(self, *args: Any) -> Any:
        sizes = {name: args[number] for number, name in self.symbols}
        gear = {name: -(-size // MULTIPLE) * MULTIPLE for name, size in sizes.items()}
        self.gears.append(gear)
        resizing = Resizing(self.padding, sizes, gear)
        return resizing.cut(run_graph(self.graph, resizing.pad(args)))


class MeanPooling(nn.Module):
    """Sentence embeddings as sentence-transformers makes them."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        states = self.model(input_ids, attention_mask).last_hidden_state
        weights = attention_mask.unsqueeze(-1).expand(states.size()).float()
        mean = (states * weights).sum(1) / torch.clamp(weights.sum(1), min=1e-9)
        return states, nn.functional.normalize(mean, p=2, dim=1)


class Logits(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.model(input_ids, attention_mask=attention_mask, use_cache=False).logits


class Decoded(nn.Module):
    """An encoder, and a decoder with a causal mask of its own."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor, target: Tensor) -> Tensor:
        return self.model(input_ids, attention_mask, target, use_cache=False).last_hidden_state


def _translations(batch: int, length: int) -> tuple[Tensor, Tensor, Tensor]:
    return (*_sentences(batch, length), *_tokens(batch, length + 5))


def _sentences(batch: int, length: int) -> tuple[Tensor, Tensor]:
    lengths = (length - torch.arange(batch)).clamp(min=1)[:, None]
    return torch.randint(1, 99, (batch, length)), (torch.arange(length)[None] < lengths).long()


def _tokens(batch: int, length: int) -> tuple[Tensor]:
    return (torch.randint(1, 99, (batch, length)),)


Inputs = Callable[[int, int], tuple[Tensor, ...]]
CASES: dict[str, tuple[Callable[[], nn.Module], Inputs, list[str]]] = {
    "bert with a mask and mean pooling": (lambda: MeanPooling(zoo.bert().model), _sentences, []),
    "bert whose mask is a large number": (
        lambda: MeanPooling(zoo.bert(attention="eager").model), _sentences, ["attention_mask"]
    ),
    "causal gpt2": (lambda: Logits(zoo.gpt2().model), _tokens, []),
    "t5 whose masks are large numbers": (
        lambda: Decoded(zoo.t5().model), _translations, ["attention_mask"]
    ),
    "causal gpt2 with a mask": (lambda: Logits(zoo.gpt2().model), _sentences, []),
}  # fmt: skip
"""Name: the model, its arguments, and the masks that have to be named."""


@pytest.mark.parametrize("name", CASES)
def test_padded_calls_equal_eager(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[PaddedProgram] = []
    rounded: list[set[int]] = []
    build, inputs, masks = CASES[name]

    def padded(_: Compiler, graph: Graph) -> SimpleNamespace:
        if masks:
            with pytest.raises(PaddingError, match="name the argument that masks padding"):
                PaddedProgram(graph, frozenset())
        made.append(PaddedProgram(graph, frozenset(masks)))
        return SimpleNamespace(program=made[-1])

    monkeypatch.setattr(Compiler, "compile", padded)
    monkeypatch.setenv("KERNELMILL_STRICT", "1")
    model = build()
    compiled = torch.compile(model, backend="kernelmill", fullgraph=True)
    with torch.no_grad():
        for batch, length in ((3, 7), (2, 16), (5, 20), (17, 3)):
            args = inputs(batch, length)
            rounded.append({-(-n // MULTIPLE) * MULTIPLE for arg in args for n in arg.shape})
            for arg in args:
                torch._dynamo.mark_dynamic(arg, 0)
                torch._dynamo.mark_dynamic(arg, 1)
            assert_close(compiled(*args), model(*args))
    assert len(made) == 1
    assert [set(gear.values()) for gear in made[0].gears] == rounded
