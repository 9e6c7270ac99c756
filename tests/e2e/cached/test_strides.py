"""Cached methods whose traces leave strides of arguments open: calls with any other ones get
eager's results, which lie in memory as eager's do, and those that lie alike are no new trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from kernelmill.config import CompilerConfig
from kernelmill.inference import cache_compile, set_dim_gears
from kernelmill.runtime.memory.allocation import lie_alike
from tests.kept_methods import KEPT

pytestmark = KEPT
READS_STRIDES = pytest.mark.needs_internal("dynamo.tensor_sizes")  # else it is not kept

Function = Callable[[Any], Any]


class State:
    """What a call is passed: two tensors."""

    def __init__(self, first: Tensor, second: Tensor) -> None:
        self.first, self.second = first, second


def joined(state: State) -> Tensor:
    return torch.cat([state.first, state.second * 2.0], dim=-1)


def reduced(state: State) -> Tensor:
    return (state.first.softmax(-1) @ state.second.transpose(0, 1)).relu()


def by_stride(state: State) -> Tensor:
    return state.first * state.first.stride(0) + state.second * state.second.stride(1)


def by_both_strides(state: State) -> Tensor:
    return state.first * state.second.stride(0) + state.first.stride(0)


def by_contiguity(state: State) -> Tensor:
    first, second = (part.is_contiguous() for part in (state.first, state.second))
    return state.first * (2.0 if first else 3.0) + state.second * (5.0 if second else 7.0)


def by_name(state: State) -> Tensor:
    return state.first * getattr(state.first, "stride")(0) + state.second  # noqa: B009


def by_bound_method(state: State) -> Tensor:
    first, second = state.first.stride, state.second.stride
    return state.first * first(0) + state.second * second(1)


class Kept:
    """Asks for strides of what is an attribute of `self`."""

    def __init__(self, state: State) -> None:
        self.state = state

    def sum(self) -> Tensor:
        stride = self.state.first.stride
        return self.state.first * stride(0) + self.state.second


def by_attribute_of_self(state: State) -> Tensor:
    return Kept(state).sum()


def by_stride_of_result(state: State) -> Tensor:
    both = state.first + state.second
    return both * both.stride(0) + both.stride(1)


def written(state: State) -> Tensor:
    state.first.mul_(2.0)
    return state.second + state.first


ASKING = (
    by_stride, by_both_strides, by_contiguity, by_name, by_bound_method, by_attribute_of_self,
    by_stride_of_result,
)  # fmt: skip
FUNCTIONS = (joined, reduced, written, *ASKING)


class Model(nn.Module):
    def __init__(self, function: Function, folder: Path) -> None:
        super().__init__()
        self.function = function
        self.run = cache_compile(
            self.forward, dynamic=True, cache_dir=str(folder), max_entries=1000
        )

    def forward(self, state: Any) -> Any:
        return self.function(state)


def tensor_of(rows: int, columns: int, lies: str) -> Tensor:
    """One of this shape that lies in memory in one of several ways."""
    offset = 0 if lies == "dense" else 5 + len(lies) % 3
    memory = torch.arange(4096.0).mul_(0.37).sin_()
    strides = {
        "dense": (columns, 1), "wider": (columns + 3, 1), "much wider": (4 * columns + 1, 1),
        "transposed": (1, rows), "wider and transposed": (1, rows + 5), "gaps": (3 * columns, 3),
        "overlapping": (2, 1), "one place": (0, 1), "one row": (0, 0), "expanded": (1, 0),
        "overlapping and transposed": (1, 2),
    }[lies]  # fmt: skip
    return memory.as_strided((rows, columns), strides, offset)


LIES = (
    "wider", "much wider", "dense", "transposed", "wider and transposed", "gaps", "overlapping",
    "one place", "one row", "expanded", "overlapping and transposed",
)  # fmt: skip
WRITABLE = ("wider", "much wider", "dense", "transposed", "wider and transposed", "gaps")


def states(function: Function) -> Iterator[tuple[State, State]]:
    """Two of each kind, with the same contents."""
    kinds = WRITABLE if function is written else LIES
    for shape in ((4, 6), (1, 6), (5, 6)):
        for first in kinds:
            for second in dict.fromkeys(("dense", first)):
                yield (
                    State(tensor_of(*shape, first), tensor_of(*shape, second)),
                    State(tensor_of(*shape, first), tensor_of(*shape, second)),
                )


@torch.no_grad()
@torch._dynamo.config.patch(recompile_limit=1000, accumulated_recompile_limit=1000)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_each_way_to_lie_in_memory_gives_eagers_results(tmp_path: Path, function: Function) -> None:
    for model in (Model(function, tmp_path), Model(function, tmp_path)):
        for mine, its in states(function):
            for _ in range(2):
                found, expected = model.run(mine), function(its)
                torch.testing.assert_close(found, expected)
                assert lie_alike(found.shape, found.stride(), expected.stride())
                torch.testing.assert_close(mine.first, its.first)
    # Where a stride is taken for a size that happens to be equal, torch.compile serves.
    counts = model.run.statistics
    assert counts["loaded"] > 0 or (counts["uncached"] > 0 and function in ASKING)


@torch.no_grad()
@pytest.mark.parametrize(
    "function",
    [joined, reduced, pytest.param(by_stride, marks=READS_STRIDES)],
    ids=lambda f: f.__name__,
)
def test_parts_of_wider_tensors_are_one_trace(tmp_path: Path, function: Function) -> None:
    for traced in (1, 0):
        model = Model(function, tmp_path)
        for rows, columns, wider in ((4, 6, 10), (4, 6, 30), (5, 6, 10), (7, 11, 40), (7, 11, 13)):
            first, second = (torch.randn(rows, wide)[:, :columns] for wide in (wider, wider + 20))
            for _ in range(3):
                state = State(first, second)
                torch.testing.assert_close(model.run(state), function(state))
        counts = {"loaded": 1 - traced, "traced": traced, "uncached": 0}
        assert model.run.statistics == counts


@torch.no_grad()
@READS_STRIDES
def test_other_strides_and_the_same_sizes_are_seen_at_once(tmp_path: Path) -> None:
    """The quick way takes the sizes of the last call for those of the next; strides, too."""
    model = Model(by_stride, tmp_path)
    for _ in range(3):
        for wider in (8, 8, 8, 12, 9, 9, 8):
            state = State(torch.randn(4, wider)[:, :6], torch.randn(4, 2 * wider)[:, :6])
            torch.testing.assert_close(model.run(state), by_stride(state))
    assert model.run.statistics == {"loaded": 0, "traced": 1, "uncached": 0}


@torch.no_grad()
def test_a_stride_of_one_row_counts_where_it_is_read(tmp_path: Path) -> None:
    """No element is found by it, and the tensor's check does not look at it."""
    model = Model(by_both_strides, tmp_path)
    for wider in (7, 7, 9, 6, 20, 7):
        for other in (7, 8, 7, wider):
            one, two = torch.randn(1, wider)[:, :6], torch.randn(1, other)[:, :6]
            state = State(one, two)
            for _ in range(2):
                torch.testing.assert_close(model.run(state), by_both_strides(state))


@torch.no_grad()
def test_misaligned_parts_of_wider_tensors(tmp_path: Path) -> None:
    model = Model(joined, tmp_path)
    for wider in (8, 9, 12, 8):
        numbers = torch.randn(4 * wider + 1)
        memory = bytearray(b"\0" + numbers.numpy().tobytes())
        askew = torch.frombuffer(memory, dtype=torch.float32, count=4 * wider, offset=1)
        for first in (numbers[1:], askew):
            state = State(first.view(4, wider)[:, :6], torch.randn(4, wider + 3)[:, :6])
            torch.testing.assert_close(model.run(state), joined(state))


class Filter(nn.Module):
    """Its results lie as its argument does, and as its weight does."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3)
        self.scale = nn.Parameter(torch.randn(6, 8))
        self.run = cache_compile(self.forward, dynamic=True, cache_dir=str(folder))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.convolution(x), self.scale * 2.0, x * 2.0


IMAGES = (
    lambda: torch.randn(2, 3, 6, 8),
    lambda: torch.randn(2, 3, 6, 8).to(memory_format=torch.channels_last),
    lambda: torch.randn(5, 6, 8, 3).permute(0, 3, 1, 2),
    lambda: torch.randn(2, 3, 9, 9),
    lambda: torch.randn(2, 3, 8, 6).transpose(2, 3),
    lambda: torch.randn(3, 1, 6, 8).expand(3, 3, 6, 8),
    lambda: torch.randn(2, 3, 7, 11)[:, :, 1:, 2:9],
)


def check_layouts(model: Filter) -> None:
    for make in (*IMAGES, *IMAGES):
        x = make()
        for found, expected in zip(model.run(x), model(x), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
            assert found.stride() == expected.stride()


@torch.no_grad()
def test_results_lie_as_those_of_eager(tmp_path: Path) -> None:
    """Orders of dims are traced for themselves; other sizes and gaps are not."""
    for traced in (4, 0):
        model = Filter(tmp_path)
        check_layouts(model)
        assert model.run.statistics["traced"] == traced
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    model.scale.data = torch.randn(8, 6).t()
    check_layouts(model)
    assert model.run.statistics["traced"] > 0


@torch.no_grad()
def test_results_that_are_padded_lie_as_those_of_eager(tmp_path: Path) -> None:
    config = CompilerConfig()
    config.inference_config.gear_miss = "pad"

    class Scaled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 2.0

    model = Scaled()
    run = cache_compile(model.forward, config=config, cache_dir=str(tmp_path))
    for rows in (3, 4, 8, 5):
        for x in (torch.randn(rows, 6), torch.randn(6, rows).t()):
            set_dim_gears(x, {0: [4, 8]})
            found, expected = run(x), x * 2.0
            torch.testing.assert_close(found, expected)
            assert found.stride() == expected.stride()
