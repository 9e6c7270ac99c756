"""What the rules decide, on a processor that is spelt out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest

from kernelmill.core.dim import Dim, evaluate, sym
from kernelmill.core.dtype import F32, F64, I64
from kernelmill.core.target.machine import Machine, profile
from kernelmill.kernel.ir import TASK, For, If, Prefetch, Stmt
from kernelmill.lower.emit.context import LINE_BYTES
from kernelmill.lower.emit.packed import AHEAD_BYTES
from kernelmill.lower.templates.matmul.along_k import InnerProduct
from kernelmill.lower.templates.matmul.blocked import Blocked
from kernelmill.lower.templates.matmul.blocked_tiles import (
    FromRegisters,
    InDepthBlocks,
    ReadA,
    ReadB,
    ThroughScratch,
)
from kernelmill.lower.templates.matmul.schedule import Schedule, plan_contraction
from kernelmill.lower.templates.matmul.spec import Contraction
from tests.unit.codegen.native import TARGETS
from tests.unit.lower.templates.matmul.compiled import FLAVOURS, Case, adjusted

AVX2, AVX512 = profile("x86-64-v3"), profile("x86-64-v4")
HERE = Machine(list(TARGETS.values())[-1])


def schedule_of(case: Case, target: Machine = AVX512) -> Schedule:
    return replace(case, target=target).schedule


def plan(case: Case, target: Machine = AVX512) -> Blocked:
    schedule = schedule_of(case, target)
    assert isinstance(schedule, Blocked)
    return schedule


@pytest.mark.parametrize(("target", "registers"), [(AVX2, 16), (AVX512, 32)])
def test_tile_fits_the_registers(target: Machine, registers: int) -> None:
    for m, n, a, b in product((1, 3, 8, 50, 128), (1, 16, 40, 48, 64, 768), FLAVOURS, FLAVOURS):
        schedule = schedule_of(Case(m, n, (64,), a=a, b=b), target)
        assert schedule.rows * schedule.vectors + schedule.vectors + 1 <= registers


@pytest.mark.parametrize(("accumulate", "lanes"), [(F32, 16), (F64, 8), (I64, 8)])
def test_lanes_fill_a_register(accumulate: object, lanes: int) -> None:
    case = Case(4, 64, (8,), dtype=accumulate, accumulate=accumulate)  # pyright: ignore
    assert plan(case).lanes == lanes


def test_packed_weights_are_shared_by_every_number_of_rows() -> None:
    for n in (64, 100, 384, 768, 1000, 3072):
        widths = {plan(Case(m, n, (768,))).width for m in (1, 4, 7, 8, 128, 1000)}
        assert len(widths) == 1, n


def test_no_rows_and_few_columns_are_wasted() -> None:
    assert plan(Case(128, 768, (768,))).rows == 8
    assert plan(Case(5, 768, (768,))).rows == 5
    assert plan(Case(128, 768, (768,))).width == 48
    assert plan(Case(128, 1024, (768,))).width == 32
    assert plan(Case(128, 20, (768,))).width == 32
    assert plan(Case(128, 10, (768,))).width == 16


def test_large_work_is_split_for_many_threads() -> None:
    for case in (
        Case(128, 768, (768,)),
        Case(1, 4096, (4096,)),
        Case(1000, 64, (512,)),
        Case(64, 3136, (64, 3, 3), a="packed", b="computed outer"),
    ):
        tasks = plan(case).tasks(case.spec)
        assert isinstance(tasks, int) and tasks >= 12


def test_small_work_is_one_task() -> None:
    case = Case(4, 64, (64,))
    assert plan(case).tasks(case.spec) == 1


def test_where_operands_are_read() -> None:
    def reads(m: int, n: int, k: int, a: str, b: str) -> tuple[ReadA, ReadB]:
        schedule = plan(Case(m, n, (k,), a=a, b=b))
        return schedule.a, schedule.b

    in_place = ReadA.IN_PLACE, ReadB.IN_PLACE
    assert reads(64, 768, 768, "packed", "k") == (ReadA.PACKED, ReadB.COPIED)
    assert reads(5, 768, 768, "k", "packed") == (ReadA.IN_PLACE, ReadB.PACKED)
    assert reads(5, 768, 768, "computed k", "packed") == (ReadA.COPIED, ReadB.PACKED)
    assert reads(64, 768, 768, "k", "outer") == (ReadA.IN_PLACE, ReadB.COPIED)
    assert reads(64, 64, 64, "k", "outer") == in_place  # its rows are near each other in memory
    assert reads(64, 64, 64, "k", "k") == (ReadA.IN_PLACE, ReadB.COPIED)
    assert reads(1, 768, 768, "k", "outer") == in_place  # read once
    assert reads(1, 768, 9, "k", "computed outer") == in_place


def test_how_sums_come_to_their_store() -> None:
    assert plan(Case(1, 768, (9,), b="outer")).sums == FromRegisters()
    assert plan(Case(1, 768, (768,), b="outer")).sums == ThroughScratch()
    assert plan(Case(2, 768, (9,), b="outer")).sums == ThroughScratch()
    assert isinstance(plan(Case(20, 768, (20_000,), b="outer")).sums, InDepthBlocks)


def test_few_rows_by_columns_of_contiguous_k_are_dot_products() -> None:
    assert isinstance(schedule_of(Case(1, 768, (768,), b="k")), InnerProduct)
    assert isinstance(schedule_of(Case(64, 768, (768,), b="k")), Blocked)
    assert isinstance(schedule_of(Case(1, 768, (768,), b="packed")), Blocked)


def scratch(case: Case, **values: int) -> int:
    return evaluate(plan(case).scratch_bytes(case.spec), values)


def test_scratch_stays_within_the_second_cache() -> None:
    for k in (64, 3072, 20_000, 100_000):
        case = Case(128, 768, (k,), b="outer")
        assert scratch(case) <= AVX512.l2_bytes


def test_packed_rows_beyond_the_second_cache_are_streamed_once_and_in_order() -> None:
    """5 MB of weights over 49 positions: one tile of columns, and no blocks of k."""
    streamed = plan(Case(512, 49, (256, 3, 3), a="packed", b="computed outer"))
    assert (streamed.rows, streamed.vectors, streamed.depth_block) == (6, 4, 0)
    small = plan(Case(64, 49, (64, 3, 3), a="packed", b="computed outer"))
    assert small.vectors < 4
    assert plan(Case(512, 49, (40_000,), a="packed", b="computed outer")).depth_block


def test_symbolic_sizes_need_symbolic_tasks_and_scratch() -> None:
    case = Case(1, 1, (1,), b="outer", dynamic="mnk")
    schedule = plan(case)
    tasks: Dim = schedule.tasks(case.spec)
    assert evaluate(tasks, {"m": 0, "n": 5}) == 0
    assert evaluate(tasks, {"m": 1, "n": 1}) == 1
    assert evaluate(tasks, {"m": 1000, "n": 1000}) > 16
    assert scratch(case, m=8, n=8, k=2000) > scratch(case, m=8, n=8, k=1000)


def test_work_grows_with_the_contraction() -> None:
    def work(spec: Contraction) -> int:
        return evaluate(plan_contraction(spec, AVX512).work, {"m": 128})

    one = Case(128, 768, (768,)).spec
    assert 200_000 < work(one) < 5_000_000
    assert work(replace(one, k=(768 * 2,))) > 1.9 * work(one)
    assert work(replace(one, m=sym("m"))) == work(one)
    assert work(replace(one, accumulate=F32, batch=(3,))) > 2.9 * work(one)


def test_panels_of_constants_that_several_tiles_read_are_fetched_ahead() -> None:
    assert plan(Case(128, 768, (768,))).b is ReadB.PREFETCH
    assert plan(Case(5, 768, (768,))).b is not ReadB.PREFETCH  # read once
    assert plan(Case(128, 64, (64,))).b is not ReadB.PREFETCH  # near enough
    assert plan(Case(128, 768, (768,), b="outer")).b is not ReadB.PREFETCH
    for m in (33, 100):
        assert plan(Case(m, 210, (600,))).b is ReadB.PREFETCH
        Case(m, 210, (600,), target=HERE).check()


def test_panels_of_constants_that_one_tile_reads_are_streamed() -> None:
    assert plan(Case(5, 768, (768,))).streams_b
    assert plan(Case(1, 768, (768,))).streams_b
    assert not plan(Case(128, 768, (768,))).streams_b  # read by several tiles
    assert not plan(Case(5, 64, (64,))).streams_b  # near enough
    assert not plan(Case(5, 768, (768,), b="outer")).streams_b
    for m, n in ((1, 210), (5, 193)):
        assert plan(Case(m, n, (600,))).streams_b
        Case(m, n, (600,), target=HERE).check()


@pytest.mark.parametrize("n", [768, 770])
def test_every_line_of_streamed_panels_is_asked_for_before_it_is_read(n: int) -> None:
    case = Case(2, n, (200,), target=AVX512)
    asked = sorted(index * 4 // LINE_BYTES for index in _prefetched(case, "b"))
    first = AHEAD_BYTES // LINE_BYTES
    panels = -(-n // case.schedule.width) * case.schedule.width
    assert asked == list(range(first, first + panels * 200 * 4 // LINE_BYTES))


def test_rows_that_come_from_far_are_brought_near_a_tile_ahead() -> None:
    assert plan(Case(1024, 768, (768,))).a is ReadA.PREFETCH
    assert plan(Case(1024, 96, (256,), b="outer")).a is ReadA.PREFETCH
    assert plan(Case(64, 768, (768,))).a is not ReadA.PREFETCH  # near enough
    assert plan(Case(8, 768, (20_000,))).a is not ReadA.PREFETCH  # one tile
    for a in ("outer", "strided", "packed", "computed k"):
        assert plan(Case(1024, 768, (768,), a=a)).a is not ReadA.PREFETCH


@pytest.mark.parametrize("tiles", [1, 2, 3, 40])
def test_the_row_tiles_of_a_task_ask_for_a_line_of_the_next_panel_with_each_k(tiles: int) -> None:
    """For all of it together, if there are as many as a panel has lines for each k."""
    given = Case(8 * tiles, 96, (64,), adjust=adjusted(b=ReadB.PREFETCH, rows=8, row_tiles=tiles))
    case = replace(given, target=AVX512)
    lines = 64 * case.schedule.vectors
    asked = {index // 16 for index in _prefetched(case, "b") if index // 16 < 2 * lines}
    assert asked == set(range(lines, lines + 64 * min(tiles, case.schedule.vectors)))


@pytest.mark.parametrize("m", [24, 21])
def test_each_row_tile_asks_for_the_rows_of_the_next(m: int) -> None:
    case = Case(m, 48, (32,), adjust=adjusted(a=ReadA.PREFETCH, rows=8, row_tiles=3))
    asked = _prefetched(replace(case, target=AVX512), "a")
    assert {index // 16 for index in asked} == set(range(8 * 32 // 16, 4 * 8 * 32 // 16))


def _prefetched(case: Case, name: str) -> set[int]:
    """The elements of a buffer that one after another task says will be read."""
    found: set[int] = set()

    def visit(statements: Sequence[Stmt], known: dict[str, int]) -> None:
        for one in statements:
            if isinstance(one, Prefetch) and one.buffer == name:
                found.add(evaluate(one.index, known))
            elif isinstance(one, For):
                steps = range(*(evaluate(dim, known) for dim in (one.start, one.stop, one.step)))
                for at in steps:
                    visit(one.body, {**known, one.symbol.name: at})
            elif isinstance(one, If):
                visit(one.then, known)
                visit(one.otherwise, known)

    for task in range(evaluate(case.kernel.tasks, {})):
        visit(case.kernel.body, {TASK: task})
    return found
