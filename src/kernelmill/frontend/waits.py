"""The order that a model requests with `wait_tensor`, or `record` and `wait`, kept in the marks of
operators.

In a traced graph `wait_tensor(t, dep)` is an operator that returns t. In the graph IR it becomes an
event: the operator that computes dep signals it, and readers of the result wait for it. `record`
returns an empty tensor and `wait` nothing. Their event is that of the stream's last operator before
`record`, for which operators of a stream after `wait` wait. If the two share no value, a tag names
the last `record` with that tag.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.node import has_side_effect

from kernelmill.graph.ir import Node, OpKind, Value
from kernelmill.graph.ops import OPS


@torch.library.custom_op("kernelmill::wait_tensor", mutates_args=())
def wait_tensor(t: Tensor, dep: Tensor) -> Tensor:
    """Return a copy of t."""
    return t.clone()


@wait_tensor.register_fake
def _fake(t: Tensor, dep: Tensor) -> Tensor:
    return t.clone()


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    return grad, None


wait_tensor.register_autograd(_backward)

WAIT = torch.ops.kernelmill.wait_tensor.default

_POINTS = torch.library.Library("kernelmill", "FRAGMENT")


def _point(schema: str, function: Any = lambda *_: None) -> Any:
    """Define an operator that stays in a graph even if unused."""
    name = schema.partition("(")[0]
    _POINTS.define(schema)
    _POINTS.impl(name, function, "CompositeExplicitAutograd")
    overload = getattr(torch.ops.kernelmill, name).default
    has_side_effect(overload)
    return overload


# Tracing passes a device to operators that make a tensor from none.
RECORD = _point(
    'record(*, str tag="", Device? device=None) -> Tensor',
    lambda tag="", device=None: torch.empty(0, device=device),
)
AWAIT = _point('wait(Tensor[] tensors, *, str tag="") -> ()', lambda tensors, tag="": None)
SCOPE_ENTER = _point("scope_enter(str[] keys, str[] values) -> ()")
SCOPE_EXIT = _point("scope_exit() -> ()")


class Waits:
    """The events of a graph during its import."""

    def __init__(self) -> None:
        self._count = 0
        self._pending: dict[fx.Node, frozenset[int]] = {}
        self._last: dict[str, Node] = {}
        self._recorded: dict[Any, int] = {}
        self._awaited: dict[str, frozenset[int]] = {}

    def note(self, node: fx.Node, made: Sequence[Node], env: Mapping[fx.Node, Any]) -> None:
        """Mark the operators that an FX node became."""
        if node.target is RECORD or node.target is AWAIT:
            return
        computing = [one for one in made if OPS[one.op].kind is not OpKind.VIEW]
        for one in computing:
            waiting = self._awaited.get(one.mark.stream)
            if waiting:
                one.mark = one.mark.with_events(awaited=waiting)
            self._last[one.mark.stream] = one
        if node.target is not WAIT and not self._pending:
            return
        events = frozenset[int]().union(
            *(self._pending.get(source, frozenset()) for source in node.all_input_nodes)
        )
        if node.target is WAIT:
            self._count += 1
            events |= {self._count}
            self._give(env[node.args[1]], self._count)  # type: ignore[index]
        for one in computing:
            one.mark = one.mark.with_events(awaited=events)
        if events and not computing:
            self._pending[node] = events

    def point(self, node: fx.Node, stream: str, env: Mapping[fx.Node, Any]) -> None:
        """Import a `record` or `wait` on a stream."""
        self._count += 1
        if node.target is RECORD:
            if last := self._last.get(stream):
                last.mark = last.mark.with_events(given=frozenset((self._count,)))
                self._recorded[node.kwargs.get("tag") or node] = self._count
            return
        tagged = self._recorded.get(node.kwargs.get("tag"))
        awaited = set[int]() if tagged is None else {tagged}
        for source in node.all_input_nodes:
            if source.target is not RECORD:
                self._give(env[source], self._count)
                awaited.add(self._count)
            elif source in self._recorded:
                awaited.add(self._recorded[source])
        self._awaited[stream] = self._awaited.get(stream, frozenset()) | awaited

    def _give(self, value: Value, event: int) -> None:
        """Mark the operator that computes a value as source of an event; arguments need none."""
        node = value.node
        while node is not None and OPS[node.op].kind is OpKind.VIEW:
            node = node.operands[0].node
        if node is not None:
            node.mark = node.mark.with_events(given=frozenset((event,)))
