"""Schedules as text, and schedules whose sizes somebody else than the cost model chose."""

from __future__ import annotations

import random

import pytest
import torch

from kernelmill.core.dtype import BF16, F32, InputRole
from kernelmill.core.errors import ConfigError
from kernelmill.core.target.machine import host, profile
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Graph
from kernelmill.lower.driver.program import lower_graph
from kernelmill.lower.schedule.candidate import Candidate
from kernelmill.lower.schedule.text import check_sizes, parse_candidate, print_schedule
from tests.compiled import graph, program, whole

SIZES = (1, 2, 3, 4, 5, 7, 8, 12, 16, 31, 48, 64, 100, 4096)


def product(rows: int = 20, dtype=F32) -> Graph:
    return graph(lambda b, x, y: b.emit("matmul", x, y), (dtype, (rows, 64)), (dtype, (64, 96)))


def attention() -> Graph:
    return graph(
        lambda b, q, k, v: b.emit("attention", q, k, v, scale=0.25, causal=False),
        *[(F32, (1, 2, 40, 16))] * 3,
    )


def convolution(groups: int = 1, size: int = 3) -> Graph:
    """One with constant weights and a result channels last."""
    b = GraphBuilder("g")
    x = b.input("x", F32, (1, 32, 14, 15))
    channels = 64 if groups == 1 else 32
    shape = (channels, 32 // groups, size, size)
    weight = b.input("w", F32, shape, role=InputRole.PARAM)
    window = {"stride": (1, 1), "padding": (size // 2, size // 2), "dilation": (1, 1)}
    found = b.emit("conv", x, weight, groups=groups, **window)
    strides = (channels * 14 * 15, 1, channels * 15, channels)
    b.graph.results = [b.emit("layout", b.emit("neg", found), strides=strides)]
    return b.graph


SUBJECTS = {
    "product": product,
    "one row": lambda: product(1),
    "half": lambda: product(20, BF16),
    "convolution": convolution,
    "pixels": lambda: convolution(size=1),
    "depthwise": lambda: convolution(groups=32),
    "attention": attention,
}


PRODUCT = ("rows", "vectors", "depth_block", "row_tiles", "column_tiles")
PIXELS = ("rows", "panels", "down", "across", "block", "vectors")
KINDS = {
    "product": PRODUCT,
    "one row": PRODUCT,
    "half": PRODUCT,
    "convolution": PIXELS,
    "pixels": PIXELS,
    "depthwise": PIXELS,
    "attention": ("rows", "keys"),
}


@pytest.mark.parametrize("name", SUBJECTS)
def test_any_sizes_give_the_right_result(name: str) -> None:
    """Sizes that do not fit are left to the cost model. Whole numbers have exact sums."""
    built, choose = SUBJECTS[name](), random.Random(name)
    given = [
        whole(e.value.dtype, *map(int, e.value.type.shape), low=-2, high=3)
        for e in built.tensor_inputs()
    ]
    (expected,) = program(lower_graph(built, host()))(*given)
    names = KINDS[name]
    seen: set[str] = set()
    for _ in range(12):
        sizes = {each: choose.choice(SIZES) for each in choose.sample(names, 2)}
        candidate = Candidate(**sizes)
        made = lower_graph(built, host(), settle=lambda *_, c=candidate: c)
        seen.update(print_schedule(each.schedule) for each in made.facts.values())
        (result,) = program(made)(*given)
        exact = name != "attention"
        torch.testing.assert_close(
            result, expected, rtol=0 if exact else 1e-5, atol=0 if exact else 1e-5, msg=str(sizes)
        )
    assert len(seen) > 1


def test_a_schedule_is_printed_on_one_line() -> None:
    made = lower_graph(product(), profile("x86-64-v3"))
    (facts,) = made.facts.values()
    text = print_schedule(facts.schedule)
    assert text.startswith("blocked(lanes=8, rows=") and "\n" not in text
    assert "a=in_place" in text and "work" not in text


def test_sizes_are_read() -> None:
    assert parse_candidate("rows=4 vectors=2") == Candidate(rows=4, vectors=2)
    assert parse_candidate("keys=64,rows=8") == Candidate(keys=64, rows=8)
    assert parse_candidate("") == Candidate()


@pytest.mark.parametrize("text", ["row=4", "rows", "rows=x", "rows=0", "rows=-1", "rows=1 rows=2"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--schedule"):
        parse_candidate(text)


def test_sizes_that_no_kernel_has_are_refused_with_the_schedules() -> None:
    schedules = {"km_1": "blocked(lanes=8, rows=4, vectors=2)"}
    check_sizes(Candidate(rows=4, vectors=2), schedules)
    check_sizes(Candidate(), {})
    with pytest.raises(ConfigError, match=r"rows=40: no kernel can be cut so.*\n  km_1: blocked"):
        check_sizes(Candidate(rows=40), schedules)
