"""`record_shapes`: a log of the shapes that a model is called with."""

from __future__ import annotations

import inspect
import json
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from itertools import chain
from os import PathLike
from typing import TYPE_CHECKING, Any

from kernelmill.core.errors import file_errors
from kernelmill.gears.shape_log import line_of

if TYPE_CHECKING:
    from torch import Tensor, nn


@contextmanager
def record_shapes(model: nn.Module, path: str | PathLike[str]) -> Generator[None]:
    """Append a line to the file for every call of `model` in the `with` block: the shapes of its
    tensors, by the names of `forward`'s parameters. `kernelmill gears suggest` reads such files.

    Tensors in lists, tuples, dicts and dataclasses are named as in Python code: `inputs[0]`,
    `batch["mask"]`. The model may be compiled. Several processes may write to one file.
    Raises FileError if the file cannot be written.
    """
    import torch

    from kernelmill.torch_internals.modules import original_module

    inner: Any = original_module(model)
    signature = inspect.signature(inner.forward)

    def write(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = signature.bind(*args, **kwargs).arguments
        tensors = chain.from_iterable(named_tensors(value, name) for name, value in given.items())
        log.write(line_of({name: list(tensor.shape) for name, tensor in tensors}))

    # One write a line, at the end of the file: lines of several processes do not mix.
    kept_out: Any = torch.compiler.disable(write)
    with file_errors(path):
        opened = open(path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115 - closed below
    with opened as log:
        hook = model.register_forward_pre_hook(kept_out, prepend=True, with_kwargs=True)
        try:
            yield
        finally:
            hook.remove()


def named_tensors(value: object, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor in `value`, which is named `name`, with its name."""
    import torch

    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, Mapping):
        entries: Mapping[Any, Any] = value  # type: ignore[reportUnknownVariableType]
        for key, item in entries.items():
            spelled = json.dumps(key) if isinstance(key, str) else repr(key)
            yield from named_tensors(item, f"{name}[{spelled}]")
    elif isinstance(value, (list, tuple)):
        items: list[Any] | tuple[Any, ...] = value  # type: ignore[reportUnknownVariableType]
        for number, item in enumerate(items):
            yield from named_tensors(item, f"{name}[{number}]")
    elif is_dataclass(value):
        for field in fields(value):
            yield from named_tensors(getattr(value, field.name), f"{name}.{field.name}")
