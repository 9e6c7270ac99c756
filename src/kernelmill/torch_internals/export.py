"""torch.export: what it has no public names for."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from kernelmill.torch_internals.registry import internal


@internal(
    "export.trees",
    reason="telling apart the tensors that come twice among the arguments of an export",
    fallback="aot.compile takes exported programs only",
)
def trees() -> Any:
    """torch's module of trees."""
    from torch.utils import _pytree

    mapped = _pytree.tree_map_only(int, lambda n: n + 1, {"a": [1, "b"]})
    right = mapped == {"a": [2, "b"]} and _pytree.tree_leaves(mapped) == [2, "b"]
    return _pytree if right else None


def leaves_of(value: Any) -> list[Any]:
    """What is in lists, tuples, dicts and torch's other containers; in plain ones where `trees`
    does not work."""
    found = trees.get()
    if found is not None:
        return found.tree_leaves(value)
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [leaf for part in value for leaf in leaves_of(part)]
    return [value]


@internal(
    "export.oblivious_sizes",
    reason="exporting for sizes 0 and 1 too",
    fallback="files of aot.compile are for sizes from 2 on, where sizes vary",
)
def _oblivious() -> Any:
    from torch.fx.experimental import _config

    settings: Any = _config
    with settings.patch(backed_size_oblivious=True):
        return settings.patch if settings.backed_size_oblivious else None


@contextmanager
def oblivious_sizes() -> Generator[None]:
    """Inside, a trace concludes nothing from sizes 0 and 1."""
    patch = _oblivious.get()
    if patch is None:
        yield
        return
    with patch(backed_size_oblivious=True):
        yield


@internal(
    "export.stack_anchor",
    reason="lines of the user's code for exported functions",
    fallback="messages about exported functions name no line",
)
def _anchor() -> Callable[[Any], Any]:
    from torch.fx.proxy import _register_stack_trace_anchor

    return _register_stack_trace_anchor


def keep_lines(program: Any) -> None:
    """Have a trace keep the lines of this function; torch.export keeps those of methods called
    forward alone."""
    register = _anchor.get()
    if register is not None:
        register(program)
