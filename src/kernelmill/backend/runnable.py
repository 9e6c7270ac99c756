"""Rewrites of graphs that torch cannot run or decompose unchanged.

AOTAutograd runs the Python code of composite operators, which neither Dynamo nor the code guards
see, and calls of `torch.use_deterministic_algorithms`, of which its graph then has none.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from operator import getitem
from typing import Any

import torch
from torch import fx
from torch.fx.graph import CodeGen

from kernelmill.artifact.fingerprint import OPERATORS
from kernelmill.artifact.versions import packages_of
from kernelmill.config.super_kernel_marks import DETERMINISTIC_KEY
from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import UnsupportedError
from kernelmill.torch_internals import operators
from kernelmill.torch_internals.dynamo import determinism_setter
from kernelmill.torch_internals.operators import OpOverload, is_composite, schema_of, writing_form
from kernelmill.torch_internals.tracing import all_nodes, graph_modules


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
        giving = next(filter(operators.gives_arguments, overloads), None)
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
            name = operators.written_argument(schema, result)
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


def note_determinism(gm: fx.GraphModule) -> None:
    """Mark the nodes after such a call with torch's mode (`torch.set_deterministic_debug_mode`),
    which nodes traced from them keep."""
    setter = determinism_setter.get()
    if setter is None:
        return
    for part in graph_modules(gm):
        mode: int | None = None
        for node in part.graph.nodes:
            if node.target is setter:
                mode = _mode(*node.args, **node.kwargs)
            elif mode is not None:
                node.meta["custom"] = {DETERMINISTIC_KEY: mode, **(node.meta.get("custom") or {})}


def _mode(enabled: Any, *, warn_only: Any = False) -> int:
    return 0 if not enabled else 1 if warn_only else 2


_KNOWN = frozenset(
    "aten c10d_functional inductor kernelmill mkldnn prim prims quantized quantized_decomposed "
    "sparse".split()
)
"""Namespaces of torch's and of ours, whose versions every entry depends on."""

_OPERATOR, _OVERLOAD = OPERATORS


def packages_of_composites(gm: torch.fx.GraphModule) -> Mapping[str, str]:
    """Return the packages that bring composite operators, with versions, which stand for the code.
    UnsupportedError names an operator that no package brings."""
    found: dict[str, str] = {}
    for overload in _composite_overloads(gm):
        if overload.namespace in _KNOWN or not is_composite(overload):
            continue
        module = sys.modules.get(overload.namespace)
        versions = {} if module is None else packages_of([module])
        if not versions:
            raise UnsupportedError(
                f"it calls {overload.name()}, which torch takes apart by code that cannot be "
                "compared: register it for CPU, or with torch.library.custom_op"
            )
        found |= versions
    return found


def _composite_overloads(gm: torch.fx.GraphModule) -> Iterator[Any]:
    for node in all_nodes(gm):
        target: Any = node.target
        if isinstance(target, _OVERLOAD):
            yield target
        elif isinstance(target, _OPERATOR):
            yield from (getattr(target, name) for name in target.overloads())
