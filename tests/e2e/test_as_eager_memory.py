"""What is written, shared and detached, and the layouts that follow, as in eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.e2e.as_eager import differences

fn, aten = torch.nn.functional, torch.ops.aten
LAST = torch.channels_last
floats = torch.randn
Row = tuple[Callable[..., Any], Callable[[], Sequence[Any]]]


def _in_turns(a: Tensor) -> Any:
    a += 1
    aten.sigmoid_(a)
    flat = a.view(-1)
    flat *= 4
    aten.relu_(flat)
    return flat


def _read_between(a: Tensor) -> Any:
    before = a + 1
    a.view(-1)[:3].copy_(torch.tensor([66.0]))
    return before, a + 2, a.ceil(), before * a


def _by_slices(a: Tensor) -> Any:
    made = torch.zeros_like(a)
    first = made + 1
    made[:, 3] = 3.0
    kept = made.clone()
    made[2, :] = 4.0
    a[:, 2:4] = a[:, 1:3] + 2
    a[:2, :2].fill_(10)
    return made, first, kept, made + 1


def _other_dtypes(x: Tensor, y: Tensor) -> Any:
    made = x + y.float()
    made.add_(y).mul_(y)
    x[0] = y.abs().max()
    whole = x.long().copy_(y).add_(1)
    return made, whole, x.lt_(y.float()), whole.logical_not_()


def _shapes_in_place(a: Tensor) -> Any:
    made = a + 1
    aten.unsqueeze_(made, 2)
    return made, (a * 3).squeeze_(), (a + 2).transpose_(0, 1), aten.unsqueeze_(a + 1, 0) * 2


def _columns_swapped(x: Tensor) -> Any:
    made = x.clone().reshape(-1, 4)
    made[:, [2, 0]] = made[:, [0, 2]]
    x.copy_(x.flip(1))
    return made + x.view(-1, 4), made


def _diagonal(x: Tensor, y: Tensor) -> Any:
    product = x @ x
    diagonal = torch.diagonal(product)
    diagonal.copy_(y)
    return product @ x + diagonal, diagonal


def _swapped(a: Tensor, b: Tensor) -> None:
    kept = a.clone()
    a.copy_(b)
    b.copy_(kept)


def _joined_then_written(x: Tensor, y: Tensor) -> Any:
    joined = torch.cat([x])
    x.sin_()
    return joined, torch.cat([x, y]).add_(1), x.expand(2, *x.shape).contiguous().mul_(2)


def _detached(x: Tensor) -> Any:
    made = x * 2
    return (
        made, made.detach(), made[1:].detach(), made.t().detach(), made.view(-1).detach()[2:],
        x.detach()[1:], x.t(), x[1:].detach() * 2,
    )  # fmt: skip


def _with_and_without_gradients(x: Tensor) -> Any:
    with torch.no_grad():
        apart = x * 2
        part = apart[1:]
    with torch.enable_grad():
        kept = x.detach() * 3 + x
    return apart, part, kept, (x * apart).sum(), kept.detach()[0]


def _written_with_gradients(x: Tensor, y: Tensor) -> Any:
    made = x @ y
    made.mul_(2)
    made[0].add_(y[1])
    made.t()[1:].exp_()
    return made.sin(), made, made[1:]


def _ties(x: Tensor) -> Any:
    return (
        x.max(), x.amax(0), x.amin(1), torch.maximum(x, x.flip(0)), x.clamp(0, 1), x.abs(),
        x.relu(), fn.hardtanh(x), x.norm(), fn.max_pool2d(x[None, None], 2), x.median(),
    )  # fmt: skip


def _at_zero(x: Tensor) -> Any:
    return (
        x.norm(),
        fn.normalize(x, dim=0),
        torch.atan2(x, x),
        x.pow(0.0),
        x**2.5,
        x.abs(),
        x.prod(),
    )


def _outputs(a: Tensor, out: Tensor) -> Any:
    made = torch.empty_like(a)
    torch.add(a, 1, out=made)
    return torch.mul(a, 2, out=out), made * 2, out + 1


def _lists(xs: list[Tensor]) -> Any:
    torch._foreach_add_(xs, 1)
    return xs[0] * 2, torch._foreach_mul(xs, xs), torch._foreach_norm(xs)


def _layouts(x: Tensor) -> Any:
    return (
        fn.channel_shuffle(x, 4), fn.pixel_shuffle(x, 2).relu(), torch.cat((x, x[:, :, :1]), 2),
        torch.stack([x, x]), fn.max_pool2d(x, 2), fn.interpolate(x, (9, 9)), x.flip(2) + 1,
        fn.pad(x, (1, 1)), x.sum(1, keepdim=True) + x, torch.cat([x, x.contiguous()]),
    )  # fmt: skip


def _strides(x: Tensor) -> Any:
    laid = torch.empty_strided(x.size(), x.stride())
    laid[:] = x + x
    return (
        laid, (x + 1).view(-1, 1, 2), x[:, None].expand(-1, 3, -1), x[:1].expand(3, -1) * 2,
        x.view(-1, 1, 2)[:, :, :1] * 2, x[0:2:2].T[3:].squeeze(0), (x.t() * 2).reshape(-1, 4),
        torch.constant_pad_nd(x, [0, 0]), x.new_zeros(x.shape), x.double(), x.t().contiguous(),
    )  # fmt: skip


def _copies(x: Tensor) -> Any:
    return (
        torch.diagonal_copy(x), torch.unfold_copy(x, 1, 2, 1), torch.permute_copy(x, (1, 0)),
        torch.view_copy(x, (-1,)), torch.select_copy(x, 0, 1), torch.split_copy(x, 2),
        aten.narrow_copy(x, 1, 1, 2), torch.as_strided_copy(x, (2, 2), (1, 2)), x.unfold(0, 2, 1),
    )  # fmt: skip


def _square(seed: int = 0) -> Tensor:
    return floats(4, 4, generator=torch.Generator().manual_seed(seed))


def _asking() -> Tensor:
    return _square().requires_grad_()


MEMORY: dict[str, Row] = {
    "written in turns": (_in_turns, lambda: (_square(),)),
    "read between writes": (_read_between, lambda: (_square(),)),
    "written by slices": (_by_slices, lambda: (_square(),)),
    "written across dtypes": (_other_dtypes, lambda: (_square(), _square(1).double())),
    "shapes in place": (_shapes_in_place, lambda: (_square().view(2, 2, 1, 4),)),
    "columns swapped": (_columns_swapped, lambda: (_square(),)),
    "a diagonal written": (_diagonal, lambda: (_square(), floats(4))),
    "two arguments swapped": (_swapped, lambda: (_square(), _square(1))),
    "joined, then written": (_joined_then_written, lambda: (_square(), _square(1))),
    "one argument twice": (lambda a, b: (a.add_(1), b * 2), lambda: (_square(),) * 2),
    "outputs": (_outputs, lambda: (_square(), _square(1))),
    "lists": (_lists, lambda: ([_square(), _square(1)],)),
    "no elements written": (lambda x: fn.leaky_relu(x, 5.3, inplace=True), lambda: (floats(0),)),
    "a permuted one written": (
        lambda x, y: x.add_(y),
        lambda: (torch.ones(2, 4, 4).transpose(1, 2), _square()),
    ),
    "channels last": (_layouts, lambda: (floats(1, 16, 6, 8).to(memory_format=LAST),)),
    "strides": (_strides, lambda: (_square(),)),
    "strides of a part": (_strides, lambda: (floats(4, 9)[:, 1:5].contiguous(),)),
    "copies of views": (_copies, lambda: (_square(),)),
    "detached": (_detached, lambda: (_asking(),)),
    "with and without gradients": (_with_and_without_gradients, lambda: (_asking(),)),
    "written with gradients": (_written_with_gradients, lambda: (_asking(), _asking())),
    "gradients of ties": (_ties, lambda: (_asking().detach().round().requires_grad_(),)),
    "gradients at zero": (_at_zero, lambda: (torch.zeros(3, 3).requires_grad_(),)),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", MEMORY)
def test_memory_is_eagers(name: str, dynamic: bool) -> None:
    function, arguments = MEMORY[name]

    def make() -> Sequence[Any]:
        torch.manual_seed(7)
        return arguments()

    assert differences(function, make, dynamic=dynamic) == []
