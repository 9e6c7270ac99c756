"""Rewrites of graphs that torch cannot run or decompose unchanged."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from operator import getitem
from typing import Any

import torch
from torch import fx
from torch.fx.graph import CodeGen

from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import UnsupportedError
from kernelmill.torch_internals.operators import (
    OpOverload,
    gives_arguments,
    schema_of,
    writing_form,
    written_argument,
)
from kernelmill.torch_internals.tracing import graph_modules


def settle_given(gm: fx.GraphModule) -> str | None:
    """Read arguments in place of results that alias them, which torch does not know of operators of
    other libraries. Return why the graph has to run in torch, if that cannot be done."""
    parts = graph_modules(gm)
    calls = [_Giving(*call) for part in parts for call in _calls_that_give(part)]
    for call in calls:
        if (reason := call.refused()) is not None:
            return f"{call.overload} gives a tensor that it was given{reason}"
    for call in calls:
        call.settle()
    for part in parts if calls else ():
        part.recompile()
    return None


def _calls_that_give(gm: fx.GraphModule) -> Iterator[tuple[fx.Node, Any, bool]]:
    """Yield calls of operators that may return an argument: the node, the overload, whether it is
    the only one that accepts these arguments."""
    for node in gm.graph.nodes:
        overloads = list(_overloads(node)) if node.op == "call_function" else []
        giving = next(filter(gives_arguments, overloads), None)
        if giving is not None:
            yield node, giving, len(overloads) == 1


def _overloads(node: fx.Node) -> Iterable[Any]:
    """Return the overloads that a call may mean, if it names an operator without one."""
    target: Any = node.target
    if isinstance(target, OpOverload):
        return (target,)
    if isinstance(target, type(torch.ops.aten.add)) and not str(target).startswith("aten."):
        return filter(
            lambda overload: _takes(overload, node),
            (getattr(target, name) for name in target.overloads()),
        )
    return ()


def _takes(overload: Any, node: fx.Node) -> bool:
    """Return whether an overload accepts the arguments of a call."""
    arguments = schema_of(overload).arguments
    places = [argument.name for argument in arguments if not argument.kwarg_only]
    given = {*places[: len(node.args)], *node.kwargs}
    needed = {argument.name for argument in arguments if not argument.has_default_value()}
    known = {argument.name for argument in arguments}
    return len(node.args) <= len(places) and needed <= given <= known


@dataclass(frozen=True)
class _Giving:
    """A call of an operator that returns an argument."""

    node: fx.Node
    overload: Any
    sure: bool

    def refused(self) -> str | None:
        """Return why another call cannot replace this one."""
        node = self.node
        if not self.sure or "self" in node.kwargs:
            return ", or another overload is called: name the overload"
        try:
            sources = self.sources()
        except UnsupportedError as error:
            return f": it {error}"
        traced = node.meta.get("example_value", sources)
        results = traced if isinstance(traced, (list, tuple)) else (traced,)
        known = [source and source.meta.get("example_value", source) for source in sources]
        if any(k is not None and k is not r for k, r in zip(known, results, strict=True)):
            return ", and its meta function another one"
        if len(sources) > 1 and any(user.target is not getitem for user in node.users):
            return " in a list that is passed on whole"
        inputs = [one.meta.get("example_value") for one in node.all_input_nodes]
        if torch.is_grad_enabled() and any(getattr(one, "requires_grad", False) for one in inputs):
            return ", and a gradient is asked for"
        return None

    def sources(self) -> list[fx.Node | None]:
        """Return for each result the argument that it is, None for a new tensor. UnsupportedError
        where it is no tensor of the graph."""
        schema = schema_of(self.overload)
        names = [argument.name for argument in schema.arguments]
        given = {**dict(zip(names, self.node.args, strict=False)), **self.node.kwargs}
        found: list[fx.Node | None] = []
        for result in schema.returns:
            name = written_argument(schema, result)
            source = None if name is None else given.get(name)
            if name is not None and not isinstance(source, fx.Node):
                raise UnsupportedError(f"gives its {name!r}, which is no tensor")
            found.append(source)  # type: ignore[arg-type]
        return found

    def settle(self) -> None:
        """Call the form that returns only new tensors; read arguments in place of the others."""
        node, graph, sources = self.node, self.node.graph, self.sources()
        with graph.inserting_before(node):
            call = graph.call_function(writing_form(self.overload), node.args, node.kwargs)
        call.meta = {key: value for key, value in node.meta.items() if key != "example_value"}
        if len(sources) == 1:
            node.replace_all_uses_with(sources[0])  # type: ignore[arg-type]
        fresh = [place for place, source in enumerate(sources) if source is None]
        for user in list(node.users):
            place: Any = user.args[1]
            source = sources[place]
            if source is not None:
                user.replace_all_uses_with(source)
                graph.erase_node(user)
            elif len(fresh) == 1:
                user.replace_all_uses_with(call)
                graph.erase_node(user)
            else:
                user.args = (call, fresh.index(place))
        graph.erase_node(node)


class _ComplexNames(CodeGen):
    """A code generator that defines Python's text of complex numbers not finite: nanj, infj."""

    def additional_globals(self) -> list[tuple[str, Any]]:
        return [("nanj", complex(0, math.nan)), ("infj", complex(0, math.inf))]


def name_complex_constants(gm: fx.GraphModule) -> None:
    """Make a graph runnable whose constants have such text."""
    for part in graph_modules(gm):
        nodes = part.graph.nodes
        arguments = (a for node in nodes for a in (*node.args, *node.kwargs.values()))
        if any(isinstance(a, complex) and not math.isfinite(abs(a)) for a in arguments):
            part.graph.set_codegen(_ComplexNames())
            part.recompile()
