"""What operators of torch_npu are said to give, in float64 and by loops. Quantised results are not
rounded here."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Sees = Callable[[int, int, int], bool]
"""Whether query i of sequence b sees key j, of (b, i, j)."""


def norm(x: Tensor, gamma: Tensor, epsilon: float, beta: Tensor | None = None) -> list[Tensor]:
    """(norm, 1 / rms), over the dims of gamma."""
    wide, width = x.double(), gamma.numel()
    rows = wide.reshape(-1, width)
    result, inverse = torch.empty_like(rows), torch.empty(len(rows), dtype=torch.float64)
    for i, row in enumerate(rows):
        inverse[i] = 1 / math.sqrt(sum(v * v for v in row.tolist()) / width + epsilon)
        result[i] = row * inverse[i] * gamma.double().flatten()
        if beta is not None:
            result[i] += beta.double().flatten()
    lead = x.shape[: x.dim() - gamma.dim()]
    return [result.reshape(x.shape), inverse.reshape(*lead, *[1] * gamma.dim())]


def by_row(x: Tensor, smooth: Sequence[Tensor | None]) -> list[Tensor]:
    """(x / scale, scale) with the smooth factors of each row."""
    rows = x.double().reshape(-1, x.shape[-1])
    result, scales = torch.empty_like(rows), torch.empty(len(rows), dtype=torch.float64)
    for i, row in enumerate(rows):
        own = smooth[i] if len(smooth) > 1 else smooth[0]
        row = row if own is None else row * own.double()
        scales[i] = max(map(abs, row.tolist())) / 127
        result[i] = row / scales[i] if scales[i] else 0
    return [result.reshape(x.shape), scales.reshape(x.shape[:-1])]


def rotated(x: Tensor, r1: Tensor, r2: Tensor, interleave: bool) -> Tensor:
    """One number after the other."""
    wide, half = x.double(), x.shape[-1] // 2
    cos, sin = r1.double().expand(x.shape), r2.double().expand(x.shape)
    result = torch.empty_like(wide)
    for i in range(x.shape[-1]):
        if interleave:
            other = -wide[..., i + 1] if i % 2 == 0 else wide[..., i - 1]
        else:
            other = -wide[..., i + half] if i < half else wide[..., i - half]
        result[..., i] = wide[..., i] * cos[..., i] + other * sin[..., i]
    return result


def attention(
    q: Tensor, k: Tensor, v: Tensor, scale: float, sees: Sees, bias: Tensor | None = None,
    sink: Tensor | None = None,
) -> list[Tensor]:  # fmt: skip
    """(result, log of the sum of exponentials, largest score, sum of exponentials of the scores
    less that), of (batch, heads, tokens, width); keys may have fewer heads."""
    q, k, v = q.double(), k.double(), v.double()
    batch, heads, rows, _ = q.shape
    group = heads // k.shape[1]
    out = torch.zeros(batch, heads, rows, v.shape[-1], dtype=torch.float64)
    sums, tops, totals = (torch.full((batch, heads, rows, 1), -math.inf).double() for _ in range(3))
    for b, h, i in torch.cartesian_prod(*map(torch.arange, (batch, heads, rows))).tolist():
        own = h // group
        scores: dict[int, float] = {}
        for j in range(k.shape[2]):
            if sees(b, i, j):
                extra = 0.0 if bias is None else float(bias[b % len(bias), h, i, j])
                scores[j] = float(q[b, h, i] @ k[b, own, j]) * scale + extra
        if not scores:
            continue
        top = max(scores.values())
        powers = {j: math.exp(score - top) for j, score in scores.items()}
        tops[b, h, i], totals[b, h, i] = top, sum(powers.values())
        total = sum(powers.values())
        total += 0.0 if sink is None else math.exp(float(sink[h]) - top)
        sums[b, h, i] = top + math.log(total)
        for j, power in powers.items():
            out[b, h, i] += power / total * v[b, own, j]
    return [out, sums, tops, totals]


def everything(b: int, i: int, j: int) -> bool:
    """No mask."""
    return True


def gating(
    x: Tensor, k: int, bias: Tensor | None, k_group: int, groups: int, mode: int, sigmoid: bool,
    factor: float,
) -> list[Tensor]:  # fmt: skip
    """(weights, experts, scores) by lists that are sorted."""
    weights, chosen, scores = list[list[float]](), list[list[int]](), list[list[float]]()
    for row in x.double().tolist():
        powers = [1 / (1 + math.exp(-a)) if sigmoid else math.exp(a) for a in row]
        own = powers if sigmoid else [p / sum(powers) for p in powers]
        shift = [0.0] * len(own) if bias is None else bias.double().tolist()
        ranked = [a + b for a, b in zip(own, shift, strict=True)]
        size = len(own) // groups
        parts = [sorted(ranked[g * size : (g + 1) * size])[-1 - mode :] for g in range(groups)]
        stay = sorted(range(groups), key=lambda g: -sum(parts[g]))[:k_group]
        inside = [e for e in range(len(own)) if e // size in stay]
        best = sorted(inside, key=lambda e: -ranked[e])[:k]
        total = sum(own[e] for e in best) if sigmoid else 1.0
        weights.append([own[e] / total * factor for e in best])
        chosen.append(best)
        scores.append(own)
    return [torch.tensor(weights).double(), torch.tensor(chosen), torch.tensor(scores).double()]
