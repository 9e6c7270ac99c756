"""Compiled attention against torch's scaled_dot_product_attention."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention as eager

from kernelmill.core.target.machine import Machine, profile
from kernelmill.lower.templates.attention.packed import Packed
from kernelmill.lower.templates.attention.streamed import Streamed
from tests.tolerances import assert_close
from tests.unit.codegen.native import TARGETS
from tests.unit.lower.launched import assert_margins_untouched, interpret, surrounded
from tests.unit.lower.templates.attention.compiled import Attention

INF, NAN = float("inf"), float("nan")

SHAPES = [
    # B, H, G, M, N, D, E
    (1, 2, 2, 128, 128, 64, 64),
    (2, 3, 3, 33, 70, 64, 64),
    (1, 2, 2, 20, 300, 32, 48),
    (1, 2, 2, 300, 20, 16, 16),
    (1, 1, 1, 197, 197, 80, 80),
    (1, 2, 1, 12, 600, 128, 96),
    (2, 1, 1, 9, 1, 8, 8),
    (1, 1, 1, 50, 17, 13, 7),
    (1, 1, 1, 10, 0, 8, 8),
    (1, 8, 8, 1, 512, 64, 64),
    (1, 8, 2, 1, 77, 64, 64),
    (2, 6, 2, 1, 300, 40, 24),
    (1, 16, 2, 2, 33, 128, 128),
    (1, 2, 2, 5, 530, 13, 7),
    (1, 3, 3, 8, 64, 64, 64),
    (1, 2, 2, 1, 0, 8, 8),
    (1, 2, 2, 1, 1, 1, 1),
    (0, 2, 2, 20, 20, 8, 8),
    (2, 2, 2, 0, 5, 8, 8),
]


def tensors(
    shape: tuple[int, ...], dtype: torch.dtype = torch.float32, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    b, h, g, m, n, d, e = shape
    generator = torch.Generator().manual_seed(seed)

    def part(heads: int, rows: int, depth: int) -> Tensor:
        # As a projection leaves them: heads inside rows.
        made = torch.randn(b, rows, heads, depth, generator=generator).to(dtype)
        return surrounded(made).transpose(1, 2)

    return part(h, m, d), part(g, n, d), part(g, n, e)


def random_mask(kind: str, shape: tuple[int, ...]) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    keep = torch.rand(shape, generator=generator) < 0.6
    if kind == "keep":
        return surrounded(keep)
    return surrounded(torch.where(keep, torch.randn(shape, generator=generator), -INF))


def check(
    q: Tensor, k: Tensor, v: Tensor, result: Tensor, mask: Tensor | None = None, **options: Any
) -> None:
    gqa = q.shape[1] != k.shape[1]
    wide = mask.double() if mask is not None and mask.dtype != torch.bool else mask
    expected = eager(q, k, v, attn_mask=mask, enable_gqa=gqa, **options)
    exact = eager(q.double(), k.double(), v.double(), attn_mask=wide, enable_gqa=gqa, **options)
    assert_close(result.contiguous(), expected.contiguous(), exact)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes(shape: tuple[int, ...]) -> None:
    q, k, v = tensors(shape)
    attention = Attention(q, k, v)
    check(q, k, v, attention())
    assert_margins_untouched(attention.result)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_causal_keeps_the_first_keys(shape: tuple[int, ...]) -> None:
    q, k, v = tensors(shape)
    check(q, k, v, Attention(q, k, v, causal=True)(), is_causal=True)


@pytest.mark.parametrize("kind", ["keep", "add"])
@pytest.mark.parametrize("shape", SHAPES[1:12], ids=str)
def test_masks(shape: tuple[int, ...], kind: str) -> None:
    b, h, _, m, n, *_ = shape
    q, k, v = tensors(shape)
    for mask_shape in ((b, h, m, n), (b, 1, 1, n), (1, 1, m, 1)):
        mask = random_mask(kind, mask_shape)
        check(q, k, v, Attention(q, k, v, mask)(), mask)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("shape", [SHAPES[1], SHAPES[5], SHAPES[11]], ids=str)
def test_dtypes(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    q, k, v = tensors(shape, dtype)
    check(q, k, v, Attention(q, k, v)())
    mask = random_mask("add", (shape[3], shape[4])).to(dtype)
    check(q, k, v, Attention(q, k, v, mask)(), mask)


@pytest.mark.parametrize("rows", [1, 9, 70])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_mask_of_float32_is_not_rounded(rows: int, dtype: torch.dtype) -> None:
    """Its lowest number would be -inf in a half type, and large ones lose their differences."""
    q, k, v = tensors((1, 2, 2, rows, 40, 16, 16), dtype)
    lowest = torch.full((rows, 40), torch.finfo(torch.float32).min)
    for mask in (random_mask("add", (rows, 40)) - 200, lowest):
        check(q, k, v, Attention(q, k, v, mask)(), mask)


@pytest.mark.parametrize("level", [2, 3])
@pytest.mark.parametrize("shape", [SHAPES[1], SHAPES[7], SHAPES[11]], ids=str)
def test_narrow_vectors(shape: tuple[int, ...], level: int) -> None:
    q, k, v = tensors(shape)
    check(q, k, v, Attention(q, k, v, target=profile(f"x86-64-v{level}"))())


@pytest.mark.parametrize("shape", [SHAPES[0], SHAPES[1], SHAPES[2], SHAPES[11]], ids=str)
def test_keys_stored_the_other_way_round(shape: tuple[int, ...]) -> None:
    q, k, v = tensors(shape)
    k = surrounded(k.transpose(2, 3).contiguous()).transpose(2, 3)
    assert k.stride(2) == 1
    check(q, k, v, Attention(q, k, v)())


@pytest.mark.parametrize("causal", [False, True])
def test_one_program_serves_all_lengths(causal: bool) -> None:
    attention = Attention(*tensors((1, 2, 2, 40, 40, 32, 32)), causal=causal, dynamic="mn")
    few = [(rows, 37) for rows in range(10)]
    for m, n in (*few, (1, 300), (7, 5), (133, 129), (300, 513), (64, 256), (0, 3), (3, 0)):
        generator = torch.Generator().manual_seed(m)
        # The strides that the program was made for: heads 32 and rows 64 elements apart.
        q, k, v, o = (
            surrounded(torch.randn(1, rows, 2, 32, generator=generator)).transpose(1, 2)
            for rows in (m, n, n, m)
        )
        check(q, k, v, attention(q, k, v, o), is_causal=causal)
        assert_margins_untouched(o)


@pytest.mark.parametrize("kind", ["keep", "add"])
def test_few_rows_of_one_program_are_streamed_and_many_packed(kind: str) -> None:
    shape = (1, 4, 2, 3, 300, 32, 32)
    mask = random_mask(kind, (1, 4, 3, 300))
    attention = Attention(*tensors(shape), mask, dynamic="m")
    kinds = [type(one.schedule) for one in attention.classes]
    assert kinds == [Streamed, Streamed, Streamed, Packed]
    assert attention.kernel.kernel.classes == ("s0 <= 1", "s0 <= 2", "s0 <= 8", "s0 > 8")
    q, k, v = attention.tensors["q"], attention.tensors["k"], attention.tensors["v"]
    check(q, k, v, attention(), mask)
    compiled = attention.result.clone()
    attention.result.zero_()
    interpret(attention.kernel.kernel, attention.tensors, {"s0": 3})
    assert_close(attention.result.contiguous(), compiled.contiguous())


@pytest.mark.parametrize("rows", [1, 3])
def test_one_decoder_serves_all_cache_lengths(rows: int) -> None:
    attention = Attention(*tensors((1, 4, 2, rows, 40, 32, 32)), dynamic="n")
    assert isinstance(attention.schedule, Streamed)
    for n in (0, 1, 15, 256, 257, 1000):
        generator = torch.Generator().manual_seed(n)
        q, k, v, o = (
            surrounded(torch.randn(1, length, heads, 32, generator=generator)).transpose(1, 2)
            for length, heads in ((rows, 4), (n, 2), (n, 2), (rows, 4))
        )
        check(q, k, v, attention(q, k, v, o))
        assert_margins_untouched(o)


@pytest.mark.parametrize("target", [Machine(isa) for isa in TARGETS.values()], ids=str)
def test_deep_heads_get_shorter_blocks(target: Machine) -> None:
    shallow = Attention(*tensors((1, 1, 1, 64, 512, 64, 64)), target=target).schedule
    q, k, v = tensors((1, 1, 1, 64, 512, 512, 512))
    deep = Attention(q, k, v, target=target)
    assert deep.schedule.keys < shallow.keys
    check(q, k, v, deep())


def test_scale() -> None:
    q, k, v = tensors(SHAPES[1])
    check(q, k, v, Attention(q, k, v, scale=0.3)(), scale=0.3)


@pytest.mark.parametrize("rows", [1, 20])
@pytest.mark.parametrize("keys", [24, 600])
def test_rows_without_keys_are_zero(rows: int, keys: int) -> None:
    q, k, v = tensors((1, 2, 2, rows, keys, 32, 32))
    keep = torch.ones(2, rows, keys, dtype=torch.bool)
    keep[1, rows // 2] = False
    for mask in (keep, torch.where(keep, 0.0, -INF)):
        result = Attention(q, k, v, mask)()
        assert (result[0, 1, rows // 2] == 0).all()
        check(q, k, v, result, mask)


@pytest.mark.parametrize("rows", [1, 20])
@pytest.mark.parametrize("keys", [24, 600])
def test_a_mask_of_lowest_numbers_averages(rows: int, keys: int) -> None:
    q, k, v = tensors((1, 2, 2, rows, keys, 32, 32))
    mask = torch.full((rows, keys), torch.finfo(torch.float32).min)
    check(q, k, v, Attention(q, k, v, mask)(), mask)


@pytest.mark.parametrize("rows", [1, 20])
@pytest.mark.parametrize("keys", [24, 600])
@pytest.mark.parametrize("bad", [NAN, INF])
def test_nan_and_infinity_spread_as_in_eager(rows: int, keys: int, bad: float) -> None:
    q, k, v = tensors((1, 2, 2, rows, keys, 32, 32))
    mask = torch.zeros(rows, keys)
    mask[rows // 2, 5] = bad
    result = Attention(q, k, v, mask)()
    assert result[0, 0, rows // 2].isnan().all()
    check(q, k, v, result, mask)
    k[0, 0, keys - 1, 0] = bad
    check(q, k, v, Attention(q, k, v)())
    v[0, 1, 3, 7] = bad
    check(q, k, v, Attention(q, k, v)())


def test_a_nan_key_shows_through_a_mask_but_not_through_causality() -> None:
    q, k, v = tensors((1, 1, 1, 20, 24, 32, 32))
    k[0, 0, 12] = NAN
    keep = torch.ones(20, 24, dtype=torch.bool)
    keep[:, 12] = False
    check(q, k, v, Attention(q, k, v, keep)(), keep)
    check(q, k, v, Attention(q, k, v, causal=True)(), is_causal=True)


def test_error_is_within_twice_eagers() -> None:
    q, k, v = tensors((1, 4, 4, 256, 1024, 64, 64))
    exact = eager(q.double(), k.double(), v.double())
    error = (Attention(q, k, v)().double() - exact).abs().max()
    assert error <= 2 * (eager(q, k, v).double() - exact).abs().max()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [(1, 2, 1, 20, 37, 13, 7), (1, 4, 2, 1, 270, 16, 20)], ids=str)
def test_interpreter_agrees_and_stays_inside_the_buffers(
    shape: tuple[int, ...], causal: bool
) -> None:
    q, k, v = tensors(shape)
    mask = random_mask("keep", (1, shape[1], shape[3], shape[4]))
    attention = Attention(q, k, v, mask, causal=causal, target=profile("x86-64-v3"))
    compiled = attention().clone()
    attention.result.zero_()
    interpret(attention.kernel.kernel, attention.tensors, {})
    assert_close(attention.result.contiguous(), compiled.contiguous())
