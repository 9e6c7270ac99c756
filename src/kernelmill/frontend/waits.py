"""The order that a model asks for with `wait_tensor`, kept in the marks of operators.

In a traced graph `wait_tensor(t, dep)` is an operator that gives t. It leaves nothing in ours but
an event: what computes dep gives it, and what reads the operator's result waits for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from kernelmill.graph.definition import OpKind
from kernelmill.graph.ir import Node, Value
from kernelmill.graph.ops import OPS


@torch.library.custom_op("kernelmill::wait_tensor", mutates_args=())
def wait_tensor(t: Tensor, dep: Tensor) -> Tensor:
    """A copy of t."""
    return t.clone()


@wait_tensor.register_fake
def _fake(t: Tensor, dep: Tensor) -> Tensor:
    return t.clone()


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    return grad, None


wait_tensor.register_autograd(_backward)

WAIT = torch.ops.kernelmill.wait_tensor.default


class Waits:
    """Follows the events through a graph that is being imported."""

    def __init__(self) -> None:
        self._count = 0
        self._pending: dict[fx.Node, frozenset[int]] = {}

    def note(self, node: fx.Node, made: Sequence[Node], env: Mapping[fx.Node, Any]) -> None:
        """Mark the operators that an FX node was made into."""
        if node.target is not WAIT and not self._pending:
            return
        events = frozenset[int]().union(
            *(self._pending.get(source, frozenset()) for source in node.all_input_nodes)
        )
        if node.target is WAIT:
            self._count += 1
            events |= {self._count}
            self._give(env[node.args[1]], self._count)  # type: ignore[index]
        computing = [one for one in made if OPS[one.op].kind is not OpKind.VIEW]
        for one in computing:
            one.mark = one.mark.with_events(awaited=events)
        if events and not computing:
            self._pending[node] = events

    def _give(self, value: Value, event: int) -> None:
        """Mark what computes a value; an argument is there already."""
        node = value.node
        while node is not None and OPS[node.op].kind is OpKind.VIEW:
            node = node.operands[0].node
        if node is not None:
            node.mark = node.mark.with_events(given=frozenset((event,)))
