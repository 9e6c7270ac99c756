"""Results share memory exactly where eager's do, and lie in memory as eager's do."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

import kernelmill
from tests.unit.frontend.tracing import Traced

Function = Callable[[Tensor], Sequence[Tensor]]


def sharing(tensors: Sequence[Tensor]) -> list[bool]:
    """For each pair whether the two lie in one storage."""
    storages = [tensor.untyped_storage().data_ptr() for tensor in tensors]
    return [a == b for i, a in enumerate(storages) for b in storages[:i]]


CASES: dict[str, Function] = {
    "clone": lambda x: (x.clone(), x + 1),
    "clone of a result": lambda x: (lambda y: (y, y.clone()))(x + 1),
    "channels last": lambda x: (x.clone(memory_format=torch.channels_last),),
    "permuted": lambda x: ((x + 1).permute(2, 0, 1, 3),),
    "view of a result": lambda x: (lambda y: (y, y[1:]))(x + 1),
    "two views": lambda x: (lambda y: (y[0], y.flatten()))(x * 2),
    "parts of a result": lambda x: (lambda y: (y, *y.split(2, 2)))(x + 1),
    "parts of an argument": lambda x: (*x.unbind(1), x + 1),
    "parts of a view of an argument": lambda x: (*x.movedim(-1, -1).unbind(1), x + 1),
    "view of a part": lambda x: (lambda y: (y, y.chunk(2, 2)[1][0]))(x * 1.5),
    "cast to the same type": lambda x: (x.to(torch.float32, copy=True),),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_memory_of_results(name: str, dynamic: bool) -> None:
    function = CASES[name]
    x = torch.randn(2, 3, 4, 5)
    with torch.no_grad():
        expected = function(x)
        actual = Traced(function, {"dynamic": dynamic})(x)
    for have, want in zip(actual, expected, strict=True):
        assert torch.equal(have, want)
        assert have.stride() == want.stride()
    assert sharing([*actual, x]) == sharing([*expected, x])


@pytest.mark.parametrize("dynamic", [False, True])
def test_views_of_an_argument_are_views(dynamic: bool) -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        return x[1:, 2:], x + 1

    x = torch.randn(6, 5)
    with torch.no_grad():
        view, _ = Traced(function, {"dynamic": dynamic})(x)
        x[3, 3] = 7.0
    assert torch.equal(view, x[1:, 2:])


@pytest.mark.parametrize("dynamic", [False, True])
def test_parts_of_an_argument_and_of_its_copy_with_gradients(dynamic: bool) -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.movedim(-1, -1).unbind(0)[1], x.clone().unbind(0)[1]

    x = torch.randn(4, requires_grad=True)
    compiled = torch.compile(function, backend=kernelmill.get_backend(), dynamic=dynamic)
    part, copied = compiled(x)
    assert part.data_ptr() == x[1].data_ptr()
    assert copied.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()


def test_a_difference_of_bools_in_a_trace_of_torchs_is_an_error() -> None:
    """What torch makes of a write to an expanded view at sizes known only later."""

    def function(x: Tensor, y: Tensor) -> Tensor:
        return torch.le(x, y).expand((-1, -1)).logical_not_()

    arguments = torch.tensor(1.0), torch.tensor([[0.0, 2.0]])
    compiled = torch.compile(function, backend=kernelmill.get_backend(), dynamic=True)
    with pytest.raises(RuntimeError, match="two bool tensors is not supported"):
        compiled(*arguments)


UPDATES: dict[str, Callable[[Tensor], object]] = {
    "whole": lambda x: x.add_(1),
    "slice": lambda x: x[1:3].mul_(2),
    "column": lambda x: x[:, 1].zero_(),
    "through a view": lambda x: x.view(-1)[::2].sub_(1),
    "cast": lambda x: x.copy_(torch.arange(5)),
    "twice": lambda x: x.add_(1)[0].mul_(3),
    "masked": lambda x: x.masked_fill_(x > 0, -1.0),
}


@pytest.mark.parametrize("name", UPDATES)
def test_arguments_are_updated(name: str) -> None:
    update = UPDATES[name]

    def function(x: Tensor) -> Tensor:
        update(x)
        return x.sum()

    mine = torch.randn(4, 5)
    eager = copy.deepcopy(mine)
    with torch.no_grad():
        torch.testing.assert_close(Traced(function)(mine), function(eager))
    torch.testing.assert_close(mine, eager)
