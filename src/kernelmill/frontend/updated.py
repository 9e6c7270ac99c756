"""Results that are updated arguments, or views of them.

A functional graph returns the new value of an updated argument, and views of that. In eager these
share memory with the argument, so here they are made of it.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from torch import fx
from torch.fx.node import map_arg

from kernelmill.torch_internals.operators import gives_views


class UpdatedArguments:
    """Results in terms of updated arguments. `copies` are the `copy_` nodes into arguments, by the
    copied value. Views are added to the graph."""

    def __init__(self, graph: fx.Graph, copies: Mapping[Any, fx.Node]) -> None:
        self._graph, self._found = graph, dict(copies)
        for copy in copies.values():
            argument: Any = copy.args[0]
            copy.meta["val"] = argument.meta["val"]

    def result(self, result: Any) -> Any:
        """Return the result, replaced by the argument or a view of it where possible."""
        source = _viewed(result)
        if result in self._found or source is None:
            return self._found.get(result, result)
        base = self.result(source)
        if base is source:
            return result
        with self._graph.inserting_before(self._graph.output_node()):
            view = self._graph.node_copy(result, lambda node: base if node is source else node)
        found: Any = map_arg((view.args, view.kwargs), lambda node: node.meta["val"])
        args, kwargs = found
        function: Any = view.target
        view.meta = {**result.meta, "val": function(*args, **kwargs)}
        self._found[result] = view
        return view


def _viewed(value: Any) -> fx.Node | None:
    """Return the base of a node's view, by its operator's schema."""
    if not isinstance(value, fx.Node) or not value.args or not isinstance(value.args[0], fx.Node):
        return None
    is_part = value.target is operator.getitem
    return value.args[0] if is_part or gives_views(str(value.target)) else None
