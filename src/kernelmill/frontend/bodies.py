"""Bodies of higher-order operators. A graph that the operator calls becomes a graph of ours;
objects that only torch can run or read are passed unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

import torch
from torch import fx

from kernelmill.core.digest import digest_of
from kernelmill.core.errors import UnsupportedError
from kernelmill.core.log import get_logger
from kernelmill.core.roles import InputRole
from kernelmill.frontend.aten_call import BodyName
from kernelmill.frontend.context import ImportContext
from kernelmill.graph.ir import Graph, Held, Value
from kernelmill.graph.printer import print_graph
from kernelmill.graph.typing import TypingError

_log = get_logger("frontend")
_numbers = count()

Importing = Callable[[fx.GraphModule, str, Sequence[InputRole], Sequence[str]], Any]
"""The type of `import_fx`."""

_OPERANDS: dict[str, Callable[[Sequence[Any]], Sequence[Any]]] = {
    "higher_order.cond": lambda args: args[3],
    "higher_order.invoke_subgraph": lambda args: args[2:],
    "higher_order.map_impl": lambda args: args[2],
    "higher_order.scan": lambda args: args[3],
    "higher_order.while_loop": lambda args: args[3],
    "higher_order.while_loop_stack_output": lambda args: args[3],
}
"""Operators that call their graphs with tensors alone, each with the arguments that are the same in
all these calls: the last inputs of the graph, in this order."""


class Bodies:
    """The bodies of one graph under construction."""

    def __init__(self, context: ImportContext, importing: Importing) -> None:
        self._context, self._importing = context, importing
        self._found = context.builder.graph.bodies
        self._known: dict[tuple[Any, ...], BodyName] = {}

    def of(self, module: object, operator: str, node: fx.Node) -> BodyName:
        """Return the body for a graph or other object of the module, in a call of this operator."""
        operands = _OPERANDS.get(operator)
        if operands is None or not isinstance(module, fx.GraphModule):
            return self.held(module)
        given = [self._role(operand) for operand in operands(node.args)]
        key = (id(module), *given)
        if key not in self._known:
            self._known[key] = self._imported(module, given)
        return self._known[key]

    def held(self, found: object) -> BodyName:
        """Return the body for an object that calls take unchanged."""
        name = f"held_{len(self._found)}"
        self._found[name] = Held(type(found).__name__, found)
        return BodyName(name)

    def reason(self, arguments: Any) -> str:
        """Return why an operator with these arguments runs in torch."""
        names = list(_names_in(arguments))
        if names and not any(isinstance(self._found[name], Held) for name in names):
            return "a higher-order operator, whose graphs are compiled"
        return "a higher-order operator"

    def _role(self, operand: Any) -> InputRole:
        """Return the role of an operand in calls of a body: that of the outer graph's input, if it
        is one that nothing writes to."""
        value = self._context.env.get(operand) if isinstance(operand, fx.Node) else None
        if not isinstance(value, Value) or value.node is not None or _is_written(operand):
            return InputRole.USER
        entries = self._context.builder.graph.tensor_inputs()
        return next((entry.role for entry in entries if entry.value is value), InputRole.USER)

    def _imported(self, module: fx.GraphModule, given: Sequence[InputRole]) -> BodyName:
        placeholders = module.graph.find_nodes(op="placeholder")
        roles = [InputRole.USER] * (len(placeholders) - len(given)) + list(given)
        try:
            made = self._importing(module, "body", roles, [node.name for node in placeholders])
            if made.constants or made.words or made.objects:
                raise UnsupportedError("it has constants, or arguments that are no integers")
        except (UnsupportedError, TypingError) as error:
            _log.info("a graph of a higher-order operator runs in torch: %s", error)
            return self.held(module)
        graph: Graph = made.graph
        # Held objects have no text.
        own = any(isinstance(body, Held) for body in graph.bodies.values())
        text = f"{next(_numbers)}" if own else digest_of(print_graph(graph, names=False).encode())
        graph.name = f"body_{text[:16]}"
        self._found.setdefault(graph.name, graph)
        return BodyName(graph.name, isinstance(module.graph.output_node().args[0], fx.Node))


def _names_in(arguments: Any) -> Iterator[str]:
    if isinstance(arguments, BodyName):
        yield arguments.name
    elif isinstance(arguments, (list, tuple, dict)):
        for part in arguments.values() if isinstance(arguments, dict) else arguments:  # type: ignore[reportUnknownVariableType]
            yield from _names_in(part)


def _is_written(operand: fx.Node) -> bool:
    copy = torch.ops.aten.copy_.default
    return any(user.target is copy and user.args[0] is operand for user in operand.users)
