"""flex_attention: scores that a model's functions modify and mask, in one kernel with the rest."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import (
    AuxRequest,
    BlockMask,
    and_masks,
    create_block_mask,
    flex_attention,
)

from kernelmill.compiler.report import GraphReport
from kernelmill.config import CompilerConfig
from tests.compiled import reported
from tests.tolerances import assert_close, mismatch

Modify = Callable[..., Tensor]

ROWS = 200
SLOPES = torch.rand(4)
DOCUMENTS = torch.randint(0, 3, (2, ROWS)).sort().values
TABLE = torch.randn(4, 2 * ROWS)
BIAS = torch.randn(2, 4, ROWS, ROWS)
FACTOR = torch.tensor(0.5)


def capped(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return torch.tanh(score / 5.0) * 5.0


def sloped(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return score * FACTOR + SLOPES[h] * (j - i)


def relative(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return score + TABLE[h, i - j + ROWS]


def raised(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return score * (TABLE.amax() + 1) + SLOPES[1:].exp()[h % 3]


def biased(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return torch.where(i == j, score, score + BIAS[b, h, i, j])


def causal(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return i >= j


def ahead(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return (j - 5 < i) & (j != 50) & (h < 3)


def window(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return (i >= j) & (i - j < 40)


def documents(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return DOCUMENTS[b, i] == DOCUMENTS[b, j]


def per_head(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return (j < 30 * (h + 1)) & (i != 7)  # which leaves nothing of row 7


def operands(
    dtype: torch.dtype = torch.float32, rows: int = ROWS, keys: int = ROWS, depth: int = 16,
    shared: int = 4, batch: int = 2,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    q = torch.randn(batch, rows, 4, depth).to(dtype).transpose(1, 2)
    k, v = (torch.randn(batch, keys, shared, depth).to(dtype).transpose(1, 2) for _ in "kv")
    return q, k, v


def defined(
    q: Tensor, k: Tensor, v: Tensor, score_mod: Modify | None, mask_mod: Modify | None
) -> tuple[Tensor, Tensor]:
    """The result and the logarithm of the sum of exponentials, in float64."""
    q, k, v = (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    at = [torch.arange(n).reshape([-1 if d == x else 1 for d in range(4)])
          for x, n in enumerate(scores.shape)]  # fmt: skip
    if score_mod is not None:
        scores = score_mod(scores, *at)
    if mask_mod is not None:
        scores = torch.where(mask_mod(*at), scores, -torch.inf)
    weights = torch.nan_to_num(scores.softmax(-1))
    return weights @ v, scores.logsumexp(-1)


def masked(mask_mod: Modify | None, q: Tensor, k: Tensor, size: int = 128) -> BlockMask | None:
    if mask_mod is None:
        return None
    return create_block_mask(
        mask_mod, q.shape[0], q.shape[1], q.shape[2], k.shape[2], device="cpu", BLOCK_SIZE=size
    )


def compiled(function: Callable[..., Any], *, dynamic: bool | None = False) -> Any:
    """The function compiled, and the reports of its graphs."""
    torch._dynamo.reset()
    backend, reports = reported()
    return torch.compile(function, backend=backend, dynamic=dynamic, fullgraph=True), reports


def assert_one_kernel(reports: list[GraphReport]) -> None:
    for report in reports:
        assert not report.fallbacks
        assert [k.operators[0] for k in report.kernels].count("flex_attention") == 1


CASES: dict[str, tuple[Modify | None, Modify | None]] = {
    "plain": (None, None),
    "capped": (capped, causal),
    "sloped": (sloped, None),
    "relative": (relative, window),
    "biased": (biased, per_head),
    "raised": (raised, causal),
    "ahead": (capped, ahead),
    "documents": (None, and_masks(documents, causal)),
}


@pytest.mark.parametrize("size", [128, 32])
@pytest.mark.parametrize("name", CASES)
def test_functions_of_scores(name: str, size: int) -> None:
    score_mod, mask_mod = CASES[name]
    q, k, v = operands()
    block_mask = masked(mask_mod, q, k, size)
    function, reports = compiled(
        lambda q, k, v: flex_attention(q, k, v, score_mod=score_mod, block_mask=block_mask) + 1
    )
    with torch.no_grad():
        got = function(q, k, v)
    exact = defined(q, k, v, score_mod, mask_mod)[0] + 1
    assert_close(got, exact.float())
    assert got.stride() == (ROWS * 64, 16, 64, 1)  # as the query's
    assert_one_kernel(reports)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_dtypes(dtype: torch.dtype) -> None:
    q, k, v = operands(dtype)
    block_mask = masked(causal, q, k)
    plain = partial(flex_attention, score_mod=sloped, block_mask=block_mask, return_lse=True)
    function, reports = compiled(plain)
    with torch.no_grad():
        got, wanted, exact = function(q, k, v), plain(q, k, v), defined(q, k, v, sloped, causal)
    assert not mismatch(got[0], wanted[0], exact[0])
    torch.testing.assert_close(got[1], wanted[1].float(), rtol=1e-5, atol=1e-5)
    assert_one_kernel(reports)


@pytest.mark.parametrize(
    ("rows", "keys", "depth", "shared"),
    [(1, 77, 16, 2), (5, 300, 13, 4), (33, 70, 40, 1), (130, 129, 7, 2), (3, 1, 1, 4)],
)
def test_sizes(rows: int, keys: int, depth: int, shared: int) -> None:
    def seen(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (i + 3 >= j) | (h == 1)

    q, k, v = operands(rows=rows, keys=keys, depth=depth, shared=shared)
    block_mask = masked(seen, q, k, 16)
    function, reports = compiled(
        partial(flex_attention, score_mod=capped, block_mask=block_mask, enable_gqa=True)
    )
    with torch.no_grad():
        assert_close(function(q, k, v), defined(q, k, v, capped, seen)[0].float())
    assert_one_kernel(reports)


def test_the_normaliser_and_rows_without_keys() -> None:
    q, k, v = operands()
    block_mask = masked(per_head, q, k)
    function, reports = compiled(
        partial(flex_attention, block_mask=block_mask, return_aux=AuxRequest(lse=True))
    )
    with torch.no_grad():
        got, more = function(q, k, v)
    exact, total = defined(q, k, v, None, per_head)
    assert_close(got, exact.float())
    assert_close(more.lse, total.float())
    assert torch.equal(got[:, :, 7], torch.zeros(2, 4, 16))
    assert torch.all(more.lse[:, :, 7] == -torch.inf)
    assert_one_kernel(reports)


@pytest.mark.parametrize("rows", [256, 4])
def test_hidden_blocks_are_not_read(rows: int) -> None:
    def late(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return j >= 128

    q, k, v = operands(rows=rows, keys=256)
    block_mask = masked(late, q, k, 64)
    k[:, :, :128], v[:, :, :128] = torch.nan, torch.nan
    function, _ = compiled(partial(flex_attention, block_mask=block_mask))
    with torch.no_grad():
        got = function(q, k, v)
    assert_close(got, defined(q, k[:, :, 128:], v[:, :, 128:], None, None)[0].float())


def test_sizes_that_vary() -> None:
    def attention(q: Tensor, k: Tensor, v: Tensor, block_mask: BlockMask) -> Tensor:
        return flex_attention(q, k, v, score_mod=sloped, block_mask=block_mask)

    function, reports = compiled(attention, dynamic=True)
    with torch.no_grad():
        for rows in (190, 64, 129, 6):
            q, k, v = operands(rows=rows, keys=rows + 7)
            block_mask = masked(causal, q, k)
            got = function(q, k, v, block_mask)
            assert_close(got, defined(q, k, v, sloped, causal)[0].float())
    assert_one_kernel(reports)
    assert len(reports) <= 2


def test_a_mask_of_the_arguments() -> None:
    """As transformers has it: a mask that looks up which keys of a batch are padding."""

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(16, 16)

        def forward(self, x: Tensor, seen: Tensor) -> Tensor:
            def kept(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
                return seen[b, j] & (i >= j)

            block_mask = create_block_mask(kept, 2, None, ROWS, ROWS, device="cpu")
            for _ in range(2):
                x = flex_attention(self.linear(x), x, x, block_mask=block_mask)
            return x

    module, x = Attention().eval(), operands()[0]
    seen = torch.arange(ROWS) >= torch.tensor([[0], [150]])
    function, reports = compiled(module)

    def kept(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return seen[b, j] & (i >= j)

    with torch.no_grad():
        wanted = x
        for _ in range(2):
            wanted = defined(module.linear(wanted), wanted, wanted, None, kept)[0].float()
        assert_close(function(x, seen), wanted)
    assert not any("flex" in target for report in reports for target, *_ in report.fallbacks)


def test_one_block_of_few_keys() -> None:
    q, k, v = operands()

    def first(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        counts = torch.ones(1, 1, 1, dtype=torch.int32)
        numbers = torch.zeros(1, 1, 1, 1, dtype=torch.int32)
        blocks = BlockMask.from_kv_blocks(
            counts, numbers, BLOCK_SIZE=(1 << 30, 16), seq_lengths=(ROWS, ROWS)
        )
        return flex_attention(q, k, v, block_mask=blocks)

    function, _ = compiled(first)
    with torch.no_grad():
        got = function(q, k, v)
    assert_close(got, defined(q, k[:, :, :16], v[:, :, :16], None, None)[0].float())


@pytest.mark.parametrize("dynamic", [False, True])
def test_captured_operator_by_operator(dynamic: bool) -> None:
    torch._dynamo.reset()
    config = CompilerConfig()
    config.mode = "reduce-overhead"
    backend, reports = reported(config=config)
    q, k, v = operands()
    block_mask = masked(window, q, k)
    function = torch.compile(
        lambda q, k, v: flex_attention(q, k, v, score_mod=sloped, block_mask=block_mask) * 2,
        backend=backend, dynamic=dynamic,
    )  # fmt: skip
    with torch.no_grad():
        for _ in range(2):
            assert_close(function(q, k, v), 2 * defined(q, k, v, sloped, window)[0].float())
    assert reports and not any(report.fallbacks for report in reports)


def test_a_list_of_blocks_that_there_are_not() -> None:
    q, k, v = operands()
    block_mask = masked(causal, q, k)
    assert block_mask is not None
    function, _ = compiled(lambda q, k, v, lists: flex_attention(q, k, v, block_mask=lists))
    with torch.no_grad():
        function(q, k, v, block_mask)
        block_mask.kv_indices.fill_(5)
        with pytest.raises(IndexError, match="flex_attention"):
            function(q, k, v, block_mask)


def test_a_function_that_needs_more_than_elements_runs_in_torch() -> None:
    def summed(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return score + BIAS[b, h, i].sum() * 0.01

    q, k, v = operands()
    function, reports = compiled(
        lambda q, k, v: flex_attention(q * 2, k, v, score_mod=summed).relu()
    )
    with torch.no_grad():
        wanted = flex_attention(q * 2, k, v, score_mod=summed).relu()
        assert_close(function(q, k, v), wanted)
    (report,) = reports
    assert [target for target, *_ in report.fallbacks] == ["higher_order.flex_attention"]
    assert report.kernels


def test_a_model_of_transformers() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=100, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    ids = torch.randint(0, 100, (2, 40))
    seen = (torch.arange(40) >= torch.tensor([[7], [0]])).long()
    torch._dynamo.reset()
    backend, reports = reported()
    with torch.no_grad():
        model.set_attn_implementation("sdpa")
        wanted = model(ids, attention_mask=seen, use_cache=False).logits
        model.set_attn_implementation("flex_attention")
        function = torch.compile(model, backend=backend)
        got = function(ids, attention_mask=seen, use_cache=False).logits
    assert_close(got[1], wanted[1])
    assert_close(got[0, 7:], wanted[0, 7:])  # what a query of padding sees is left open
    assert not any(report.fallbacks for report in reports)
    kernels = [k for report in reports for k in report.kernels if "flex_attention" in k.operators]
    assert sum(kernel.launches for kernel in kernels) == 2
