"""Marks on the results of a recorded program, which identify them in the value that the function
returns and in the objects it changes."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import fields, is_dataclass
from typing import Any, cast

import torch

from kernelmill.artifact.results import tuple_of


class MarkedInteger(int):
    """An integer that is a result of the program, told from others of the same value."""


class MarkedFloat(float):
    """A number that was read from a result, told from others of the same value."""


class MarkedTensor(torch.Tensor):
    """A result of the program with a number that the function computes with or returns, as
    `x.sum().item()`: Dynamo reads it from the result. `taken` are such numbers, `plain` is the
    result itself."""

    plain: torch.Tensor
    taken: list[MarkedFloat]

    @classmethod
    def of(cls, result: torch.Tensor) -> MarkedTensor:
        """Return the result, marked."""
        made = result.as_subclass(cls)
        made.plain, made.taken = result, []
        return made

    def item(self) -> float:
        """Return its number, marked too."""
        number = MarkedFloat(self.plain.item())
        self.taken.append(number)
        return number


def marked(number: int, result: Any, scalars: Collection[int]) -> Any:
    """Mark a result of a program, by its number, if it needs a mark; `scalars` are the results from
    which numbers are read."""
    if type(result) is int:
        return MarkedInteger(result)
    return MarkedTensor.of(result) if number in scalars else result


def unmarked(value: Any) -> Any:
    """Return a value with its marked parts replaced by plain ones; containers in place."""
    if isinstance(value, MarkedInteger):
        return int(value)
    if isinstance(value, MarkedFloat):
        return float(value)
    if isinstance(value, MarkedTensor):
        return value.plain
    if isinstance(value, dict):
        for key in list(value):
            value[key] = unmarked(value[key])
        return value
    if isinstance(value, type):
        return value
    if is_dataclass(value):
        for each in fields(value):
            if hasattr(value, each.name):  # it need not be set
                object.__setattr__(value, each.name, unmarked(getattr(value, each.name)))
        return value
    if isinstance(value, (list, deque)):
        for place, part in enumerate(cast("list[Any]", value)):
            value[place] = unmarked(part)
        return value
    if isinstance(value, tuple):
        return tuple_of(type(value), [unmarked(part) for part in value])
    for name, part in list(getattr(value, "__dict__", {}).items()):
        if isinstance(
            part, (MarkedInteger, MarkedFloat, MarkedTensor)
        ):  # it may be a model: no deeper
            vars(value)[name] = unmarked(part)
    return value
