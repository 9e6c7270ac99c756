"""Arguments as no caller should pass them, made at random from right ones."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

Tree = Any
"""Tensors, numbers, text and None in tuples, lists and dicts."""


class Subclass(torch.Tensor):
    """A tensor of a class that no program knows."""


class Hostile:
    """Says that it is a tensor, and refuses every question."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


DTYPES = (
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.uint8,
    torch.int32, torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn,
)  # fmt: skip


def _misaligned(tensor: torch.Tensor) -> torch.Tensor:
    memory = bytearray(tensor.nbytes + 1)
    found = torch.frombuffer(memory, dtype=tensor.dtype, count=tensor.numel(), offset=1)
    return found.reshape(tensor.shape).copy_(tensor)


def _without_memory(tensor: torch.Tensor) -> torch.Tensor:
    found = tensor.clone()
    found.untyped_storage().resize_(0)
    return found


def _made_for_inference(tensor: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return tensor.clone()


def _of_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return torch.quantize_per_tensor(tensor.float(), 0.1, 0, torch.quint8)


def _nested(tensor: torch.Tensor) -> torch.Tensor:
    return torch.nested.nested_tensor([tensor.float(), tensor.float()])


TENSORS: tuple[Callable[[torch.Tensor], Any], ...] = (
    *[lambda t, dtype=dtype: t.to(dtype) for dtype in DTYPES],
    lambda t: t.unsqueeze(0),
    lambda t: t.flatten(),
    lambda t: t.repeat(*[2] * t.dim()) if t.dim() else t.expand(2),
    lambda t: t[..., :-1] if t.dim() else t.expand(0),
    lambda t: t.mT.contiguous().mT if t.dim() > 1 else t,
    lambda t: torch.stack([t, t], -1)[..., 0],
    lambda t: torch.cat([t.flatten()[:1], t.flatten()])[1:].reshape(t.shape),
    lambda t: t.flatten()[:1].as_strided(t.shape, [0] * t.dim()),
    lambda t: t.expand(7, 7, 7, *t.shape),
    lambda t: torch.zeros([1] * 60),
    lambda t: t.to("meta"),
    lambda t: t.to_sparse() if t.dim() else t,
    lambda t: torch.complex(t.float(), t.float()).conj().imag,  # negated when it is read
    lambda t: torch.conj(t.to(torch.complex64)),
    lambda t: t.float().clone().requires_grad_(),
    lambda t: torch.nn.Parameter(t.float()),
    lambda t: t.as_subclass(Subclass),
    lambda t: FakeTensorMode().from_tensor(t),
    lambda t: t.float().to_mkldnn(),
    lambda t: t.numpy(),
    _misaligned, _without_memory, _made_for_inference, _of_bytes, _nested,
)  # fmt: skip

OTHERS: tuple[Callable[[], Any], ...] = (
    lambda: None, lambda: 3, lambda: -1, lambda: 2.5, lambda: float("nan"), lambda: -0.0,
    lambda: True, lambda: 2**80, lambda: "text", lambda: (), list, dict,
    lambda: [0] * 100_000, lambda: tuple(range(100_000)), lambda: _recursive(), Hostile,
    lambda: object(), lambda: torch.Tensor, lambda: range(3), lambda: {"x": None}, lambda: b"x",
    lambda: torch.float32, lambda: torch.device("cpu"), lambda: torch.Size([1]),
)  # fmt: skip


def _recursive() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


def has_no_memory(value: Tree) -> bool:
    """Whether there is a tensor in it that torch itself must not read."""
    if isinstance(value, torch.Tensor):
        try:
            return value.numel() > 0 and not value.untyped_storage().nbytes()
        except (NotImplementedError, RuntimeError):
            return False
    parts = value.values() if isinstance(value, dict) else value
    return isinstance(value, (tuple, list, dict)) and len(value) < 100 and any(
        part is not value and has_no_memory(part) for part in parts
    )  # fmt: skip


def spoiled(value: Tree, chance: random.Random) -> Tree:
    """The same but for something that may be wrong. What torch cannot make of it is left as it
    is."""
    if isinstance(value, (tuple, list, dict)) and value and chance.random() < 0.85:
        keys = list(value) if isinstance(value, dict) else range(len(value))
        chosen, pairs = chance.choice(keys), value.items() if isinstance(value, dict) else ()
        if isinstance(value, dict):
            return {k: spoiled(part, chance) if k == chosen else part for k, part in pairs}
        parts = [spoiled(part, chance) if n == chosen else part for n, part in enumerate(value)]
        return type(value)(parts)
    if isinstance(value, (tuple, list, dict)) and chance.random() < 0.8:
        return _rebuilt(value, chance)
    if isinstance(value, torch.Tensor) and chance.random() < 0.85:
        try:
            return chance.choice(TENSORS)(value)
        except (RuntimeError, NotImplementedError, TypeError, ValueError):
            return value
    return chance.choice(OTHERS)()


def _rebuilt(value: Tree, chance: random.Random) -> Tree:
    if isinstance(value, dict):
        pairs = list(value.items())
        return chance.choice((
            OrderedDict(pairs), dict(reversed(pairs)), dict(pairs[1:]), {**value, "more": 1},
            {(key,): part for key, part in pairs}, list(value.values()),
        ))  # fmt: skip
    parts = list(value)
    other = list if isinstance(value, tuple) else tuple
    return chance.choice((
        other(parts), type(value)(parts[1:]), type(value)(parts * 2), type(value)([*parts, None]),
        type(value)(reversed(parts)), dict(enumerate(parts)), type(value)([parts]),
    ))  # fmt: skip
