"""Products with few columns, summed along k: results, edges, and when they are made so."""

from __future__ import annotations

import pytest
import torch

from kernelmill.core.dim import sym
from kernelmill.core.dtype import BF16, F16, F32, F64, I8, I64, DType, InputRole
from kernelmill.core.target.machine import Machine, profile
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Graph
from kernelmill.lower.templates.matmul.few_columns import FewColumns
from kernelmill.lower.templates.matmul.schedule import Schedule, plan_contraction
from tests.compiled import check, lowered, program, whole
from tests.unit.lower.templates.matmul.compiled import Case

AVX2, AVX512 = profile("x86-64-v3"), profile("x86-64-v4")
OLDER = (profile("x86-64-v2"), AVX2)


def schedule_of(case: Case, machine: Machine = AVX512) -> Schedule:
    return plan_contraction(case.spec, machine)


def layer(
    dtype: DType, rows: int, depth: int, outs: int, turned: bool = False, constant: bool = True
) -> Graph:
    """Rows times weights, which a linear layer has as (outs, depth)."""
    b = GraphBuilder("g")
    x = b.input("x", dtype, (rows, depth))
    shape = (depth, outs) if turned else (outs, depth)
    role = InputRole.PARAM if constant else InputRole.USER
    weight = b.input("w", dtype, shape, role=role)
    if not turned:
        weight = b.emit("permute", weight, dims=(1, 0))
    b.graph.results = [b.emit("matmul", x, weight)]
    return b.graph


@pytest.mark.parametrize("outs", [2, 5, 12])
@pytest.mark.parametrize("rows", [1, 4, 9, 40])
@pytest.mark.parametrize("depth", [16, 37, 300])
def test_rows_and_k_that_do_not_fill_tiles(rows: int, depth: int, outs: int) -> None:
    check(layer(F32, rows, depth, outs), whole(F32, rows, depth), whole(F32, outs, depth))


@pytest.mark.parametrize("dtype", [F64, BF16, F16, I8, I64], ids=str)
def test_other_dtypes(dtype: DType) -> None:
    made = layer(dtype, 9, 75, 3)
    check(made, whole(dtype, 9, 75), whole(dtype, 3, 75), targets=OLDER)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("constant", [False, True])
def test_weights_in_either_order_constant_or_not(turned: bool, constant: bool) -> None:
    made = layer(F32, 21, 40, 2, turned, constant)
    weight = whole(F32, *((40, 2) if turned else (2, 40)))
    check(made, whole(F32, 21, 40), weight, targets=OLDER, interpret=not constant)


def test_batches_rows_that_are_not_known_and_an_epilogue() -> None:
    rows = sym("s0", 0, 1000)
    b = GraphBuilder("g")
    b.graph.symbols["s0"] = rows
    x = b.input("x", F32, (3, rows, 40))
    weight = b.emit("permute", b.input("w", F32, (4, 40), role=InputRole.PARAM), dims=(1, 0))
    product = b.emit("matmul", x, b.emit("expand", weight, shape=(3, 40, 4)))
    b.graph.results = [b.emit("tanh", product)]
    for count in (1, 7, 33):
        check(b.graph, whole(F32, 3, count, 40), whole(F32, 4, 40) / 64)


@pytest.mark.parametrize("constant", [False, True])
def test_what_fills_rows_beyond_the_last_k_does_not_count(constant: bool) -> None:
    """Infinity times the zeros of lanes that are masked off."""
    b = GraphBuilder("g")
    x = b.input("x", F32, (9, 101))
    rows = b.emit("pad", x, low=(2, 0), high=(1, 0), value=float("inf"))
    role = InputRole.PARAM if constant else InputRole.USER
    weight = b.emit("permute", b.input("w", F32, (2, 101), role=role), dims=(1, 0))
    b.graph.results = [b.emit("matmul", rows, weight)]
    check(b.graph, whole(F32, 9, 101), whole(F32, 2, 101) + 5)


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_numbers_that_are_not_finite_stay_in_their_row_and_column(value: float) -> None:
    x, weight = whole(F32, 9, 37), whole(F32, 3, 37) + 9
    x[4, 36] = value
    weight[1, 5] = value
    check(layer(F32, 9, 37, 3), x, weight)


def test_results_have_the_same_bits_whatever_the_number_of_threads() -> None:
    run = program(lowered(layer(F32, 2000, 300, 3)))
    x, weight = torch.randn(2000, 300), torch.randn(3, 300)
    threads = torch.get_num_threads()
    try:
        results: list[torch.Tensor] = []
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            (result,) = run(x, weight)
            assert isinstance(result, torch.Tensor)
            results.append(result.clone())
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(results[0], other) for other in results[1:])
    torch.testing.assert_close(results[0], x @ weight.t(), rtol=1e-4, atol=1e-4)


def test_it_is_chosen_where_vectors_along_n_would_be_mostly_empty() -> None:
    assert isinstance(schedule_of(Case(64, 2, (768,), b="k")), FewColumns)
    assert isinstance(schedule_of(Case(64, 8, (768,), b="k")), FewColumns)
    assert isinstance(schedule_of(Case(64, 2, (768,), b="k"), AVX2), FewColumns)
    assert not isinstance(schedule_of(Case(64, 1, (768,), b="k")), FewColumns)
    assert not isinstance(schedule_of(Case(64, 16, (768,), b="k")), FewColumns)
    assert not isinstance(schedule_of(Case(64, 2, (8,), b="k")), FewColumns)
    assert not isinstance(schedule_of(Case(64, 2, (768,), b="outer")), FewColumns)
    assert not isinstance(schedule_of(Case(64, 2, (768,), a="outer", b="k")), FewColumns)


@pytest.mark.parametrize("m", [5, 8, 50])
@pytest.mark.parametrize("machine", [AVX2, AVX512])
def test_every_candidate_is_right(m: int, machine: Machine) -> None:
    case = Case(m, 3, (45,), b="k", target=machine)
    for candidate in schedule_of(case, machine).candidates(case.spec):
        Case(
            m, 3, (45,), b="k", target=machine,
            adjust=lambda _, c=candidate: plan_contraction(case.spec, machine, c),
        ).check()  # fmt: skip


def test_the_weight_is_packed_once_column_after_column() -> None:
    made = layer(F32, 21, 40, 2, turned=True)
    plan = check(made, whole(F32, 21, 40), whole(F32, 40, 2)).plan
    assert len(plan.prepare) == len(plan.steps) == 1
    packed = [buffer for buffer in plan.buffers if buffer.kind == "packed"]
    assert [buffer.shape for buffer in packed] == [(2, 40, 1)]
