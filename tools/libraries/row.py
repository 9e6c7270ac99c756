"""A model of a library: how it is built, compiled and called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch

Backend = Callable[..., Any] | str


def library(name: str) -> Any:
    """A module that may not be there where types are checked."""
    return import_module(name)


def torch_compiled(model: Any, backend: Backend) -> Any:
    """The model as torch.compile makes it."""
    return torch.compile(model, backend=backend)


def called(model: Any, given: Any) -> Any:
    """The result of the model for a tensor, or for the arguments in a tuple or dict."""
    if isinstance(given, dict):
        return model(**given)
    return model(*given) if isinstance(given, tuple) else model(given)


@dataclass(frozen=True)
class Row:
    """What the suite does with one model.

    name     "library: model", as the table has it
    build    the model, with the same weights each time: `torch.manual_seed` was called
    inputs   what it is called with; the first `warm` of them may be traced
    call     the result for one of them
    door     compiles it with a backend, as the library's documents do
    said     that, in words
    ours     whether `kernelmill.compile` is tried as well
    most     the largest difference from eager, as a part of the largest number of a result
    breaks   graph breaks that the library's own code asks for
    grad     whether gradients are on
    quick    whether the tests of each change have it
    reference  builds the model for eager, where that is another
    """

    name: str
    build: Callable[[], Any]
    inputs: Callable[[], Sequence[Any]]
    call: Callable[[Any, Any], Any] = called
    door: Callable[[Any, Backend], Any] = torch_compiled
    said: str = "torch.compile"
    warm: int = 3
    ours: bool = True
    most: float = 2e-4
    breaks: int = 0
    grad: bool = False
    quick: bool = False
    reference: Callable[[], Any] | None = None

    @property
    def of(self) -> str:
        """The library's name."""
        return self.name.partition(":")[0]
