"""Models of transformers stay kept, and give eager's results whatever their users do to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

from kernelmill.inference import cache_compile, finish_packing
from kernelmill.runtime.quick import REFUSED
from tests.kept_methods import KEPT, goes_quickly

pytestmark = KEPT
QUICK = goes_quickly()
SIZES: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
    "vocab_size": 64, "max_position_embeddings": 32,
}  # fmt: skip


def bert() -> nn.Module:
    return transformers.BertModel(transformers.BertConfig(**SIZES))


def llama() -> nn.Module:
    config = transformers.LlamaConfig(**SIZES, num_key_value_heads=1)
    return transformers.LlamaForCausalLM(config)


def t5() -> nn.Module:
    config = transformers.T5Config(
        d_model=32, num_layers=2, num_heads=2, d_ff=64, d_kv=16, vocab_size=64
    )
    return transformers.T5EncoderModel(config)


def deberta() -> nn.Module:
    return transformers.DebertaV2Model(transformers.DebertaV2Config(**SIZES))


def gpt2() -> nn.Module:
    config = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=64)
    return transformers.GPT2LMHeadModel(config)


class Wrapped(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner: Any = inner
        self.eval()

    def run(self, tokens: Tensor) -> Tensor:
        return self.inner(input_ids=tokens)[0]

    @property
    def layers(self) -> Any:
        inner = self.inner
        return inner.encoder.layer if hasattr(inner, "encoder") else inner.model.layers


class Adapted(nn.Module):
    """A linear layer with a low-rank addition."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base, self.scale = base, 1.0
        self.down = nn.Parameter(torch.randn(4, base.in_features) * 0.3)
        self.up = nn.Parameter(torch.randn(base.out_features, 4) * 0.3)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + x @ self.down.T @ self.up.T * self.scale


class Bent(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight.sin() * 2


def linears(model: nn.Module) -> list[tuple[nn.Module, str]]:
    found = [(m, n) for m in model.modules() for n, c in m.named_children() if type(c) is nn.Linear]
    return [(owner, name) for owner, name in found if not isinstance(owner, Adapted)]


def linear(model: nn.Module) -> Any:
    owner, name = linears(model)[0]
    return getattr(owner, name)


def set_all(model: nn.Module, names: tuple[str, ...], value: object, kind: type) -> None:
    for module in model.modules():
        for name in names:
            if isinstance(getattr(module, name, None), kind):
                setattr(module, name, value)


def adapt(model: nn.Module) -> None:
    owner, name = linears(model)[0]
    setattr(owner, name, Adapted(getattr(owner, name)))


def unadapt(model: nn.Module) -> None:
    for owner in list(model.modules()):
        for name, layer in list(owner.named_children()):
            if isinstance(layer, Adapted):
                layer.base.weight.add_(layer.up @ layer.down * layer.scale)
                setattr(owner, name, layer.base)


HOOKS: list[Any] = []
FACTORS = ("eps", "variance_epsilon", "scaling")
Edit = Callable[[Wrapped], Any]
EDITS: dict[str, Edit] = {
    "nothing": lambda m: None,
    "other attention": lambda m: m.inner.set_attn_implementation("eager"),
    "attention again": lambda m: m.inner.set_attn_implementation("sdpa"),
    "hook": lambda m: HOOKS.append(
        linear(m).register_forward_hook(lambda module, args, result: result * 1.5)
    ),
    "no hook": lambda m: HOOKS.pop().remove(),
    "hook before": lambda m: HOOKS.append(
        linear(m).register_forward_pre_hook(lambda module, args: (args[0] + 0.5,))
    ),
    "no hook before": lambda m: HOOKS.pop().remove(),
    "adapter": adapt,
    "scale of the adapter": lambda m: set_all(m, ("scale",), 0.3, float),
    "adapter merged": unadapt,
    "state dict": lambda m: m.load_state_dict({k: v * 1.1 for k, v in m.state_dict().items()}),
    "state dict assigned": lambda m: m.load_state_dict(
        {k: v * 0.9 for k, v in m.state_dict().items()}, assign=True
    ),
    "parametrization": lambda m: parametrize.register_parametrization(linear(m), "weight", Bent()),
    "no parametrization": lambda m: parametrize.remove_parametrizations(linear_of(m), "weight"),
    "weight norm": lambda m: parametrizations.weight_norm(linear(m)),
    "no weight norm": lambda m: parametrize.remove_parametrizations(linear_of(m), "weight"),
    "double": lambda m: m.double(),
    "float": lambda m: m.float(),
    "data": lambda m: setattr(linear(m).weight, "data", torch.randn_like(linear(m).weight)),
    "factors": lambda m: set_all(m, FACTORS, 0.1, float),
    "activation": lambda m: set_all(m, ("act_fn", "intermediate_act_fn"), nn.ReLU(), nn.Module),
    "fewer layers": lambda m: m.layers.__delitem__(-1),
    "one layer twice": lambda m: m.layers.append(m.layers[0]),
    "no layer": lambda m: setattr(*linears(m)[0], nn.Identity()),
}


def linear_of(model: nn.Module) -> Any:
    """The one that is parametrized, whose class torch has made."""
    return next(m for m in model.modules() if parametrize.is_parametrized(m))


OF_LLAMA = (
    "other attention", "attention again", "state dict", "double", "float", "data", "factors",
    "activation", "fewer layers", "one layer twice",
)  # fmt: skip
"""Those that meet code of its own; what the others meet is torch's, as for BERT."""


@torch.no_grad()
@pytest.mark.parametrize(("make", "edits"), [(bert, (*EDITS,)), (llama, OF_LLAMA)])
def test_what_users_do_to_a_model(
    make: Callable[[], nn.Module], edits: Sequence[str], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model = Wrapped(make())
    first = cache_compile(model.run, cache_dir=tmp_path)
    for what in edits:
        EDITS[what](model)
        tokens = torch.randint(64, (2, 5))
        expected = model.run(tokens)
        for method in (first, cache_compile(model.run, cache_dir=tmp_path)):
            found = method(tokens)
            assert torch.allclose(found, expected, rtol=1e-4, atol=1e-4), what
    assert first.statistics["uncached"] == 0


@torch.no_grad()
@pytest.mark.parametrize("make", [bert, llama, t5, deberta, gpt2])
def test_a_model_is_kept_and_goes_quickly(make: Callable[[], nn.Module], tmp_path: Path) -> None:
    model, tokens = Wrapped(make()), torch.randint(64, (2, 5))
    for statistics in ({"traced": 1, "loaded": 0}, {"traced": 0, "loaded": 1}):
        method = cache_compile(model.run, cache_dir=tmp_path)
        for _ in range(4):
            finish_packing()
            torch.testing.assert_close(method(tokens), model.run(tokens), rtol=1e-4, atol=1e-4)
        assert method.statistics == {**statistics, "uncached": 0}
        assert any(goes_quickly(method, tokens) for _ in range(20)) == QUICK


def goes_quickly(method: Any, tokens: Tensor) -> bool:
    """Whether a call right after one with all checks does without them. A write to other memory on
    a page of a weight makes one of these refuse, and only one for each end of each weight."""
    method(tokens)
    return method._quick((tokens,)) is not REFUSED
