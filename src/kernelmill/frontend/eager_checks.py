"""Detection of calls that eager refuses: kernels support more dtypes and numbers than ATen's.

Calls of a Dynamo graph on integers, bools, halves or complex numbers, or with a number that a dtype
cannot hold, are made once in eager on small tensors. If a call raises, but does not with float64
instead of these dtypes, eager refuses it.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as fn
from torch import Tensor, fx
from torch.fx.node import map_aggregate

from kernelmill.core.dataclass import dataclass
from kernelmill.torch_internals.dispatch import any_autocast, outside_modes
from kernelmill.torch_internals.operators import OpOverload
from kernelmill.torch_internals.tracing import graph_modules

_LARGEST = 8
"""Cap of sizes and counts, in all arguments."""
_USUAL = (torch.float32, torch.float64)
_LEFT = (operator.getitem, operator.setitem)
_OF_MODULES = (
    torch.add, operator.add, fn.relu, fn.gelu, torch.linalg.inv, torch.special.erf, torch.fft.fft,
)  # fmt: skip
_MODULES = {each.__module__ for each in _OF_MODULES}
_known: dict[Any, str | None] = {}
"""Eager's error for a call, by its key; None if it accepts the call."""


def refused_by_eager(gm: fx.GraphModule) -> str | None:
    """Return the first call of a graph of Dynamo or torch.export that eager refuses for its dtypes
    or numbers, with the message; None if there is none. The random state is unchanged."""
    asked = [each for part in graph_modules(gm) for each in _asked(part.graph)]
    unknown = {each.key: each for each in asked if each.key not in _known}
    if unknown:
        outside_modes(lambda: _ask(list(unknown.values())))
    return next((reason for each in asked if (reason := _known[each.key])), None)


@dataclass(frozen=True)
class _Call:
    """A call to try. Eager's answer depends on `key`; `exact`: numbers are passed unchanged;
    `dtypes` are those of the tensors that it reads and those that it names."""

    node: fx.Node
    key: tuple[Any, ...]
    exact: bool
    dtypes: Sequence[torch.dtype]


def _asked(graph: fx.Graph) -> Iterator[_Call]:
    autocast = any_autocast()
    for node in graph.nodes:
        # Autocast changes the types of computation of operators on floats.
        autocast = autocast or "autocast" in getattr(node.target, "__name__", "")
        if _is_eagers(node):
            call = _call_of(node, autocast)
            if call is not None:
                yield call


def _is_eagers(node: fx.Node) -> bool:
    """Return whether the target is a function or method of torch's own."""
    target: Any = node.target
    if node.op == "call_method":
        return hasattr(Tensor, target)
    if node.op != "call_function" or target in _LEFT:
        return False
    if isinstance(target, OpOverload):
        return target.namespace == "aten"
    return getattr(target, "__module__", "") in _MODULES


def _call_of(node: fx.Node, autocast: bool) -> _Call | None:
    values = list(_values((*node.args, *node.kwargs.values())))
    tensors = [value for value in values if isinstance(value, Tensor)]
    named = [value for value in values if isinstance(value, torch.dtype)]
    dtypes = {*named, *(tensor.dtype for tensor in tensors)}
    floats = [dtype for dtype in dtypes if dtype.is_floating_point]
    bound = min((torch.finfo(dtype).max for dtype in floats), default=float("inf"))
    exact = any(type(v) in (int, float) and bound < abs(v) < float("inf") for v in values)
    unusual = bool(tensors) and any(dtype not in _USUAL for dtype in dtypes)
    if not (unusual or exact) or (autocast and floats):
        return None
    numbers = repr((node.args, node.kwargs)) if exact else ""
    key = (node.target, *map(_kind, values), *node.kwargs, numbers)
    return _Call(node, key, exact, tuple(dtypes))


def _values(arguments: Sequence[Any]) -> Iterator[Any]:
    """Yield the arguments of a call, lists flattened, nodes replaced by their traced values."""
    for value in arguments:
        if isinstance(value, (list, tuple)):
            yield from _values(value)  # type: ignore[reportUnknownArgumentType]
        else:
            yield _traced(value)


def _traced(value: Any) -> Any:
    if not isinstance(value, fx.Node):
        return value
    return value.meta.get("example_value", value.meta.get("val"))  # torch.export has the second


def _kind(value: Any) -> Any:
    """Return what matters of an argument: a tensor's dtype and rank, a number's type and sign."""
    if isinstance(value, Tensor):
        return value.dtype, value.dim()
    if type(value) in (int, float):
        return type(value), value < 0
    return value if isinstance(value, (str, torch.dtype)) else type(value)


def _ask(calls: Sequence[_Call]) -> None:
    state = torch.random.get_rng_state()
    try:
        with warnings.catch_warnings(), torch.no_grad(), torch.device("cpu"):
            warnings.simplefilter("ignore")
            for call in calls:
                refusal = _refusal(call, ())
                others = [call.dtypes, *([dtype] for dtype in call.dtypes)]
                if refusal is not None and all(_refusal(call, each) for each in others):
                    refusal = None  # not by its dtypes
                _known[call.key] = refusal
    finally:
        torch.random.set_rng_state(state)


def _refusal(call: _Call, replaced: Collection[torch.dtype]) -> str | None:
    """Return eager's error for a call, with float64 in place of dtypes; None if it computes, or
    could not be tried."""
    node = call.node

    def dtype_of(dtype: torch.dtype) -> torch.dtype:
        return torch.float64 if dtype in replaced else dtype

    def given(value: Any) -> Any:
        value = _traced(value)
        if isinstance(value, Tensor):
            return torch.ones([_small(size) for size in value.shape], dtype=dtype_of(value.dtype))
        if isinstance(value, torch.dtype):
            return dtype_of(value)
        if isinstance(value, (torch.SymFloat, torch.SymBool)):
            return True
        return value if call.exact else _small(value)

    try:
        made: Any = map_aggregate((node.args, node.kwargs), given)
    except RuntimeError:  # a dtype that has no ones
        return None
    (args, kwargs), is_method = made, node.op == "call_method"
    target: Any = getattr(args[0], str(node.target)) if is_method else node.target
    try:
        target(*args[is_method:], **kwargs)
    except Exception as error:
        return f"eager refuses {node.name}: {error}"
    return None


def _small(value: Any) -> Any:
    """Return a size or count capped at the limit; anything else unchanged."""
    if isinstance(value, torch.SymInt):
        hint: Any = value.node.hint
        value = hint if isinstance(hint, int) else _LARGEST
    return min(value, _LARGEST) if type(value) is int else value
