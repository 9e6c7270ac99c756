"""Maps and reductions: every dtype, layout, edge and target, compiled and interpreted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernelmill.core.dim import sym
from kernelmill.core.dtype import (
    BF16,
    BOOL,
    COMPUTABLE,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    DType,
    to_torch,
)
from kernelmill.core.target.machine import Machine, profile
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.interpreter import run_graph
from kernelmill.graph.ir import Graph, Value
from kernelmill.kernel.text import print_kernel
from kernelmill.lower.templates.map_reduce.emit import MOST_TOGETHER
from kernelmill.plan.ir import Launch
from tests.compiled import check, graph, lowered, program, run_compiled, whole

OLDER = (profile("x86-64-v2"), profile("x86-64-v3"))
FOLDS = ("reduce_sum", "reduce_prod", "reduce_max", "reduce_min")
dtypes = pytest.mark.parametrize("dtype", COMPUTABLE, ids=str)


def reductions(dtype: DType) -> tuple[str, ...]:
    return FOLDS[2:] if dtype == BOOL else FOLDS


# ---- maps -----------------------------------------------------------------------------------


@dtypes
def test_a_map_of_every_dtype_with_a_tail(dtype: DType) -> None:
    def build(b: GraphBuilder, x: Value, y: Value) -> list[Value]:
        together = b.emit("where", b.emit("lt", x, y), b.emit("add", x, y), b.emit("mul", x, y))
        return [together, b.emit("ne", x, y)]

    shape = (3, 11)
    check(
        graph(build, (dtype, shape), (dtype, shape)),
        whole(dtype, *shape), whole(dtype, *shape), targets=OLDER, interpret=True,
    )  # fmt: skip


@pytest.mark.parametrize("target", COMPUTABLE, ids=str)
@pytest.mark.parametrize("source", [F32, BF16, I64, U8, BOOL], ids=str)
def test_casts_in_vectors_and_tails(source: DType, target: DType) -> None:
    made = graph(lambda b, x: b.emit("cast", x, dtype=target), (source, (37,)))
    check(made, whole(source, 37, low=0), interpret=True)


@pytest.mark.parametrize("dtype", [I64, I32, I16, I8, U8], ids=str)
def test_integers_divided_by_zero_give_zero(dtype: DType) -> None:
    def build(b: GraphBuilder, x: Value, y: Value) -> list[Value]:
        return [b.emit(op, x, y) for op in ("div", "floordiv", "mod", "rem")]

    made = graph(build, (dtype, (5, 18)), (dtype, (5, 18)))
    low = 0 if dtype == U8 else -9
    inputs = whole(dtype, 5, 18, low=low, high=9), whole(dtype, 5, 18, low=low // 9, high=2)
    check(made, *inputs, targets=OLDER, interpret=True)


@pytest.mark.parametrize("dtype", [F64, F32, F16, BF16], ids=str)
def test_neighbours_among_the_numbers_of_the_dtype(dtype: DType) -> None:
    kind = to_torch(dtype)
    least, most = torch.finfo(kind).smallest_normal, torch.finfo(kind).max
    some = [0.0, 1.0, least, most, float("inf"), float("nan"), 3.1]
    edges = torch.tensor([*some, *(-x for x in some)], dtype=kind)
    x, y = (part.contiguous() for part in torch.meshgrid(edges, edges, indexing="ij"))
    made = graph(lambda b, x, y: b.emit("nextafter", x, y), (dtype, (14, 14)), (dtype, (14, 14)))
    check(made, x, y, targets=OLDER, interpret=True)
    found = program(lowered(made))(x, y)[0]
    assert torch.equal(found.nan_to_num(7.5), torch.nextafter(x, y).nan_to_num(7.5))


def test_lanes_count_in_the_widest_type_of_a_mixed_map() -> None:
    def build(b: GraphBuilder, x: Value, y: Value, i: Value) -> list[Value]:
        wide = b.emit("cast", x, dtype=F64)
        return [
            b.emit("add", wide, b.emit("cast", i, dtype=F64)),
            b.emit("mul", b.emit("cast", y, dtype=F32), b.emit("cast", i, dtype=F32)),
        ]

    kinds = ((BF16, (5, 19)), (F16, (5, 19)), (I8, (5, 19)))
    made = graph(build, *kinds)
    check(made, *(whole(*kind[:1], *kind[1]) for kind in kinds), targets=OLDER, interpret=True)


@pytest.mark.parametrize(
    "shape", [(), (1,), (1, 1, 1), (1, 17), (17, 1), (2, 1, 3), (16,), (64, 32)]
)
def test_shapes(shape: tuple[int, ...]) -> None:
    made = graph(lambda b, x: b.emit("neg", x), (F32, shape))
    check(made, whole(F32, *shape), interpret=True)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3), (2, 0, 3)])
def test_nothing(shape: tuple[int, ...]) -> None:
    made = graph(lambda b, x: [b.emit("neg", x), b.emit("reduce_sum", x, dims=(0,))], (F32, shape))
    check(made, whole(F32, *shape), interpret=True)


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "transposed": lambda x: x.t(),
    "every other": lambda x: x[:, ::2],
    "every other row": lambda x: x[::2],
    "offset": lambda x: x[1:, 1:],
    "one row": lambda x: x[:1].expand(20, 36),
    "one column": lambda x: x[:, :1].expand(20, 36),
    "one element": lambda x: x[0, 0].expand(20, 36),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_arguments_are_read_where_they_are(layout: str, dtype: DType) -> None:
    x = LAYOUTS[layout](whole(dtype, 20, 36))
    b = GraphBuilder("g")
    value = b.input("x", dtype, tuple(x.shape), x.stride())
    b.graph.results = [b.emit("neg", value), b.emit("reduce_max", value, dims=(1,))]
    check(b.graph, x, targets=OLDER, interpret=True)


def test_backwards() -> None:
    def build(b: GraphBuilder, x: Value) -> list[Value]:
        both, last = (b.emit("flip", x, dims=dims) for dims in ((0, 1), (1,)))
        return [b.emit("exp", both), b.emit("sub", last, x), b.emit("reduce_sum", last, dims=(1,))]

    check(graph(build, (F32, (5, 21))), whole(F32, 5, 21), targets=OLDER, interpret=True)


@pytest.mark.parametrize("dtype", [F64, F32, BF16, I8], ids=str)
@pytest.mark.parametrize("shape", [(33, 40), (16, 16), (3, 20, 17)])
def test_transposed_operands_are_turned_in_registers(dtype: DType, shape: tuple[int, ...]) -> None:
    def build(b: GraphBuilder, x: Value, y: Value) -> Value:
        turned = b.emit("permute", x, dims=tuple(reversed(range(len(shape)))))
        return b.emit("add", turned, y)

    made = graph(build, (dtype, shape), (dtype, shape[::-1]))
    check(made, whole(dtype, *shape), whole(dtype, *shape[::-1]), targets=OLDER, interpret=True)


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("pad", {"low": (3, 2), "high": (5, 1), "value": 1.5}),
        ("window", {"dims": (0,), "size": (3,), "stride": (1,), "dilation": (1,), "low": (1,),
                    "high": (1,), "value": 0.0}),
    ],
)  # fmt: skip
def test_a_transposed_operand_with_a_border(op: str, attrs: dict[str, Any]) -> None:
    def build(b: GraphBuilder, x: Value) -> Value:
        around = b.emit(op, x, **attrs)
        rank = len(around.shape)
        return b.emit("exp", b.emit("permute", around, dims=tuple(reversed(range(rank)))))

    check(graph(build, (F32, (33, 20))), whole(F32, 33, 20), targets=OLDER, interpret=True)


# ---- reductions -----------------------------------------------------------------------------


@dtypes
@pytest.mark.parametrize("dims", [(1,), (0,)], ids=["inner", "outer"])
def test_every_reduction_of_every_dtype(dtype: DType, dims: tuple[int, ...]) -> None:
    def build(b: GraphBuilder, x: Value) -> list[Value]:
        found = [b.emit(op, x, dims=dims) for op in reductions(dtype)]
        return found + [b.emit(op, x, dim=dims[0]) for op in ("argmax", "argmin")]

    made = graph(build, (dtype, (19, 21)))
    x = whole(dtype, 19, 21, low=-1, high=3)
    check(made, x, interpret=dtype in (F32, BOOL, U8))


@pytest.mark.parametrize("target", OLDER, ids=["v2", "v3"])
@pytest.mark.parametrize("dims", [(1,), (0,)], ids=["inner", "outer"])
def test_reductions_on_older_processors(target: Machine, dims: tuple[int, ...]) -> None:
    def build(b: GraphBuilder, x: Value, y: Value) -> list[Value]:
        return [
            b.emit("reduce_sum", x, dims=dims), b.emit("reduce_max", y, dims=dims),
            b.emit("argmin", x, dim=dims[0]), b.emit("argmax", y, dim=dims[0]),
        ]  # fmt: skip

    made = graph(build, (F32, (35, 70)), (I64, (35, 70)))
    check(made, whole(F32, 35, 70), whole(I64, 35, 70), targets=[target])


@pytest.mark.parametrize("dims", [(0, 1, 2), (0, 2), (1, 2), (0, 1), (1,), ()])
def test_dims_that_are_reduced_together(dims: tuple[int, ...]) -> None:
    def build(b: GraphBuilder, x: Value) -> list[Value]:
        return [
            b.emit("reduce_sum", b.emit("exp", x), dims=dims),
            b.emit("reduce_max", x, dims=dims),
        ]

    made = graph(build, (F32, (4, 5, 6)))
    check(made, whole(F32, 4, 5, 6), interpret=True)


@pytest.mark.parametrize(
    ("shape", "dims"),
    [((1, 9), (0,)), ((9, 1), (1,)), ((9, 1, 3), (1, 2)), ((1, 1), (0, 1)), ((), ()), ((1,), (0,))],
)
def test_dims_of_one(shape: tuple[int, ...], dims: tuple[int, ...]) -> None:
    def build(b: GraphBuilder, x: Value) -> list[Value]:
        return [b.emit("reduce_prod", x, dims=dims), *(b.emit("argmax", x, dim=d) for d in dims)]

    check(graph(build, (F32, shape)), whole(F32, *shape), interpret=True)


@pytest.mark.parametrize("dtype", [F32, I64], ids=str)
@pytest.mark.parametrize(
    ("shape", "dims"), [((0,), (0,)), ((3, 0), (1,)), ((0, 3), (0,)), ((2, 0, 3), (1, 2))]
)
def test_reductions_of_nothing(dtype: DType, shape: tuple[int, ...], dims: tuple[int, ...]) -> None:
    made = graph(
        lambda b, x: [b.emit(op, x, dims=dims) for op in ("reduce_sum", "reduce_prod")],
        (dtype, shape),
    )
    check(made, whole(dtype, *shape), interpret=True)


@pytest.mark.parametrize("shape", [(5, 5, 5), (3, 7, 6), (4, 2, 33)])
def test_a_reduction_read_through_a_reshape(shape: tuple[int, ...]) -> None:
    def build(b: GraphBuilder, x: Value) -> Value:
        kept = (shape[0], 1, shape[2])
        total = b.emit("reshape", b.emit("reduce_sum", x, dims=(1,)), shape=kept)
        centred = b.emit("sub", x, b.emit("expand", b.emit("neg", total), shape=shape))
        squares = b.emit("reduce_sum", b.emit("mul", centred, centred), dims=(1,))
        kept_squares = b.emit("tanh", b.emit("reshape", squares, shape=kept))
        return b.emit("sqrt", b.emit("reshape", kept_squares, shape=(shape[0], shape[2])))

    made = graph(build, (F32, shape))
    check(made, whole(F32, *shape), targets=OLDER, interpret=True)


def test_nan_and_infinities() -> None:
    inf, nan = float("inf"), float("nan")
    x = torch.full((4, 40), -inf)
    x[1, 17], x[1, 30] = nan, nan
    x[2, 39] = inf
    x[3, 0] = -0.0

    def build(b: GraphBuilder, x: Value) -> list[Value]:
        found = [b.emit(op, x, dims=(1,)) for op in ("reduce_max", "reduce_min", "reduce_sum")]
        return found + [b.emit(op, x, dim=1) for op in ("argmax", "argmin")]

    check(graph(build, (F32, (4, 40))), x, targets=OLDER, interpret=True)


def test_the_first_of_equal_extremes_wins() -> None:
    x = torch.zeros(2, 100)
    x[:, 13::20] = 1
    x[1, 77] = 2
    made = graph(
        lambda b, v: [b.emit("argmax", v, dim=1), b.emit("argmin", v, dim=1)], (F32, (2, 100))
    )
    check(made, x, targets=OLDER, interpret=True)


def test_half_types_are_summed_in_f32() -> None:
    x = torch.full((2, 4096), 1.0, dtype=torch.bfloat16)
    made = graph(lambda b, v: b.emit("reduce_sum", v, dims=(1,)), (BF16, (2, 4096)))
    check(made, x, targets=OLDER)


@pytest.mark.parametrize("op", ["div", "rem", "pow"])
@pytest.mark.parametrize("length", [1, 3, 5, 13])
def test_lanes_behind_the_end_are_left_out_whatever_they_compute(length: int, op: str) -> None:
    # They hold 0 and 0: their quotient is NaN, which LLVM takes for 0 where it knows the lanes.
    def build(b: GraphBuilder, x: Value, y: Value) -> list[Value]:
        quotient = b.emit(op, x, y)
        flat = b.emit("reshape", b.emit("div", x, y), shape=(2 * length,))
        return [b.emit("reduce_sum", v, dims=(len(v.shape) - 1,)) for v in (quotient, flat)]

    made = graph(build, (F32, (2, length)), (F32, (2, length)))
    x = whole(F32, 2, length, low=1)
    check(made, x, whole(F32, 2, length, low=1), targets=OLDER, interpret=True)


@pytest.mark.parametrize("length", [1, 15, 16, 17, 127, 128, 129, 1000])
def test_lengths_around_the_unrolled_loop(length: int) -> None:
    def build(b: GraphBuilder, x: Value) -> list[Value]:
        return [b.emit("reduce_sum", x, dims=(1,)), b.emit("argmax", x, dim=1)]

    check(graph(build, (F32, (3, length))), whole(F32, 3, length))


# ---- several passes over a row --------------------------------------------------------------


def softmax(b: GraphBuilder, x: Value, dim: int) -> Value:
    kept = (*x.shape[:dim], 1, *x.shape[dim + 1 :])

    def wide(reduced: Value) -> Value:
        return b.emit("expand", b.emit("reshape", reduced, shape=kept), shape=x.shape)

    e = b.emit("exp", b.emit("sub", x, wide(b.emit("reduce_max", x, dims=(dim,)))))
    return b.emit("div", e, wide(b.emit("reduce_sum", e, dims=(dim,))))


def launches(made: Graph) -> list[Launch]:
    return [step for step in lowered(made).plan.steps if isinstance(step, Launch)]


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("dtype", [F32, BF16, F64], ids=str)
def test_softmax(dtype: DType, dim: int) -> None:
    made = graph(lambda b, x: softmax(b, x, dim), (dtype, (5, 18, 33)))
    assert len(launches(made)) == 1
    check(made, torch.randn(5, 18, 33).to(to_torch(dtype)), targets=OLDER if dtype == F32 else ())


def test_expensive_values_of_a_row_are_kept_in_scratch() -> None:
    made = graph(lambda b, x: softmax(b, x, 1), (F32, (5, 2000)))
    assert launches(made)[0].scratch == 2000 * 4
    check(made, torch.randn(5, 2000), interpret=True)


ROWS = [(4, 50), (5, 50), (26, 1024), (1, 3, 70), (2, 2000), (6, 3), (43, 384)]


@pytest.mark.parametrize("shape", ROWS)
def test_rows_two_at_a_time(shape: tuple[int, ...]) -> None:
    """Each has its own place in scratch; rows that are long, and the last of an odd number, go one
    by one."""
    last = len(shape) - 1
    made = graph(lambda b, x: softmax(b, x, last), (F32, shape))
    long = shape[-1] > MOST_TOGETHER
    plan = lowered(made, profile("x86-64-v4")).plan
    assert isinstance(plan.steps[0], Launch)
    assert plan.steps[0].scratch == (shape[-1] if long else -(-shape[-1] // 16) * 16 * 2) * 4
    check(made, torch.randn(shape), targets=OLDER, interpret=True)


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 10, 21, 42, 43])
def test_a_number_of_rows_that_is_not_known_goes_two_at_a_time_too(rows: int) -> None:
    made = graph(lambda b, x: softmax(b, x, 1), (F32, (sym("m"), 384)))
    plan = lowered(made, profile("x86-64-v4")).plan
    assert isinstance(plan.steps[0], Launch) and plan.steps[0].scratch == 384 * 2 * 4
    check(made, torch.randn(rows, 384), targets=OLDER, interpret=True)


@pytest.mark.parametrize("dims", [(1,), (0,)], ids=["inner", "outer"])
def test_the_largest_number_of_rows_with_others_than_numbers(dims: tuple[int, ...]) -> None:
    x = torch.randn(6, 37)
    x[1, 3], x[2], x[3, :5], x[4, 2], x[5, 0] = torch.nan, torch.nan, -torch.inf, torch.inf, 3e38
    made = graph(lambda b, v: [b.emit("reduce_maxnum", v, dims=dims)], (F32, (6, 37)))
    check(made, x, targets=OLDER, interpret=True)


def test_rows_too_long_for_scratch_are_computed_again() -> None:
    made = graph(lambda b, x: softmax(b, x, 1), (F32, (2, 70000)))
    assert launches(made)[0].scratch == 0
    check(made, torch.randn(2, 70000))


def test_a_piece_behind_a_condition_is_not_kept_ahead_of_it() -> None:
    def build(b: GraphBuilder, x: Value, y: Value) -> Value:
        joined = b.emit("concat", x, b.emit("tanh", y), dim=1)
        least = b.emit("reshape", b.emit("reduce_min", joined, dims=(0, 1)), shape=(1, 1))
        return b.emit("mul", joined, b.emit("expand", least, shape=(8, 20)))

    made = graph(build, (F64, (8, 12)), (F64, (8, 8)))
    check(made, torch.randn(8, 12).double(), torch.randn(8, 8).double(), interpret=True)


def test_what_a_row_shares_may_lie_behind_a_condition() -> None:
    def build(b: GraphBuilder, x: Value, y: Value) -> Value:
        joined = b.emit("concat", b.emit("tanh", y), b.emit("exp", y), dim=0)
        wide = b.emit("expand", b.emit("reshape", joined, shape=(10, 1)), shape=(10, 30))
        scaled = b.emit("mul", x, wide)
        total = b.emit("reshape", b.emit("reduce_sum", scaled, dims=(1,)), shape=(10, 1))
        return b.emit("sub", scaled, b.emit("expand", total, shape=(10, 30)))

    check(
        graph(build, (F32, (10, 30)), (F32, (5,))),
        torch.randn(10, 30),
        torch.randn(5),
        interpret=True,
    )


# ---- symbolic dims --------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(1, 1), (3, 40), (17, 16), (2, 0), (0, 5)])
def test_one_kernel_serves_every_size(sizes: tuple[int, int]) -> None:
    rows, columns = sym("s0"), sym("s1")

    def build(b: GraphBuilder, x: Value, y: Value) -> list[Value]:
        moved = b.emit("add", x, b.emit("expand", y, shape=x.shape))
        return [
            b.emit("exp", moved), b.emit("permute", b.emit("tanh", x), dims=(1, 0)),
            b.emit("reduce_sum", moved, dims=(1,)), b.emit("reduce_sum", moved, dims=(0,)),
        ]  # fmt: skip

    made = graph(build, (F32, (rows, columns)), (F32, (columns,)))
    check(made, whole(F32, *sizes), whole(F32, sizes[1]), targets=OLDER, interpret=True)


@pytest.mark.parametrize("n", [1, 2, 7])
def test_symbols_in_views(n: int) -> None:
    s = sym("s0", 1)

    def build(b: GraphBuilder, x: Value) -> list[Value]:
        flat = b.emit("reshape", x, shape=(s * 6,))
        part = b.emit("slice", x, dim=0, start=s, end=s * 2, step=1)
        turned = b.emit("flip", b.emit("permute", x, dims=(1, 0)), dims=(0, 1))
        joined = b.emit("concat", part, x, dim=0)
        return [b.emit("neg", v) for v in (flat, part, turned, joined)] + [softmax(b, part, 1)]

    b = GraphBuilder("g")
    b.dim_input(s)
    b.graph.results = list(build(b, b.input("x", F32, (s * 2, 3))))
    check(b.graph, n, whole(F32, 2 * n, 3), targets=OLDER, interpret=True)


def test_a_dim_as_data() -> None:
    s = sym("s0")

    def build(b: GraphBuilder, x: Value) -> Value:
        count = b.emit("cast", b.emit("dim_value", value=s * 2 + 1), dtype=F32)
        return b.emit("div", x, b.emit("expand", count, shape=x.shape))

    check(graph(build, (F32, (s, 3))), whole(F32, 5, 3), interpret=True)


def test_large_maps_are_split_over_tasks() -> None:
    made = graph(lambda b, x: b.emit("neg", x), (F32, (50001,)))
    (launch,) = launches(made)
    assert isinstance(launch.tasks, int) and launch.tasks > 1
    check(made, whole(F32, 50001))
    made = graph(
        lambda b, x: [b.emit("reduce_sum", x, dims=(1,)), softmax(b, x, 1)], (F32, (300, 111))
    )
    assert all(isinstance(step.tasks, int) and step.tasks > 1 for step in launches(made))
    check(made, whole(F32, 300, 111))


# ---- rows to come ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "columns", "asked"),
    [(4100, 300, True), (600, 2000, True), (8, 300, False), (40000, 40, False), (50, 30000, False)],
)
def test_rows_to_come_are_asked_for(rows: int, columns: int, asked: bool) -> None:
    # Only what is not in the caches, and not what follows within a page or does not fit anyway.
    def build(b: GraphBuilder, x: Value) -> Value:
        total = b.emit("reshape", b.emit("reduce_sum", x, dims=(1,)), shape=(rows, 1))
        return b.emit("sub", x, b.emit("expand", total, shape=(rows, columns)))

    sums = graph(build, (F32, (rows, columns)))
    made = check(sums, whole(F32, rows, columns))
    assert ("prefetch" in print_kernel(*made.kernels.values())) == asked
    own_caches = lowered(sums, profile("x86-64-v4"))
    assert ("prefetch" in print_kernel(*own_caches.kernels.values())) == asked


def test_the_largest_is_nan_wherever_one_is() -> None:
    def build(b: GraphBuilder, x: Value) -> list[Value]:
        return [b.emit("reduce_max", x, dims=(1,)), b.emit("reduce_min", x, dims=(1,))]

    x = torch.randn(200, 200)
    for row in range(200):
        x[row, row] = torch.nan
    check(graph(build, (F32, (200, 200))), x, targets=OLDER)


@pytest.mark.parametrize("shape", [(40,), (3, 5), (6, 20, 2)], ids=str)
@pytest.mark.parametrize("dtype", [F32, F64, BF16], ids=str)
def test_the_first_of_zeros_of_both_signs(shape: tuple[int, ...], dtype: DType) -> None:
    def build(b: GraphBuilder, x: Value) -> list[Value]:
        return [b.emit("reduce_max", x, dims=(len(shape) - 1,), ordered=True)]

    chosen = torch.randint(0, 4, shape, generator=torch.Generator().manual_seed(len(shape)))
    x = torch.tensor([0.0, -0.0, -1.0, -2.0])[chosen].to(to_torch(dtype))
    x[..., -1] = 0.0
    (found,) = run_compiled(graph(build, (dtype, shape)), [x])
    (meant,) = run_graph(graph(build, (dtype, shape)), [x])
    first = torch.stack([row[row == 0][0] for row in x.reshape(-1, shape[-1])])
    expected = torch.signbit(first.reshape(found.shape))
    assert torch.equal(torch.signbit(found), expected)
    assert torch.equal(torch.signbit(meant), expected)


# ---- what a row keeps for a later pass ---------------------------------------------------------


def norm(b: GraphBuilder, x: Value, view: Callable[[Value], Value]) -> list[Value]:
    """(v - mean) and the sum of its squares, of rows of a view of what takes long to compute."""
    made = x
    for op in ("exp", "tanh", "sin"):
        made = b.emit("cast", b.emit("cast", b.emit(op, made), dtype=BF16), dtype=F32)
    rows = view(made)
    size = (*rows.shape[:-1], 1)

    def mean(value: Value) -> Value:
        found = b.emit("reshape", b.emit("reduce_sum", value, dims=(1,)), shape=size)
        return b.emit("expand", found, shape=rows.shape)

    centred = b.emit("sub", rows, mean(b.emit("mul", rows, rows)))
    return [b.emit("mul", centred, mean(b.emit("mul", centred, centred)))]


VIEWS: dict[str, tuple[tuple[int, ...], Callable[[GraphBuilder, Value], Value]]] = {
    "whole": ((3, 68), lambda b, v: v),
    "split": ((3, 17, 2, 2), lambda b, v: b.emit("reshape", v, shape=(3, 68))),
    "split and turned": (
        (3, 2, 34),
        lambda b, v: b.emit("reshape", b.emit("permute", v, dims=(0, 2, 1)), shape=(3, 68)),
    ),
    "part": ((3, 80), lambda b, v: b.emit("slice", v, dim=1, start=7, end=75, step=1)),
    "every second": ((3, 136), lambda b, v: b.emit("slice", v, dim=1, start=0, end=136, step=2)),
    "from the end": ((3, 68), lambda b, v: b.emit("flip", v, dims=(1,))),
}


@pytest.mark.parametrize("view", VIEWS)
def test_what_a_row_keeps_is_told_apart_and_inside_its_room(view: str) -> None:
    """A component of an index that is a part of an axis, or beyond it, is no place in a row."""
    shape, make = VIEWS[view]
    check(
        graph(lambda b, x: norm(b, x, lambda value: make(b, value)), (F32, shape)),
        torch.rand(shape) * 2 - 1, targets=OLDER, interpret=True,
    )  # fmt: skip
