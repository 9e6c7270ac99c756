"""torch.export: what it has no public names for."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import update_wrapper
from types import FunctionType, MethodType
from typing import Any

from kernelmill.torch_internals.members import check
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
    from torch.fx import proxy

    register: Any = getattr(proxy, "_register_stack_trace_anchor", None)
    if register is None:  # up to torch 2.12
        check(proxy.TracerBase, "_record_forward_stack_traces_only")
        return _called_forward

    def registered(function: Any) -> Any:
        register(function)
        return function

    return registered


def _called_forward(function: Any) -> Any:
    """The same function of Python's under the one name whose lines traces keep."""
    if isinstance(function, MethodType):
        return MethodType(_called_forward(function.__func__), function.__self__)
    if not isinstance(function, FunctionType):
        return function
    code = function.__code__.replace(co_name="forward")
    name, defaults = function.__name__, function.__defaults__
    made = FunctionType(code, function.__globals__, name, defaults, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return update_wrapper(made, function)


def keep_lines(function: Any) -> Any:
    """A function as a trace keeps its lines; torch.export keeps those of methods called forward
    alone. The function itself where that is not known."""
    kept = _anchor.get()
    return function if kept is None else kept(function)
