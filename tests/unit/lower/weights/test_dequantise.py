"""Products with weights made of smaller numbers: these stay small, and the results are eager's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from kernelmill.core.dtype import BF16, F32, I8, U8, DType, InputRole, to_torch
from kernelmill.core.target.machine import Machine, committed
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Graph, Value
from kernelmill.lower.driver.lowered import Lowered
from tests.compiled import check, interpreted, lowered, run_compiled, whole
from tests.unit.codegen.native import TARGETS as LEVELS

TARGETS = [committed(isa) for isa in LEVELS.values()]
GROUP = 16


def full(*shape: int) -> Tensor:
    return whole(I8, *shape, low=-128, high=128)


def scales(*shape: int) -> Tensor:
    """Powers of two: nothing is rounded, in whatever order the products are made."""
    return 2.0 ** torch.randint(-4, 1, shape)


def bytes_(*shape: int) -> Tensor:
    return torch.randint(0, 256, shape).to(torch.uint8)


def spread(b: GraphBuilder, value: Value, *shape: int) -> Value:
    """(n, groups) as (n, groups, group)."""
    ones = b.emit("reshape", value, shape=(*value.shape, *(1,) * (len(shape) - len(value.shape))))
    return b.emit("expand", ones, shape=shape)


def per_channel(b: GraphBuilder, n: int, k: int, dtype: DType) -> tuple[Value, list[Tensor]]:
    w, s = (
        b.input("w", I8, (n, k), role=InputRole.BUFFER),
        b.input("s", dtype, (n,), role=InputRole.PARAM),
    )
    weight = b.emit("mul", b.emit("cast", w, dtype=dtype), spread(b, s, n, k))
    return weight, [full(n, k), scales(n).to(to_torch(dtype))]


def cast_alone(b: GraphBuilder, n: int, k: int, dtype: DType) -> tuple[Value, list[Tensor]]:
    w = b.input("w", I8, (n, k), role=InputRole.BUFFER)
    return b.emit("cast", w, dtype=dtype), [full(n, k)]


def in_groups(b: GraphBuilder, n: int, k: int, dtype: DType) -> tuple[Value, list[Tensor]]:
    groups = (n, k // GROUP, GROUP)
    w = b.input("w", I8, (n, k), role=InputRole.BUFFER)
    s = b.input("s", dtype, groups[:2], role=InputRole.PARAM)
    z = b.input("z", I8, groups[:2], role=InputRole.BUFFER)
    wide = b.emit("cast", b.emit("reshape", w, shape=groups), dtype=dtype)
    moved = b.emit("sub", wide, b.emit("cast", spread(b, z, *groups), dtype=dtype))
    weight = b.emit("mul", moved, spread(b, s, *groups))
    arguments = [full(n, k), scales(*groups[:2]).to(to_torch(dtype)), full(*groups[:2])]
    return b.emit("reshape", weight, shape=(n, k)), arguments


def nibbles(b: GraphBuilder, n: int, k: int, dim: int) -> Value:
    """(n, k) of 0..15 from (n, k / 2) of bytes: the low nibbles are the even k, or the first."""
    w = b.input("w", U8, (n, k // 2), role=InputRole.BUFFER)
    low = b.emit("bit_and", w, b.emit("full", dtype=U8, shape=w.shape, value=15))
    high = b.emit("shr", w, b.emit("full", dtype=U8, shape=w.shape, value=4))
    if dim == 1:
        return b.emit("concat", low, high, dim=1)
    pair = [b.emit("reshape", half, shape=(n, k // 2, 1)) for half in (low, high)]
    return b.emit("reshape", b.emit("concat", *pair, dim=2), shape=(n, k))


def int4(b: GraphBuilder, n: int, k: int, dtype: DType, dim: int = 2) -> tuple[Value, list[Tensor]]:
    groups = (n, k // GROUP, GROUP)
    q = b.emit("cast", b.emit("reshape", nibbles(b, n, k, dim), shape=groups), dtype=I8)
    q = b.emit("sub", q, b.emit("full", dtype=I8, shape=groups, value=8))
    s = b.input("s", dtype, groups[:2], role=InputRole.PARAM)
    weight = b.emit("mul", b.emit("cast", q, dtype=dtype), spread(b, s, *groups))
    arguments = [bytes_(n, k // 2), scales(*groups[:2]).to(to_torch(dtype))]
    return b.emit("reshape", weight, shape=(n, k)), arguments


def int4_in_halves(b: GraphBuilder, n: int, k: int, dtype: DType) -> tuple[Value, list[Tensor]]:
    return int4(b, n, k, dtype, dim=1)


def int4_with_zeros(b: GraphBuilder, n: int, k: int, dtype: DType) -> tuple[Value, list[Tensor]]:
    """Numbers less 8, times a scale and plus a zero of their group of k: both (groups, n)."""
    q = b.emit("cast", nibbles(b, n, k, 2), dtype=dtype)
    q = b.emit("sub", q, b.emit("full", dtype=dtype, shape=(n, k), value=8.0))
    s, z = (b.input(name, dtype, (k // GROUP, n), role=InputRole.BUFFER) for name in ("s", "z"))
    spread_s, spread_z = (
        b.emit("permute", b.emit("reshape", each, shape=(k, n)), dims=(1, 0))
        for each in (
            b.emit("expand", b.emit("reshape", v, shape=(k // GROUP, 1, n)),
                   shape=(k // GROUP, GROUP, n))
            for v in (s, z)
        )
    )  # fmt: skip
    weight = b.emit("add", b.emit("mul", q, spread_s), spread_z)
    groups = (k // GROUP, n)
    zeros = whole(F32, *groups).to(to_torch(dtype))
    return weight, [bytes_(n, k // 2), scales(*groups).to(to_torch(dtype)), zeros]


Kind = Callable[[GraphBuilder, int, int, DType], tuple[Value, list[Tensor]]]
FOUR_BITS: list[Kind] = [int4, int4_in_halves, int4_with_zeros]
KINDS: list[Kind] = [cast_alone, per_channel, in_groups, *FOUR_BITS]


def linear(kind: Kind, m: int, n: int, k: int, dtype: DType = F32) -> tuple[Graph, list[Tensor]]:
    """x @ weight.T, and its arguments."""
    b = GraphBuilder("g")
    x = b.input("x", dtype, (m, k))
    weight, arguments = kind(b, n, k, dtype)
    b.graph.results = [b.emit("matmul", x, b.emit("permute", weight, dims=(1, 0)), dtype=dtype)]
    return b.graph, [whole(dtype, m, k), *arguments]


def packed(made: Lowered) -> list[str]:
    return sorted(b.dtype.name for b in made.plan.buffers if b.kind == "packed")


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
@pytest.mark.parametrize("m", [1, 3, 20])
@pytest.mark.parametrize("kind", KINDS)
def test_the_weight_is_computed_by_its_product(kind: Kind, m: int, dtype: DType) -> None:
    graph, arguments = linear(kind, m, 50, 64, dtype)
    made = check(graph, *arguments, targets=TARGETS, interpret=m < 20)
    assert len(made.plan.steps) == 1
    small = "i32" if kind in FOUR_BITS else "i8"  # words of eight numbers
    floats = sum(name == "f32" for name in packed(made))
    assert small in packed(made) and floats <= (1 + (kind is int4_with_zeros)) * (dtype == F32)


def experts(m: int, four_bits: bool, dtype: DType) -> tuple[Graph, list[Tensor]]:
    """x @ weight.T for each of 4 weights with scales for groups, and the arguments."""
    e, n, k = 4, 40, 48
    groups = (e, n, k // GROUP, GROUP)
    b = GraphBuilder("g")
    x = b.input("x", dtype, (e, m, k))
    w = b.input("w", U8 if four_bits else I8, (e, n, k // (1 + four_bits)), role=InputRole.BUFFER)
    s = b.input("s", dtype, groups[:3], role=InputRole.PARAM)
    numbers = w
    if four_bits:
        low = b.emit("bit_and", w, b.emit("full", dtype=U8, shape=w.shape, value=15))
        high = b.emit("shr", w, b.emit("full", dtype=U8, shape=w.shape, value=4))
        pair = [b.emit("reshape", half, shape=(*w.shape, 1)) for half in (low, high)]
        numbers = b.emit("reshape", b.emit("concat", *pair, dim=3), shape=(e, n, k))
    wide = b.emit("cast", b.emit("reshape", numbers, shape=groups), dtype=dtype)
    weight = b.emit("reshape", b.emit("mul", wide, spread(b, s, *groups)), shape=(e, n, k))
    turned = b.emit("permute", weight, dims=(0, 2, 1))
    b.graph.results = [b.emit("matmul", x, turned, dtype=dtype)]
    given = bytes_(*map(int, w.shape)) if four_bits else full(e, n, k)
    return b.graph, [whole(dtype, e, m, k), given, scales(e, n, k // GROUP).to(to_torch(dtype))]


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
@pytest.mark.parametrize("four_bits", [False, True])
@pytest.mark.parametrize("m", [1, 5, 20])
def test_the_weights_of_experts(m: int, four_bits: bool, dtype: DType) -> None:
    graph, arguments = experts(m, four_bits, dtype)
    made = check(graph, *arguments, targets=TARGETS, interpret=m == 1)
    assert len(made.plan.steps) == 1
    assert packed(made) == sorted(["u8" if four_bits else "i8", dtype.name])


def test_experts_whose_columns_are_in_one_dim_are_made_once() -> None:
    b = GraphBuilder("g")
    x = b.input("x", F32, (3, 5, 32))
    rows, arguments = per_channel(b, 3 * 40, 32, F32)
    weight = b.emit("permute", b.emit("reshape", rows, shape=(3, 40, 32)), dims=(0, 2, 1))
    b.graph.results = [b.emit("matmul", x, weight)]
    made = check(b.graph, whole(F32, 3, 5, 32), *arguments)
    assert "i8" not in packed(made)


@pytest.mark.parametrize("kind", [per_channel, int4])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 32), (1, 48, 16), (9, 1, 48), (20, 7, 160)])
def test_sizes(kind: Kind, m: int, n: int, k: int) -> None:
    graph, arguments = linear(kind, m, n, k)
    check(graph, *arguments, targets=TARGETS)


def test_the_bytes_of_the_weight_are_those_of_its_numbers() -> None:
    for kind, bits in ((per_channel, 8), (int4, 4)):
        made = lowered(linear(kind, 1, 96, 128)[0])
        (weight,) = (b for b in made.plan.buffers if b.kind == "packed" and not b.dtype.is_float)
        assert torch.Size(map(int, weight.shape)).numel() * weight.dtype.bits == 96 * 128 * bits


def test_a_weight_in_the_other_order() -> None:
    b = GraphBuilder("g")
    x, w = b.input("x", F32, (5, 24)), b.input("w", I8, (24, 40), role=InputRole.BUFFER)
    s = b.input("s", F32, (40,), role=InputRole.BUFFER)
    wide = b.emit("cast", w, dtype=F32)
    weight = b.emit("mul", wide, b.emit("expand", s, shape=(24, 40)))
    b.graph.results = [b.emit("matmul", x, weight)]
    made = check(b.graph, whole(F32, 5, 24), full(24, 40), scales(40), targets=TARGETS)
    assert packed(made) == ["i8"]


@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize("sizes", [(5, 40), (5, 56), (20, 56)], ids=str)
def test_scales_end_where_the_columns_do(sizes: tuple[int, int], target: Machine) -> None:
    """Panels of the weight are filled up, those of its scales would be one number a column."""
    m, n = sizes
    b = GraphBuilder("g")
    x, w = b.input("x", F32, (m, 24)), b.input("w", I8, (24, n), role=InputRole.BUFFER)
    s = b.input("s", F32, (n,), role=InputRole.BUFFER)
    wide = b.emit("mul", b.emit("cast", w, dtype=F32), b.emit("expand", s, shape=(24, n)))
    b.graph.results = [b.emit("matmul", x, wide)]
    given = whole(F32, m, 24), full(24, n), scales(n)
    (found,) = interpreted(lowered(b.graph, target), given)  # which reads no number behind the last
    assert isinstance(found, Tensor)
    torch.testing.assert_close(found, given[0] @ (given[1] * given[2]))


def test_half_types_widened_are_read_as_they_are() -> None:
    b = GraphBuilder("g")
    x, w = b.input("x", F32, (2, 24)), b.input("w", BF16, (40, 24), role=InputRole.PARAM)
    turned = b.emit("permute", b.emit("cast", w, dtype=F32), dims=(1, 0))
    b.graph.results = [b.emit("matmul", x, turned)]
    made = check(b.graph, whole(F32, 2, 24), whole(BF16, 40, 24), targets=TARGETS)
    assert packed(made) == ["bf16"]


def test_two_products_share_a_weight() -> None:
    b = GraphBuilder("g")
    x, y = b.input("x", F32, (1, 32)), b.input("y", F32, (6, 32))
    weight, arguments = per_channel(b, 40, 32, F32)
    turned = b.emit("permute", weight, dims=(1, 0))
    b.graph.results = [b.emit("matmul", x, turned), b.emit("matmul", y, turned)]
    made = check(b.graph, whole(F32, 1, 32), whole(F32, 6, 32), *arguments)
    assert packed(made) == ["i8"]


@pytest.mark.parametrize("other", ["result", "reader"])
def test_a_weight_that_others_read_too_is_made_once(other: str) -> None:
    b = GraphBuilder("g")
    x = b.input("x", F32, (3, 32))
    weight, arguments = in_groups(b, 40, 32, F32)
    y = b.emit("matmul", x, b.emit("permute", weight, dims=(1, 0)))
    b.graph.results = [y, weight if other == "result" else b.emit("neg", weight)]
    made = check(b.graph, whole(F32, 3, 32), *arguments, targets=TARGETS)
    assert "i8" not in packed(made)


@pytest.mark.parametrize("m", [1, 20])
def test_factors_that_differ_for_every_number(m: int) -> None:
    """No group of them shares one: they stay with the numbers."""
    b = GraphBuilder("g")
    x = b.input("x", F32, (m, 24))
    w, v = (b.input(name, I8, (40, 24), role=InputRole.BUFFER) for name in ("w", "v"))
    weight = b.emit("mul", *(b.emit("cast", each, dtype=F32) for each in (w, v)))
    b.graph.results = [b.emit("matmul", x, b.emit("permute", weight, dims=(1, 0)))]
    made = check(b.graph, whole(F32, m, 24), full(40, 24), full(40, 24), targets=TARGETS)
    assert packed(made) == ["i8", "i8"]


def test_bytes_wrap_as_they_do_in_eager() -> None:
    """They are computed in i32, but keep eight bits wherever more could be seen."""
    b = GraphBuilder("g")
    x, w = b.input("x", F32, (2, 24)), b.input("w", I8, (40, 24), role=InputRole.BUFFER)
    u = b.input("u", U8, (40, 24), role=InputRole.BUFFER)

    def constant(value: int, dtype: DType) -> Value:
        return b.emit("full", dtype=dtype, shape=(40, 24), value=value)

    moved = b.emit("mul", b.emit("sub", w, constant(100, I8)), constant(3, I8))
    moved = b.emit("bit_xor", b.emit("neg", moved), constant(-7, I8))
    high = b.emit("bit_or", b.emit("shl", u, constant(3, U8)), constant(1, U8))
    both = b.emit("add", moved, b.emit("cast", high, dtype=I8))
    both = b.emit("shr", both, constant(1, I8))
    turned = b.emit("permute", b.emit("cast", both, dtype=F32), dims=(1, 0))
    b.graph.results = [b.emit("matmul", x, turned)]
    made = check(b.graph, whole(F32, 2, 24), full(40, 24), bytes_(40, 24), targets=TARGETS)
    assert packed(made) == ["i8", "u8"]


def test_scales_that_are_no_parameters() -> None:
    b = GraphBuilder("g")
    x, s = b.input("x", F32, (3, 32)), b.input("s", F32, (40,))
    w = b.input("w", I8, (40, 32), role=InputRole.BUFFER)
    weight = b.emit("mul", b.emit("cast", w, dtype=F32), spread(b, s, 40, 32))
    b.graph.results = [b.emit("matmul", x, b.emit("permute", weight, dims=(1, 0)))]
    check(b.graph, whole(F32, 3, 32), scales(40), full(40, 32), targets=TARGETS)


def test_a_half_weight_is_not_rounded_on_its_way() -> None:
    """Its scaled numbers would be rounded to bf16 in eager: this is closer to the exact result."""
    graph, (x, w, _) = linear(per_channel, 1, 33, 256, BF16)
    x, s = torch.randn(1, 256).bfloat16(), torch.rand(33).bfloat16()
    exact = x.double() @ (w.double() * s.double()[:, None]).T
    (got,) = run_compiled(graph, [x, w, s])
    assert ((got.double() - exact).abs() <= exact.abs() * 2.0**-8 + 1e-4).all()
    eager = x @ (w.bfloat16() * s[:, None]).T
    assert (got.double() - exact).norm() < (eager.double() - exact).norm()
