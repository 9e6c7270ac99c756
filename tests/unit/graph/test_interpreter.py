"""The graph interpreter against torch, operator by operator where the meaning could be missed."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from kernelmill.core.dim import Sym, of_atom, sym
from kernelmill.core.dtype import (
    BF16,
    BOOL,
    F16,
    F32,
    I8,
    I32,
    I64,
    U8,
    DType,
    InputRole,
    from_torch,
)
from kernelmill.core.errors import InputError, VerificationError
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.interpreter import run_graph
from kernelmill.graph.ir import TensorType
from kernelmill.graph.verifier import verify_graph


def run(op: str, *operands: Tensor, **attrs: object) -> Tensor:
    """The only result of one node."""
    b = GraphBuilder("one")
    values = []
    for number, operand in enumerate(operands):
        dtype = from_torch(operand.dtype)
        assert dtype is not None
        values.append(b.input(f"x{number}", dtype, operand.shape, operand.stride()))
    b.graph.results = [b.emit(op, *values, **attrs)]  # type: ignore[arg-type]
    verify_graph(b.graph)
    (result,) = run_graph(b.graph, list(operands))
    assert isinstance(result, Tensor)
    return result


def equal(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


def ints(*values: int, dtype: torch.dtype = torch.int32) -> Tensor:
    return torch.tensor(values, dtype=dtype)


# ---- pointwise ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("div", (-3, 3, 0, 0, -3)),
        ("rem", (-1, 1, 0, 0, 1)),
        ("floordiv", (-4, 3, 0, 0, -4)),
        ("mod", (1, 1, 0, 0, -1)),
    ],
)
def test_integer_division(op: str, expected: tuple[int, ...]) -> None:
    a = ints(-7, 7, 5, -(2**31), 7)
    b = ints(2, 2, 0, -1, -2)
    equal(run(op, a, b), ints(*expected))


def test_unsigned_division_has_no_minus_one() -> None:
    a, b = ints(255, 9, dtype=torch.uint8), ints(255, 0, dtype=torch.uint8)
    equal(run("div", a, b), ints(1, 0, dtype=torch.uint8))


@pytest.mark.parametrize("op", ["floordiv", "mod", "rem"])
def test_float_division_is_python_s(op: str) -> None:
    a, b = torch.tensor([-7.5, 7.5, 1.0, 0.3]), torch.tensor([2.0, -2.0, 0.0, 0.1])
    compute = {"floordiv": lambda x, y: x // y, "mod": lambda x, y: x % y, "rem": math.fmod}[op]
    expected = [compute(float(x), float(y)) for x, y in zip(a[:2], b[:2], strict=True)]
    equal(run(op, a, b)[:2], torch.tensor(expected))


def test_maximum_and_minimum_give_nan_when_either_is() -> None:
    a, b = torch.tensor([math.nan, 1.0, 2.0]), torch.tensor([1.0, math.nan, 3.0])
    equal(run("maximum", a, b), torch.tensor([math.nan, math.nan, 3.0]))
    equal(run("minimum", a, b), torch.tensor([math.nan, math.nan, 2.0]))


def test_half_types_round_once_after_each_operator() -> None:
    x = torch.tensor([1.0, 256.0], dtype=torch.bfloat16)
    equal(run("add", x, torch.ones_like(x)), torch.tensor([2.0, 256.0], dtype=torch.bfloat16))
    equal(run("exp", x.half()), x.exp().half())


def test_nextafter_moves_to_the_neighbour_in_its_own_type() -> None:
    x = torch.tensor([1.0], dtype=torch.bfloat16)
    equal(run("nextafter", x, x * 2), torch.tensor([1.0078125], dtype=torch.bfloat16))


def test_bool_arithmetic_is_logic() -> None:
    a, b = torch.tensor([True, True, False]), torch.tensor([True, False, False])
    equal(run("add", a, b), a | b)
    equal(run("sub", a, b), a ^ b)
    equal(run("mul", a, b), a & b)
    equal(run("maximum", a, b), a | b)


def test_shifts_by_too_much() -> None:
    a, b = ints(-5, 5, 5, -5), ints(40, 32, -1, 1)
    equal(run("shl", a, b), ints(0, 0, 0, -10))
    equal(run("shr", a, b), ints(-1, 0, 0, -3))


def test_bitcast_keeps_the_bits() -> None:
    equal(run("bitcast", torch.tensor([1.0]), dtype=I32), ints(0x3F800000))


# ---- sources and views ----------------------------------------------------------------------


def test_sources() -> None:
    equal(run("full", value=2.5, dtype=F16, shape=(2, 0)), torch.full((2, 0), 2.5).half())
    equal(run("iota", dim=1, shape=(2, 3)), torch.tensor([[0, 1, 2]] * 2))
    equal(run("dim_value", value=7), torch.tensor(7))


def test_window_is_unfold_with_padding_and_dilation() -> None:
    x = torch.randn(2, 3, 9, 8)
    windows = run(
        "window", x, dims=(2, 3), size=(3, 2), stride=(2, 1), dilation=(1, 3), low=(1, 0),
        high=(1, 0), value=0.0,
    )  # fmt: skip
    unfolded = F.unfold(x, (3, 2), dilation=(1, 3), padding=(1, 0), stride=(2, 1))
    assert windows.shape == (2, 3, 5, 5, 3, 2)
    equal(windows.permute(0, 1, 4, 5, 2, 3).reshape(2, 18, 25), unfolded)


def test_pad_and_as_strided() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    padded = run("pad", x, low=(1, 0), high=(0, 2), value=-1.0)
    equal(padded, F.pad(x, (0, 2, 1, 0), value=-1.0))
    # Strides count elements of the dense tensor, however the operand lies in memory.
    strided = run("as_strided", x.t().contiguous().t(), shape=(2, 2), strides=(1, 3), offset=1)
    equal(strided, torch.tensor([[1.0, 4.0], [2.0, 5.0]]))


def test_as_strided_counts_from_its_operand_not_from_the_memory_below() -> None:
    b = GraphBuilder("twice")
    first = b.emit("as_strided", b.input("x", F32, (6,)), shape=(2,), strides=(1,), offset=3)
    b.graph.results = [b.emit("as_strided", first, shape=(), strides=(), offset=1)]
    (result,) = run_graph(b.graph, [torch.arange(6.0)])
    assert isinstance(result, Tensor)
    equal(result, torch.tensor(4.0))


def test_layout_changes_memory_alone() -> None:
    x = torch.randn(2, 3, 4)
    laid = run("layout", x, strides=(1, 8, 2))
    assert laid.stride() == (1, 8, 2)
    equal(laid, x)


# ---- reductions -----------------------------------------------------------------------------


def test_half_sums_are_done_in_f32() -> None:
    x = torch.full((1000,), 1.0, dtype=torch.bfloat16)
    equal(run("reduce_sum", x, dims=(0,)), torch.tensor(1000.0, dtype=torch.bfloat16))
    equal(run("cumsum", x, dim=0)[-1], torch.tensor(1000.0, dtype=torch.bfloat16))


def test_integer_sums_wrap() -> None:
    x = torch.full((3,), 100, dtype=torch.int8)
    equal(run("reduce_sum", x, dims=(0,)), torch.tensor(44, dtype=torch.int8))
    equal(run("reduce_prod", x, dims=(0,)), torch.tensor(64, dtype=torch.int8))
    equal(run("cumsum", x, dim=0), torch.tensor([100, -56, 44], dtype=torch.int8))


def test_reductions_over_no_dims_change_nothing() -> None:
    x = torch.randn(2, 3)
    for op in ("reduce_sum", "reduce_prod", "reduce_max", "reduce_min"):
        equal(run(op, x, dims=()), x)


def test_any_and_all() -> None:
    x = torch.tensor([[True, False], [False, False]])
    equal(run("reduce_max", x, dims=(1,)), x.any(1))
    equal(run("reduce_min", x, dims=(0, 1)), x.all())


def test_arguments_of_extremes() -> None:
    x = torch.tensor([[1.0, 3.0, 3.0], [2.0, math.nan, math.nan]])
    equal(run("argmax", x, dim=1), torch.tensor([1, 1]))
    equal(run("argmin", x, dim=1), torch.tensor([0, 1]))
    equal(run("argmax", torch.tensor([False, True, True]), dim=0), torch.tensor(1))


# ---- contractions ---------------------------------------------------------------------------


def test_half_matmul_sums_in_f32() -> None:
    a, b = torch.randn(3, 300).bfloat16(), torch.randn(300, 4).bfloat16()
    equal(run("matmul", a, b), (a.float() @ b.float()).bfloat16())


def test_groups_of_rows_have_a_matrix_each() -> None:
    a, b = torch.randn(5, 4).bfloat16(), torch.randn(3, 4, 2).bfloat16()
    found = run("grouped_matmul", a, b, ints(2, 2, 3))
    equal(found[:2], a[:2] @ b[0])
    equal(found[2:3], a[2:3] @ b[2])
    equal(found[3:], torch.zeros(2, 2, dtype=torch.bfloat16))
    equal(run("grouped_matmul", a, b, ints(0, 0, 9))[4:], a[4:] @ b[2])
    with pytest.raises(IndexError, match="ends at 1, before it begins at 2"):
        run("grouped_matmul", a, b, ints(2, 1, 5))


def test_orders() -> None:
    x = torch.tensor([[1.0, math.nan, -0.0, 0.0, math.inf]])
    order = run("argsort", x, dim=1, descending=False, stable=True)
    equal(order, torch.tensor([[2, 3, 0, 4, 1]]))
    equal(run("argtopk", x, dim=1, k=2, largest=True, sorted=True), torch.tensor([[1, 4]]))
    row, values = torch.tensor([-1.0, 0.0, -0.0, math.nan]), torch.tensor([0.0, math.nan, -2.0])
    before = run("searchsorted", row, values, right=False, dtype=I64)
    equal(before, torch.tensor([1, 4, 0]))
    behind = run("searchsorted", row, values, right=True, dtype=I32)
    equal(behind, torch.tensor([4, 4, 0], dtype=torch.int32))  # NaN is not above 0, as in eager
    one = torch.zeros(1).expand(20)
    assert run("argsort", one, dim=0, descending=True, stable=False).tolist() != list(range(20))


def test_conv() -> None:
    x, w = torch.randn(2, 4, 9, 7), torch.randn(6, 2, 3, 2)
    geometry = {"stride": (2, 1), "padding": (1, 0), "dilation": (2, 1)}
    equal(run("conv", x, w, groups=2, **geometry), F.conv2d(x, w, None, groups=2, **geometry))


@pytest.mark.parametrize("mask", ["none", "bool", "added"])
@pytest.mark.parametrize("causal", [False, True])
def test_attention(mask: str, causal: bool) -> None:
    query, key, value = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 6, 8), torch.randn(2, 2, 6, 3)
    kept = torch.rand(5, 6) > 0.3
    kept[2] = False
    given = {"none": [], "bool": [kept], "added": [torch.randn(2, 1, 5, 6)]}[mask]
    expected_mask = torch.ones(5, 6).tril().log() if causal else torch.zeros(5, 6)
    if mask == "bool":
        expected_mask = expected_mask.masked_fill(~kept, -math.inf)
    elif mask == "added":
        expected_mask = expected_mask + given[0]
    expected = F.scaled_dot_product_attention(
        query, key, value, expected_mask, scale=0.3, enable_gqa=True
    )
    actual = run("attention", query, key, value, *given, scale=0.3, causal=causal)
    torch.testing.assert_close(actual, expected)


# ---- gather and scatter ---------------------------------------------------------------------


def test_index_at_every_position() -> None:
    x = torch.randn(3, 4, 5)
    rows, columns = torch.tensor([[0, -1], [2, 1]]), torch.tensor([[4, 0], [-5, 2]])
    equal(run("index", x, rows, columns, dims=(0, 2), at=0), x[rows, :, columns])
    equal(run("index", x, rows, columns, dims=(0, 2), at=1), x[rows, :, columns].movedim(2, 0))
    equal(run("index", x, rows, dims=(1,), at=1), x[:, rows])


@pytest.mark.parametrize("bad", [3, -4])
def test_an_index_out_of_range_raises(bad: int) -> None:
    x = torch.randn(3)
    with pytest.raises(IndexError, match="out of range for size 3"):
        run("index", x, torch.tensor([bad]), dims=(0,), at=0)
    with pytest.raises(IndexError, match="out of range for size 3"):
        run("gather", x, torch.tensor([bad]), dim=0)


def test_gather_and_scatter_count_from_the_end_too() -> None:
    x, places = torch.arange(12.0).reshape(3, 4), torch.tensor([[0, -1], [2, -3]])
    wrapped = places % 3
    equal(run("gather", x, places, dim=0), x.gather(0, wrapped))
    source = -torch.ones(2, 2)
    equal(run("scatter", x, places, source, dim=0, mode="set"), x.scatter(0, wrapped, source))


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("add", [1, 7, 3]), ("mul", [1, 12, 3]), ("max", [1, 3, 3]), ("min", [1, 2, 3])],
)
def test_modes_of_scatter_and_index_put(mode: str, expected: list[int]) -> None:
    x, index, source = ints(1, 2, 3), torch.tensor([1, 1]), ints(3, 2)
    if mode == "mul":
        expected = [1, 2 * 3 * 2, 3]
    equal(run("scatter", x, index, source, dim=0, mode=mode), ints(*expected))
    equal(run("index_put", x, source, index, dims=(0,), at=0, mode=mode), ints(*expected))


def test_scatter_on_bool() -> None:
    x, index = torch.tensor([False, True]), torch.tensor([0, 1])
    source = torch.tensor([True, False])
    equal(run("scatter", x, index, source, dim=0, mode="add"), torch.tensor([True, True]))
    equal(run("scatter", x, index, source, dim=0, mode="mul"), torch.tensor([False, False]))


def test_index_put_at_every_position() -> None:
    x = torch.randn(3, 4, 5)
    rows, columns = torch.tensor([0, -1]), torch.tensor([4, 1])
    values = torch.randn(2, 4)
    expected = x.clone()
    expected[rows, :, columns] = values
    equal(run("index_put", x, values, rows, columns, dims=(0, 2), at=0, mode="set"), expected)
    turned = run("index_put", x, values.t(), rows, columns, dims=(0, 2), at=1, mode="set")
    equal(turned, expected)


# ---- whole graphs ---------------------------------------------------------------------------


def test_updates_are_written_last_and_all_at_once() -> None:
    b = GraphBuilder("swap")
    x, y = (
        b.input("x", F32, (2,), role=InputRole.BUFFER),
        b.input("y", F32, (2,), role=InputRole.BUFFER),
    )
    total = b.emit("add", x, y)
    b.graph.updates = [(x, y), (y, x)]
    b.graph.results = [total, x]
    first, second = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    results = run_graph(b.graph, [first, second])
    equal(first, torch.tensor([3.0, 4.0]))
    equal(second, torch.tensor([1.0, 2.0]))
    assert isinstance(results[0], Tensor) and results[1] is first
    equal(results[0], torch.tensor([4.0, 6.0]))


def test_results_do_not_share_memory_with_inputs() -> None:
    b = GraphBuilder("view")
    b.graph.results = [b.emit("reshape", b.input("x", F32, (4,)), shape=(2, 2))]
    x = torch.zeros(4)
    (result,) = run_graph(b.graph, [x])
    x.fill_(1)
    assert isinstance(result, Tensor)
    equal(result, torch.zeros(2, 2))


def test_symbols_come_from_shapes_arguments_and_results() -> None:
    b = GraphBuilder("symbols")
    n, m, k = sym("n", 1), sym("m"), of_atom(Sym("k"))
    x = b.input("x", I64, (n * 2 + m,))
    b.dim_input(m)
    b.symbol(Sym("k"))
    (found,) = b.emit_many(
        "aten", x, target="aten.nonzero.default", args=(("tensor", 0),), kwargs=(),
        results=((I64, (k, 1), None),), binds=(("k", 0, 0),), reason="",
    )  # fmt: skip
    b.graph.results = [n, k * 10, b.emit("dim_value", value=k + n), None, found]
    verify_graph(b.graph)
    results = run_graph(b.graph, [torch.tensor([5, 0, 7, 0, 0, 0, 1]), 3])
    assert results[:2] == [2, 30] and results[3] is None
    assert isinstance(results[2], Tensor) and int(results[2]) == 5


def _aten(target: str, results: list[TensorType], args: object, kwargs: object) -> list[Tensor]:
    b = GraphBuilder("aten")
    x = b.input("x", F32, (4,))
    types = tuple((kind.dtype, kind.shape, kind.strides) for kind in results)
    values = b.emit_many(
        "aten", x, target=target, args=args, kwargs=kwargs, results=types, binds=(), reason="",
    )  # type: ignore[arg-type]  # fmt: skip
    b.graph.results = list(values)
    verify_graph(b.graph)
    found = run_graph(b.graph, [torch.tensor([3.0, 1.0, 2.0, 0.0])])
    return [tensor for tensor in found if isinstance(tensor, Tensor)]


def test_arguments_of_aten_calls() -> None:
    values, order = _aten(
        "aten.sort.stable", [TensorType(F32, (4,)), TensorType(I64, (4,))],
        (("tensor", 0),), (("stable", True), ("descending", True)),
    )  # fmt: skip
    equal(order, torch.tensor([0, 2, 1, 3]))
    equal(values, torch.tensor([3.0, 2.0, 1.0, 0.0]))
    (made,) = _aten(
        "aten.empty.memory_format", [TensorType(F16, (2, 0))], (("list", 2, 0),),
        (("dtype", F16), ("device", ("device", "cpu")), ("layout", ("layout", "strided")),
         ("memory_format", ("memory_format", "contiguous_format"))),
    )  # fmt: skip
    assert made.dtype == torch.float16
    pieces = _aten(
        "aten.split.Tensor", [TensorType(F32, (2,))] * 2, (("tensor", 0), 2), ()
    )  # fmt: skip
    equal(torch.cat(pieces), torch.tensor([3.0, 1.0, 2.0, 0.0]))


def _typed(dtype: DType, *shape: int) -> GraphBuilder:
    b = GraphBuilder("g")
    b.graph.results = [b.emit("abs", b.input("x", dtype, (sym("n"), *shape)))]
    return b


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "g takes 1 inputs, not 0"),
        ([3], "input %x is a tensor, not int"),
        ([torch.zeros(2, 3, dtype=torch.float64)], "input %x is f32.*not torch.float64"),
        ([torch.zeros(2)], "input %x is f32"),
        ([torch.zeros(2, 4)], "input %x: a size is 4, which does not fit 3"),
    ],
)
def test_arguments_that_do_not_fit(arguments: list[Tensor | int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run_graph(_typed(F32, 3).graph, arguments)


def test_one_symbol_has_one_value() -> None:
    b = _typed(I8)
    b.input("y", U8, (sym("n") + 1,))
    with pytest.raises(InputError, match="input %y: a size is 2, which does not fit n"):
        run_graph(b.graph, [torch.zeros(2, dtype=torch.int8), torch.zeros(2, dtype=torch.uint8)])


def test_a_type_that_lies_is_found_out() -> None:
    b = GraphBuilder("g")
    x = b.input("x", BF16, (2,))
    value = b.emit("neg", x)
    value.type = TensorType(BOOL, (2,))
    with pytest.raises(VerificationError, match=r"neg\(%x\).*gave torch.bfloat16"):
        run_graph(b.graph, [torch.zeros(2, dtype=torch.bfloat16)])
