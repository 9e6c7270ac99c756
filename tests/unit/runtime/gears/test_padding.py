"""Arguments in zeros, results cut back, sizes that were not traced."""

from __future__ import annotations

import pytest
import torch

from kernelmill.core.dim import sym
from kernelmill.core.errors import InputError
from kernelmill.plan.ir import PaddedInput, PaddedResult, Padding
from kernelmill.runtime.gears.padded_calls import Resizing, smallest_holding

B, S = sym("b", 1), sym("s", 2, 9)


def test_the_gear_of_the_least_work_that_has_room() -> None:
    gears = ((2, 16), (4, 16), (4, 32), (16, 8))
    assert smallest_holding(gears, (3, 9)) == (4, 16)
    assert smallest_holding(gears, (1, 1)) == (2, 16)
    assert smallest_holding(gears, (5, 9)) is None


def test_only_what_is_too_small_is_copied_into_zeros() -> None:
    padding = Padding(
        (PaddedInput(1, (B, S), (S, 1)), PaddedInput(2, (B, 4), (4, 1))), (), ((0, "s"),)
    )
    x, y, other = torch.ones(2, 3), torch.ones(2, 4), torch.ones(5)
    size, padded, same, untouched = Resizing(padding, {"b": 2, "s": 3}, {"b": 2, "s": 4}).pad(
        [3, x, y, other]
    )
    assert size == 4 and same is y and untouched is other
    assert torch.equal(padded, torch.tensor([[1.0, 1, 1, 0]] * 2))
    assert torch.equal(x, torch.ones(2, 3))


def test_padded_arguments_have_the_layout_of_the_program() -> None:
    padding = Padding((PaddedInput(0, (B, S), (1, B)),), ())
    (padded,) = Resizing(padding, {"b": 2, "s": 3}, {"b": 3, "s": 5}).pad([torch.ones(3, 2).t()])
    assert padded.shape == (3, 5) and padded.stride() == (1, 3)
    assert torch.equal(padded[:2, :3], torch.ones(2, 3)) and padded.sum() == 6


def test_an_argument_that_requires_a_gradient_is_padded_without_one() -> None:
    padding = Padding((PaddedInput(0, (S,), (1,)),), ())
    (padded,) = Resizing(padding, {"s": 2}, {"s": 3}).pad([torch.ones(2, requires_grad=True)])
    assert not padded.requires_grad


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.bfloat16])
def test_the_padding_is_zero_in_every_dtype(dtype: torch.dtype) -> None:
    padding = Padding((PaddedInput(0, (S,), (1,)),), ())
    (padded,) = Resizing(padding, {"s": 2}, {"s": 4}).pad([torch.ones(2, dtype=dtype)])
    assert padded.dtype == dtype and padded.tolist() == [1, 1, 0, 0]


def test_default_devices_do_not_matter() -> None:
    axes = ((B,), (S,))
    padding = Padding((PaddedInput(0, (B, S), (S, 1)),), (PaddedResult(0, axes, (S, 1)),))
    resizing, x = Resizing(padding, {"b": 2, "s": 3}, {"b": 2, "s": 5}), torch.ones(2, 3)
    with torch.device("meta"):
        padded = resizing.pad([x])
        (cut,) = resizing.cut(padded)
    assert padded[0].device.type == "cpu" and padded[0].sum() == 6
    assert torch.equal(cut, x) and cut.is_contiguous()


def test_results_are_cut_back_with_eager_strides() -> None:
    padding = Padding((), (PaddedResult(0, ((B,), (S,), (4,)), (4 * S, 4, 1)),))
    whole = torch.arange(2 * 5 * 4).reshape(2, 5, 4)
    (cut,) = Resizing(padding, {"b": 1, "s": 3}, {"b": 2, "s": 5}).cut([whole])
    assert torch.equal(cut, whole[:1, :3]) and cut.is_contiguous()


def test_a_result_that_is_padded_in_the_middle_of_a_dim_is_cut_back() -> None:
    padding = Padding((), (PaddedResult(0, ((B, S),), (1,)),))
    whole = torch.arange(2 * 5)
    (cut,) = Resizing(padding, {"b": 2, "s": 3}, {"b": 2, "s": 5}).cut([whole])
    assert cut.tolist() == [0, 1, 2, 5, 6, 7]


def test_a_result_padded_in_its_first_dim_alone_is_not_copied() -> None:
    padding = Padding((), (PaddedResult(0, ((B,), (4,)), (4, 1)),))
    whole = torch.ones(3, 4)
    (cut,) = Resizing(padding, {"b": 2}, {"b": 3}).cut([whole])
    assert cut.shape == (2, 4) and cut.data_ptr() == whole.data_ptr()


def test_sizes_that_are_returned_are_the_true_ones() -> None:
    padding = Padding((), (), size_results=((1, B * S),))
    resizing = Resizing(padding, {"b": 2, "s": 3}, {"b": 4, "s": 5})
    assert resizing.cut([None, 20]) == [None, 6]


def test_a_size_that_was_not_traced_is_refused() -> None:
    padding = Padding((), (), ranges=(("s", 4, 9), ("b", 1, None)))
    gear = {"s": 12, "b": 4}
    Resizing(padding, {"s": 4, "b": 1}, gear)
    with pytest.raises(InputError, match=r"size of 3 .* at least 4 and at most 9"):
        Resizing(padding, {"s": 3, "b": 1}, gear)
    with pytest.raises(InputError, match="size of 10"):
        Resizing(padding, {"s": 10, "b": 1}, gear)
