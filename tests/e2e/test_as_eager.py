"""Behaviours in which compilers differ from eager: aliasing, mutation, random numbers, dtypes and
empty or broadcast shapes, each with fixed and with symbolic sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.e2e.as_eager import differences

functional = torch.nn.functional

Function = Callable[..., Any]


def _written_then_read(x: Tensor) -> Any:
    before = x + 1
    x.mul_(2)
    return before, x, x[0], x + before


def _written_through_views(x: Tensor) -> Any:
    x[1:].add_(1)
    x.t()[0].zero_()
    x[-1, -1] = 7
    return x.sum(), x[1]


def _own_memory_written_through_views(x: Tensor) -> Any:
    made = x.clone()
    made[0] = made[1] * 2
    made.t().mul_(3)
    made.diagonal().fill_(5)
    return made, made[1:]


def _swapped(x: Tensor) -> Any:
    upper = x[:2].clone()
    x[:2] = x[2:4]
    x[2:4] = upper
    return x * 1


def _indexed_writes(x: Tensor) -> Any:
    index = torch.tensor([3, 0, 0, -1])
    x[index] += 1
    x.index_add_(0, index.abs(), torch.ones(4, x.shape[1]))
    x.index_put_((index,), x[:4] * 2)
    return x.masked_fill_(x > 3, 0).sum()


def _scatters(x: Tensor) -> Any:
    index = torch.tensor([[0, 1, 2], [2, 0, 1]])
    taken = x[:2, :3]
    made = torch.zeros(4, 3)
    return (
        made.scatter(0, index, taken),
        made.scatter_add(0, index, taken),
        made.scatter_reduce(0, index, taken, "amax", include_self=False),
        made.scatter(0, index, 1.5, reduce="add"),
    )


def _draws(x: Tensor) -> Any:
    return (
        torch.rand(3), torch.randn_like(x), torch.randint(0, 9, (4,)), torch.randperm(6),
        functional.dropout(x, 0.3), torch.bernoulli(torch.full((5,), 0.4)),
        torch.empty(4).uniform_(-1, 1), torch.multinomial(torch.ones(5), 2), torch.normal(x, 2.0),
    )  # fmt: skip


def _dtypes(x: Tensor) -> Any:
    whole, flags = (x * 3).to(torch.int32), x > 0
    zero_dim = torch.tensor(2.0, dtype=torch.float64)
    return (
        whole + 1.5, whole * flags, whole / 2, whole + zero_dim, x * zero_dim, flags + flags,
        flags.sum(), whole.sum(), whole.mean(dtype=torch.float64), x.half() + whole, -flags.int(),
        whole.float().to(torch.uint8), torch.where(flags, 1, 2), torch.where(flags, x, 1),
        torch.where(flags, whole, 0.5), x.sum(dtype=torch.float64), whole.cumsum(0), whole.prod(),
        torch.maximum(whole, whole.long()), (whole & 3) | flags, whole >> 1, whole ** 2,
    )  # fmt: skip


def _edges(x: Tensor) -> Any:
    odd = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-40, 3.5, -2.5])
    return (
        odd.sgn(), odd.round(), odd.trunc(), odd.frac(), odd.nan_to_num(), odd.max(), odd.min(),
        odd.argmax(), odd.cumsum(0), odd.sort(), odd.clamp(-1, 1), odd.relu(), odd.abs().sqrt(),
        odd.isfinite(), torch.atan2(odd, odd.flip(0)), odd.sigmoid(), torch.fmax(odd, odd.flip(0)),
        torch.copysign(odd, odd.flip(0)), odd.signbit(), odd == odd, odd.softmax(0), odd % 2,
    )  # fmt: skip


def _nothing_inside(x: Tensor) -> Any:
    none = x[:0]
    return (
        none.sum(), none.sum(0), none.prod(), none + 1, torch.cat([none, x]), none.mean(),
        none @ x.t(), x[:, :0] @ x[:, :0].t(), none.any(), none.all(), none.reshape(0, 2, 3),
        none.amax(1), none.cumsum(0), functional.pad(none, (1, 1)), torch.stack([none, none]),
    )  # fmt: skip


def _one_number(x: Tensor) -> Any:
    scalar = x.sum()
    return (
        scalar.sum(0), scalar.cumsum(0), scalar.unsqueeze(0), scalar.max(), scalar.softmax(0),
        scalar.expand(2, 3), scalar.view(1, 1), scalar.sort(), scalar.flip(0), scalar.argmax(),
    )  # fmt: skip


def _views_of_memory(x: Tensor) -> Any:
    made = (x * 2).contiguous()
    return (
        made.as_strided((2, 2), (1, 2)), made.unfold(0, 2, 1), made.diagonal(), made.t(),
        made.view(torch.int32), made.unflatten(0, (2, -1)), made.movedim(0, 1),
    )  # fmt: skip


def _expanded_then_written(x: Tensor) -> Any:
    made = x[0].expand(4, -1).clone()
    made[0].add_(1)
    return made, x[0].expand(4, -1)


BEHAVIOURS: dict[str, Function] = {
    "an argument is a result": lambda x: x,
    "an argument twice": lambda x: (x, x),
    "a view of an argument": lambda x: (x[1:], x.t(), x[:, None], x.unsqueeze(0)),
    "a view of a view": lambda x: (x[1:], x[1:][1:], x.t()[0]),
    "a result twice": lambda x: (lambda y: (y, y))(x + 1),
    "a result and its view": lambda x: (lambda y: (y, y[1:], y.t()))(x + 1),
    "the same sum twice": lambda x: (x + 1, x + 1),
    "nothing changed": lambda x: (x.contiguous(), x.float(), x.to(x.dtype), x * 1, x.clone()),
    "flattened": lambda x: (x.reshape(-1), x.t().reshape(-1), x.flatten(), x.ravel()),
    "detached": lambda x: (x.detach(), x.detach().clone()),
    "parts": lambda x: (*x.split(2), *x.chunk(3), *x.unbind(1), *torch.tensor_split(x, 2)),
    "written then read": _written_then_read,
    "written through views": _written_through_views,
    "own memory written through views": _own_memory_written_through_views,
    "parts swapped": _swapped,
    "written by index": _indexed_writes,
    "scattered": _scatters,
    "written with itself": lambda x: x.copy_(x.clone().flip(0)).sum(),
    "filled": lambda x: (x.zero_() + 1, x.fill_(3) * 2),
    "written and returned": lambda x: x.add_(1),
    "an expanded one": lambda x: x[:1].expand(3, -1),
    "an expanded copy is written": _expanded_then_written,
    "views of what was made": _views_of_memory,
    "drawn": _draws,
    "dtypes": _dtypes,
    "edges": _edges,
    "nothing inside": _nothing_inside,
    "one number": _one_number,
    "complex": lambda x: (torch.complex(x, x) * 2, torch.view_as_real(x + 1j), (x + 1j).conj()),
    "numbers beside tensors": lambda x: (x, 3, [x + 1, None], {"a": x.t(), "b": "text"}),
    "constants": lambda x: (torch.tensor([1, 2]), torch.tensor(1.5), x.new_ones(2)),
    "ranges": lambda x: (torch.arange(0, 5, 2), torch.arange(5, 0, -1.5), torch.linspace(0, 1, 4)),
    "sorted": lambda x: (x.sort(0), x.argsort(1, descending=True), x.topk(2), x.kthvalue(2, 0)),
    "reductions": lambda x: (x.var(0), x.std(), x.norm(), x.logsumexp(1), x.median(), x.mode(0)),
    "padded": lambda x: (
        functional.pad(x, (1, -1, 0, 2), value=2.0),
        functional.pad(x[None], (2, 1), mode="reflect"),
    ),
    "windows": lambda x: (
        functional.max_pool2d(x[None, None], 2, return_indices=True),
        functional.avg_pool2d(x[None, None], 3, 1, 1, count_include_pad=False),
    ),
}  # fmt: skip

LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "row-major": lambda x: x,
    "transposed": lambda x: x.t().contiguous().t(),
    "a part": lambda x: functional.pad(x, (1, 2, 1, 1))[1:-1, 1:-2],
}


@pytest.mark.parametrize(
    ("layout", "dynamic"), [("row-major", True), ("transposed", False), ("a part", True)]
)
@pytest.mark.parametrize("name", BEHAVIOURS)
def test_compiled_as_in_eager(name: str, layout: str, dynamic: bool) -> None:
    def make() -> tuple[Tensor]:
        drawn = torch.randn(4, 6, generator=torch.Generator().manual_seed(2))
        return (LAYOUTS[layout](drawn),)

    assert differences(BEHAVIOURS[name], make, dynamic=dynamic) == []
