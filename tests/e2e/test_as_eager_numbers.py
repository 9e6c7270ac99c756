"""Numbers, dtypes and indices in which compilers differ from eager: promotion, quotients, powers,
ties, NaN and infinities, scans, what falls outside of slices, writes by index."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.e2e.as_eager import differences

fn, aten = torch.nn.functional, torch.ops.aten
NAN, INF = math.nan, math.inf
I64, I32, I16, I8 = torch.int64, torch.int32, torch.int16, torch.int8
U8, BOOL, F64, F16, BF16 = torch.uint8, torch.bool, torch.float64, torch.float16, torch.bfloat16
LAST = torch.channels_last

floats = torch.randn
Row = tuple[Callable[..., Any], Callable[[], Sequence[Any]]]


def ints(*shape: int, low: int = -9, high: int = 9, dtype: torch.dtype = I64) -> Tensor:
    return torch.randint(low, high, shape, dtype=dtype)


def of(*values: Any, dtype: torch.dtype | None = None) -> Tensor:
    return torch.tensor(values, dtype=dtype)


def _quotients(a: Any, b: Any) -> Any:
    return (
        aten.div(a, b, rounding_mode=None), aten.div(a, b, rounding_mode="floor"),
        aten.div(a, b, rounding_mode="trunc"), a / b, a // b, a % b, torch.fmod(a, b),
    )  # fmt: skip


def _extremes(x: Tensor) -> Any:
    return (
        x.argmax(0), x.argmin(0), x.argmax(1), x.argmin(), x.max(1), x.min(0), x.aminmax(),
        x.t().argmin(), x[:, :3].argmax(), x.t()[1:].argmax(0),
    )  # fmt: skip


def _scans(x: Tensor) -> Any:
    return x.cumsum(0), x.cumsum(-1), x.view(-1).cumsum(0), x.cumprod(1)


def _indexed(a: Tensor) -> Any:
    x, y, rows, columns = of(1, 2), of(2, 3), of(1, 2).view(1, 2), of(0, 1, 2).view(3, 1)
    return (
        a[x, y], a[:, x, y], a[x, :, y], a[:, x, :, y], a[rows, columns], a[:, rows, columns],
        a[rows, :, columns], a[:, x, None, y, 0], a[..., x], a[x, 1:3, y], a[x.int()], a[x - 3],
        a[[0, 1], [1, 2]], a[0, x, :, y],
    )  # fmt: skip


def _written_by_index(a: Tensor) -> Any:
    x, y, rows, columns = of(1, 2, dtype=I32), of(2, 3, dtype=I32), of(1, 2), of(0, 1, 2)
    every = slice(None)
    places: list[Any] = [
        (x, y), (every, x, y), (x, every, y), (every, x, every, y),
        (rows.view(1, 2), columns.view(3, 1)), (rows, every, rows), (..., rows),
    ]  # fmt: skip
    for place in places:
        a[place] = a[place] * 2
    return a


def _placed(x: Tensor) -> Any:
    size = x.shape[0]
    return (
        x[torch.arange(size * 3) // 3], x[torch.arange(size * 3) % size],
        x[(torch.arange(size + 3) - 3).abs()], x[torch.arange(size - 1, -1, -1)],
        x[(1.0 * torch.arange(-1, -size - 1, -1)).int()],
        x[fn.pad(torch.arange(size), (5, 0))], x[torch.full((4,), 2).cumsum(0) % size],
    )  # fmt: skip


NUMBERS: dict[str, Row] = {
    "quotients of floats": (_quotients, lambda: (floats(8, 8) * 100, floats(8, 8) * 100)),
    "quotients of both": (_quotients, lambda: (ints(8, 8), floats(8, 8) + 9)),
    "quotients of ints": (
        _quotients, lambda: (ints(8, low=2**32, high=2**40), ints(8, low=-10, high=-1))
    ),
    "quotients of bools": (_quotients, lambda: (floats(8) > 0, ints(8, low=-10, high=-1))),
    "quotients of bytes": (
        _quotients,
        lambda: (ints(9, low=0, high=255, dtype=U8), ints(9, low=1, high=255, dtype=U8)),
    ),
    "quotients by a number": (_quotients, lambda: (ints(8, 8, dtype=I32), -7)),
    "quotients by half a number": (_quotients, lambda: (ints(8, 8), 2.5)),
    "quotients of halves": (_quotients, lambda: (floats(8).half() * 100, floats(8).half() + 30)),
    "of the least byte": (lambda a: (a // 2, a % 3, -a, a.abs(), a * 2), lambda: (
        of(-128, -127, 127, dtype=I8),
    )),
    "by zero": (
        lambda x, z, n: (x / 0.0, x / -0.0, z / z, x / n, x // z, x % z, torch.fmod(x, z), x % 0.0),
        lambda: (floats(10), torch.zeros(10), -torch.zeros(10)),
    ),
    "beside infinity": (
        lambda a: (a + INF, a * -INF, INF / a, a // INF, a % INF, -a % INF, torch.fmod(a, INF)),
        lambda: (floats(8),),
    ),
    "numbers by tensors": (
        lambda x: (42 / x, 42 // x, 42 % x, 2 - x, 2**x.abs(), 42.5 // x), lambda: (ints(8) | 1,)
    ),
    "numbers beside ints": (
        lambda a: (a * 2.5, a + True, a * 1j, a**2, a**0.5, a << 2, a >> 1, a & 3, ~a, a ^ 5),
        lambda: (ints(8),),
    ),
    "complex numbers": (
        lambda a: (a * complex(-0.0, NAN), torch.full((2,), 1j), torch.where(a > 0, a, 2 - 1j)),
        lambda: (floats(4),),
    ),
    "wide shifts": (
        lambda a, b: (a << 31, a >> 40, a.int() << 31, a << b, a >> b),
        lambda: (ints(6), of(0, 1, 2, 31, 62, 63)),
    ),
    "powers": (
        lambda x: [x.pow(e) for e in (-3, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 5.0, 1000)],
        lambda: (torch.cat([floats(30), of(0.0, -0.0, INF, -INF, NAN, 1.0, -1.0)]),),
    ),
    "powers of ints": (
        lambda x, y: (x**87, x**y, x**0, 3 ** y, (-2) ** y), lambda: (ints(9), ints(9, low=0)),
    ),
    "powers of bytes": (
        lambda x, y: (x**87, x**y, y**x), lambda: (ints(9, low=0, dtype=U8),) * 2
    ),
    "comparisons of large ints": (
        lambda x: (x > 16777216.5, x == 16777217.0, x < 9007199254740993.0, x.float() > 2**24),
        lambda: (of(16777217, 16777216, 2**53, 2**53 + 1),),
    ),
    "bytes": (
        lambda x: (-x, x - 7, 7 - x, x < -x, torch.maximum(x, -x), x * 100, x + 1.5, ~x),
        lambda: (ints(9, low=0, high=255, dtype=U8),),
    ),
    "functions of ints": (
        lambda x: (x.log1p(), x.expm1(), x.sqrt(), x.rsqrt(), x.sigmoid(), x.erf(), x.reciprocal()),
        lambda: (ints(64, low=1, dtype=I32),),
    ),
    "functions of bools": (
        lambda x: (x.sin(), x.sqrt(), x.sigmoid(), x + x, x * x, x.sign(), x.logical_not(), x & 1),
        lambda: (floats(9) > 0,),
    ),
    "bits of small ints": (
        lambda x, y: (torch.max(x & y, y), torch.clamp_max(x | y, y), torch.clamp_min(x ^ y, y)),
        lambda: (ints(5, 10, 1, dtype=I8), ints(10, 1, dtype=I8)),
    ),
    "conditions": (
        lambda c, a, b: (
            torch.where(c, a, 2), torch.where(c, 1.5, b.long()), torch.where(c, a.double(), b),
            torch.where(c, 1, 2.5), torch.where(c, True, False), torch.where(c & True, a, b),
        ),
        lambda: (of([True]), floats(3, 7, 3), floats(1, 1)),
    ),
    "bounds": (
        lambda a, b: (
            a.clamp(min=torch.tensor(1.0, dtype=F64), max=torch.full((4,), 2)), a.clamp(0.5),
            b.clamp(1, -1), b.clamp(min=NAN), b.clamp(of(NAN, 0.0, 0.0, 0.0), of(1.0, -1, 1, 1)),
        ),
        lambda: (ints(4), of(NAN, -2.0, 3.0, -0.0)),
    ),
    "fill values": (
        lambda a, b, c: (
            torch.full_like(a, 7.777), torch.full_like(b, 7.777), torch.full_like(c, 7.777),
            torch.full((2,), True), torch.full((2,), 7), torch.zeros_like(c, dtype=I64).fill_(2.9),
            c.masked_fill(b, torch.tensor(3.5)), a.masked_fill(b, 3), a + torch.full_like(a, 7.7),
        ),
        lambda: (ints(8), floats(8) > 0, floats(8)),
    ),
    "between dtypes": (
        lambda x, y: (
            x.to(I32), x.to(I16), x.to(I8), x.to(U8), x.to(BOOL), x.float(), x.half(), x.bfloat16(),
            y.to(I64), y.to(I8), y.to(BOOL), y.half(), y.bfloat16(), y.double().half(),
        ),
        lambda: (of(300, -300, 70000, 2**33, -1, 0, 16777217), of(1.9, -1.9, 0.5, 100.7, 6e-8)),
    ),
    "views of bits": (
        lambda x, y: (
            (x + 1).view(I32), x.view(I16), x.view(F64), (x * 2).view(F16), (x + 1).view(U8),
            (y + 1).view(I16) * 2, y.view(BF16), (y.view(I16) << 1).view(F16), (y * 2).view(U8),
        ),
        lambda: (floats(2, 4), floats(4, 2).half()),
    ),
    "zeros keep their sign": (
        lambda x: (x + 0, x - 0, x * 1, x / 1, x * -1, 0 - x, -x, x + torch.zeros(3), x.round()),
        lambda: (of(0.0, -0.0, -0.4),),
    ),
    "neutral constants": (
        lambda x: (
            x @ x + torch.zeros(8, 8), x @ x * torch.ones(8, 8), x / torch.ones(3, 8, 8),
            x.half() + torch.zeros(8, 8), x.half() * torch.ones(()), x + torch.zeros(8, 8).double(),
        ),
        lambda: (floats(8, 8),),
    ),
    "extremes with ties": (_extremes, lambda: (ints(12, 9, low=0, high=3),)),
    "extremes with NaN": (
        _extremes, lambda: (torch.where(floats(12, 9) > 1.5, NAN, floats(12, 9)),)
    ),
    "extremes of bytes": (_extremes, lambda: (ints(12, 9, dtype=I8),)),
    "sums of infinities": (
        lambda a, b: [
            f(x) for x in (a, b)
            for f in (
                torch.sum, torch.mean, torch.var, torch.argmax, torch.nansum,
                lambda y: y.logsumexp(0), lambda y: y.softmax(0), lambda y: y.log_softmax(0),
            )
        ],
        lambda: (of(-INF, 0.0, INF), torch.full((4,), -INF)),
    ),
    "sums of small ints": (
        lambda x, b: (
            x.sum(), x.sum(dtype=I8), x.cumsum(0, dtype=I8), x.prod(dtype=U8), b.sum(dtype=I8),
            2 * b.sum(-1) + b.sum(), b.cumsum(0), b.prod(), b.to(U8).any(), x.mean(dtype=F64),
        ),
        lambda: (ints(300, low=100, high=127, dtype=I8), floats(300) > 0),
    ),
    "variances": (
        lambda x: [
            found for c in (0, 1, 3, 10, 1.3)
            for found in (x.var(-1, correction=c), x.std(correction=c), x[:, :1].var(-1))
        ],
        lambda: (floats(2, 8),),
    ),
    "scans of floats": (_scans, lambda: (torch.rand(10, 33),)),
    "scans of halves": (_scans, lambda: (torch.rand(10, 33).half(),)),
    "scans of bytes": (_scans, lambda: (ints(10, 33, low=0, high=3, dtype=U8),)),
    "scans of bools": (_scans, lambda: (floats(10, 33) > 0,)),
    "scans of infinities": (
        lambda x: (x.cumsum(-1), x.cumprod(0), x.cummax(1), x.cummin(0), x.logcumsumexp(1)),
        lambda: (of(INF, 1.0, -INF, NAN, 2.0, 0.0).repeat(3, 1),),
    ),
    "sorts with ties and NaN": (
        lambda a: (
            a.sort(stable=True), a.sort(stable=True, descending=True), a.t().sort(stable=True),
            a.nanmedian(), a.isnan().sort(stable=True), a.nanmean(0),
        ),
        lambda: (torch.where(floats(10, 20) > 1, NAN, floats(10, 20).round()),),
    ),
    "searches": (
        lambda s, v: (
            torch.searchsorted(s, v, right=True, out_int32=True), torch.bucketize(0.5, s[0]),
            torch.searchsorted(s[0], v), torch.bucketize(torch.rsqrt(v - 0.5), s[0]),
            torch.searchsorted(s.flip(1), v, sorter=torch.arange(7, -1, -1).expand(3, 8)),
            torch.isin((v * 4).long(), of(1, 2)), torch.isin(2, of(1, 2)), torch.isin(s, 0.5),
        ),
        lambda: (torch.rand(3, 8).sort().values, torch.rand(3, 5)),
    ),
    "ranges and constants": (
        lambda x: (
            torch.arange(0.1, 8.0001, 1, dtype=I64), torch.arange(512, -512, -1.0),
            torch.arange(5.0), torch.linspace(0, 2, 1), torch.linspace(0, 2, 0),
            torch.linspace(-5, 5, 6, dtype=I64), torch.tensor([]), torch.tensor([1.5]).double() + x,
            torch.tensor(5), torch.LongTensor([294]) - x, torch.tensor(True), torch.tensor(1 + 2j),
        ),
        lambda: (floats(4),),
    ),
    "drawn ranges": (
        lambda x: (
            torch.randint(-4, 7, [64], dtype=I32), torch.randint_like(x, 2**50),
            torch.randint(int(0.75 * 2**32), (50,)), torch.randint(-5, 5, (20,)) % 10,
            torch.randint(0, 2, (9,), dtype=BOOL), torch.rand(2, dtype=BF16), x.uniform_(2, 3),
        ),
        lambda: (torch.zeros(5, 5),),
    ),
    "drawn like a part": (
        lambda x: (
            torch.rand_like(x), torch.randint_like(x, 1, 11), torch.rand_like(x, dtype=F64),
            torch.empty_like(x).exponential_(), torch.empty_like(x).cauchy_(),
            torch.randn_like(torch.rand(10, 3, 0).min(1).values), fn.dropout(x, 1.0) + x,
        ),
        lambda: (torch.zeros(3, 4)[:, ::2].permute(1, 0),),
    ),
    "products with NaN that count for nothing": (
        lambda a, b, c: (torch.baddbmm(a, b, c, beta=0), torch.addmm(a[0], b[0], c[0], beta=0)),
        lambda: (torch.full((6, 1, 10), NAN), floats(6, 12, 8), floats(6, 8, 10)),
    ),
    "products of ints": (
        lambda a: (a @ a, torch.addmm(a[:, :1], a, a), a[0] @ a, a[:0] @ a, a[:, :0] @ a[:0]),
        lambda: (ints(6, 6),),
    ),
    "products of small numbers": (
        lambda a, b: (
            a @ torch.cat((b & 15, b >> 4), 1).reshape(-1, b.shape[1]).to(a.dtype).sub(8),
            a @ b.to(a.dtype).repeat(2, 1) * 2 + a,
        ),
        lambda: (floats(8, 8), ints(4, 8, low=0, high=255, dtype=U8)),
    ),
    "attention with nothing to see": (
        lambda q: (
            fn.scaled_dot_product_attention(q, q, q, torch.zeros(2, 2, dtype=BOOL)),
            fn.scaled_dot_product_attention(q, q, q, torch.ones(2, 2, dtype=BOOL).tril()),
        ),
        lambda: (floats(1, 2, 2, 4),),
    ),
    "classes that are ignored": (
        lambda x: (
            fn.cross_entropy(x, of(-100, 1, 2, 3, 4)), fn.cross_entropy(x, of(*[-100] * 5)),
            fn.nll_loss(x, of(0, 1, 2, 3, 4), weight=torch.arange(5.0)), fn.cross_entropy(x, x),
            fn.cross_entropy(x / 64, of(0, 5, 2, 3, 4), ignore_index=5), x.logsumexp(-1),
        ),
        lambda: (floats(5, 5),),
    ),
    "indices": (_indexed, lambda: (ints(3, 4, 5, 6, 7),)),
    "writes by indices": (_written_by_index, lambda: (ints(3, 4, 5, 6, dtype=I32),)),
    "places that are computed": (_placed, lambda: (floats(8, 3),)),
    "masks as indices": (
        lambda a, b: (
            torch.index_put(a, [b], torch.tensor(2.0)), torch.index_put(a, [b], a.sum(), True),
            a.masked_scatter(b, a * 2), a.index_put_((b,), torch.tensor(7.0)),
        ),
        lambda: (floats(8, 2), floats(8, 2) > 0),
    ),
    "the same index twice": (
        lambda x, i, s: (
            x.index_put((i,), s, accumulate=True), x.index_add(0, i, s, alpha=2.0) / 2,
            x.index_reduce(0, i, s, "mean", include_self=False), x.index_select(0, i)[0],
            x[:, 1:].index_reduce_(1, of(0, 0), s[:, :2].repeat(2, 1), "amax"),
        ),
        lambda: (floats(6, 3), of(4, 0, 4), floats(3, 3)),
    ),
    "scatters of ints": (
        lambda a, i, b: [
            a.scatter_reduce(0, i, b, kind, include_self=s)
            for kind in ("sum", "prod", "amax", "amin", "mean") for s in (True, False)
        ],
        lambda: (ints(4, 5), ints(6, 5, low=0, high=4), ints(6, 5)),
    ),
    "into other dtypes": (
        lambda x, a: (x.select_scatter(a, 1, 0), x.slice_scatter(a[:, None], 1, 0, 1)),
        lambda: (ints(8, 7), floats(8)),
    ),
    "slices beyond the end": (
        lambda a, b: (
            a[:, :30] + 1, a[:, -30:], a[:, :-30], a[:, 50:], a[5:2], aten.slice(b, 0, -20, -16),
            aten.slice_scatter(b, b[:0], 0, 2, 0), aten.slice_scatter(b, b[:0], 0, -20, -16),
            b.narrow(0, -3, 2), (*b[:0].chunk(3), *torch.unsafe_chunk(b[:0], 4)),
        ),
        lambda: (floats(2, 20), floats(10)),
    ),
    "joined": (
        lambda a, e: (
            torch.cat((a, (a * 2).double())), torch.cat([a.half(), a.long()]), torch.cat([a, e]),
            torch.cat([e, a], -1), torch.cat([e]), torch.cat([a[:1].expand(2, 3), a[:, :1]], -1),
        ),
        lambda: (floats(2, 3), torch.ones(0)),
    ),
    "padded by any value": (
        lambda a, b: (
            fn.pad(a, (1, 1), value=1.0) & True, fn.pad(a, (1, 1)), fn.pad(b, (1, -2), value=3),
            torch.constant_pad_nd(b, [0, 0]), torch.gt(fn.pad(b, (1, 0)), fn.pad(b, (0, 1))),
        ),
        lambda: (floats(4) > 0, ints(4)),
    ),
    "windows of NaN": (
        lambda x: (
            fn.adaptive_max_pool2d(x, 3), fn.avg_pool2d(x, 3, 2, 1, divisor_override=3),
            fn.max_pool2d(x, [3, 2], [2, 1], [1, 1], [1, 2]), fn.max_pool2d(x.long(), 3, 1, 1),
            fn.max_pool2d(x, 1, (2, 2), ceil_mode=True), fn.avg_pool2d(x, 3, 2, 1, True, False),
        ),
        lambda: (torch.where(floats(1, 2, 6, 6) > 1, INF, floats(1, 2, 6, 6)),),
    ),
    "numbers that are sizes": (
        lambda x: (
            x + 1.0 / x.size(0), x * (x.size(0) * 0.5), torch.full((1,), x.shape[0]) + x,
            x.shape[0], x.numel() * 2 + 1, x.new_zeros(len(x) + 1), x.expand(2, *x.shape).sum(0),
        ),
        lambda: (torch.arange(10),),
    ),
    "numbers that are arguments": (
        lambda x, n, f: (x + n // 8, x + n % 7, x + n / 7, x[n - 30 :], x * f, n + 1, x.mul(f * n)),
        lambda: (floats(10), 33, 1e-5),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_are_eagers(name: str) -> None:
    function, arguments = NUMBERS[name]

    def make() -> Sequence[Any]:
        torch.manual_seed(7)
        return arguments()

    dynamic = list(NUMBERS).index(name) % 2 == 1
    assert differences(function, make, dynamic=dynamic) == []
