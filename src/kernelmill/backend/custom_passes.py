"""Users' rewrites of AOTAutograd's graph, before kernelmill's passes: the two passes of a config,
and between them the replacements registered in this process.

They see ATen operators without mutation, except for writes to arguments at the end. New nodes get
their values by torch's rules for shapes and types. The bodies of higher-order operators are
rewritten before the graph around them.

`torch.ops.kernelmill.scope_enter(keys, values)` and `scope_exit()` mark the nodes between them as
the blocks of `kernelmill.scope` do, by TorchAir's names of attributes.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import fx

from kernelmill.backend.replacements import REPLACEMENTS, functions_of
from kernelmill.config import CompilerConfig
from kernelmill.config.super_kernel_marks import MARK_KEY, STREAM_KEY, THREADS_KEY
from kernelmill.core.errors import ConfigError
from kernelmill.core.log import write_stage
from kernelmill.frontend.waits import SCOPE_ENTER, SCOPE_EXIT


def apply_passes(
    gm: fx.GraphModule, example_inputs: Sequence[Any], config: CompilerConfig, graph: str
) -> None:
    """Rewrite a graph, whose name is `graph`. Raises the error of a pass, and ConfigError for one
    that changes arguments or results of the graph."""
    write_stage(graph, "aot_graph", lambda: str(gm.graph))
    if functions_of(config):
        _rewrite(gm, example_inputs, config, graph)


def _rewrite(
    gm: fx.GraphModule, example_inputs: Sequence[Any], config: CompilerConfig, graph: str
) -> None:
    for name, body in gm.named_children():  # graphs of higher-order operators
        if isinstance(body, fx.GraphModule):
            values = [node.meta.get("val") for node in body.graph.find_nodes(op="placeholder")]
            _rewrite(body, values, config, f"{graph}.{name}")
    before = _Graph(gm)

    def run(name: str) -> None:
        if (function := getattr(config, name)) is not None:
            _run(name, function, gm, example_inputs, config)
            before.settle(name, graph)

    run("post_grad_custom_pre_pass")
    if config.experimental_config.pattern_fusion_pass and REPLACEMENTS.functions:
        REPLACEMENTS.matcher().apply(gm)
        before.settle("register_replacement", graph)
    run("post_grad_custom_post_pass")


def _run(
    name: str, function: Callable[..., Any], gm: fx.GraphModule, inputs: Sequence[Any],
    config: CompilerConfig,
) -> None:  # fmt: skip
    """Call a pass with TorchAir's arguments, or as Inductor does with the graph alone."""
    for given in ((gm, inputs, config), (gm.graph,)):
        try:
            inspect.signature(function).bind(*given)
        except TypeError:
            continue
        except ValueError:  # some of torch's own functions have none
            pass
        try:
            function(*given)
        except Exception as error:
            raise ConfigError(
                f"{name} is {_named(function)}, which raised {type(error).__name__}: {error}"
                f"{_place(function, error)}; correct it, or leave it out"
            ) from error
        return
    found = _named(function)
    raise ConfigError(f"{found} takes neither (gm, example_inputs, config) nor (graph)")


_MARKS: Mapping[str, tuple[str, Callable[[str, Any], Any]]] = {
    "_user_stream_label": (STREAM_KEY, lambda text, _: (text, 0)),
    "_user_stream_priority": (STREAM_KEY, lambda text, mark: (mark[0], int(text))),
    # Numbers that torch_npu has for the stream that the label names.
    **dict.fromkeys(
        ("_user_stream_id", "_user_stream_device_index", "_user_stream_device_type"),
        (STREAM_KEY, lambda _, mark: mark or ("", 0)),
    ),
    "_super_kernel_scope": (MARK_KEY, lambda text, _: (text, "")),
    "_super_kernel_options": (MARK_KEY, lambda text, mark: (mark[0], text)),
    "_op_aicore_num": (THREADS_KEY, lambda text, count: max(int(text), count or 0)),
    "_op_vectorcore_num": (THREADS_KEY, lambda text, count: max(int(text), count or 0)),
}
"""Attributes of a scope, each with its mark and the function that updates it."""


def _mark_scopes(graph: fx.Graph, name: str) -> None:
    """Make marks on nodes between `scope_enter` and `scope_exit`, and remove these two."""
    open_: list[dict[str, Any]] = [{}]
    for node in list(graph.nodes):
        if node.target is SCOPE_ENTER:
            marks = dict(open_[-1])
            for key, value in zip(*node.args, strict=True):
                if key not in _MARKS:
                    known = ", ".join(_MARKS)
                    raise ConfigError(f"{name}: scope_enter has no {key!r}; there are {known}")
                kind, make = _MARKS[key]
                marks[kind] = make(value, marks.get(kind))
            open_.append(marks)
        elif node.target is SCOPE_EXIT:
            open_.pop()
        elif open_[-1]:
            node.meta["custom"] = {**(node.meta.get("custom") or {}), **open_[-1]}
        if node.target in (SCOPE_ENTER, SCOPE_EXIT):
            graph.erase_node(node)
        if not open_:
            raise ConfigError(f"{name}: there is a scope_exit without a scope_enter")
    if len(open_) > 1:
        raise ConfigError(f"{name}: there is a scope_enter without a scope_exit")


def _own(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, partial):
        function = function.args[0] if function.args else function.func
    return function


def _named(function: Callable[..., Any]) -> str:
    return getattr(_own(function), "__qualname__", f"{_own(function)!r:.60}")


def _place(function: Callable[..., Any], error: Exception) -> str:
    """Return the line of the user's code that raised an error, or that of the pass itself."""
    frames = traceback.extract_tb(error.__traceback__)
    code = getattr(_own(function), "__code__", None)
    if code is None:
        return f" ({frames[-1].filename}:{frames[-1].lineno})"
    lines = [frame.lineno for frame in frames if frame.filename == code.co_filename]
    return f" ({code.co_filename}:{(lines or [code.co_firstlineno])[-1]})"


class _Graph:
    """A graph and its state before a rewrite."""

    def __init__(self, gm: fx.GraphModule) -> None:
        self._gm = gm
        self._remember()

    def _remember(self) -> None:
        nodes = self._gm.graph.nodes
        self._calls = {node: (node.target, node.args, node.kwargs) for node in nodes}
        self._arguments = list(self._gm.graph.find_nodes(op="placeholder"))
        self._results = [_kind(value) for value in self._returned()]

    def _returned(self) -> Sequence[Any]:
        returned: Any = self._gm.graph.output_node().args[0]
        return returned

    def settle(self, name: str, graph: str) -> None:
        """Give values to new nodes after a rewrite, check it, and remove unread nodes."""
        _mark_scopes(self._gm.graph, name)
        if list(self._gm.graph.find_nodes(op="placeholder")) != self._arguments:
            raise ConfigError(f"{name} changed the arguments of the graph, which must stay")
        self._gm.graph.lint()
        for node in self._made():
            node.meta = {**node.meta, "val": self._value(node, name)}
        results = [_kind(value) for value in self._returned()]
        if results != self._results:
            raise ConfigError(
                f"{name} changed the results of the graph from {self._results} to {results}: "
                "number, types and shapes have to stay"
            )
        self._gm.graph.eliminate_dead_code()
        self._gm.recompile()
        self._remember()
        write_stage(graph, f"after_{name}", lambda: str(self._gm.graph))

    def _made(self) -> Iterator[fx.Node]:
        """Yield nodes that are new, were changed, or read one whose value has changed."""
        other: set[fx.Node] = set()
        for node in self._gm.graph.nodes:
            if node.op != "call_function":
                continue
            call = node.target, node.args, node.kwargs
            known = "val" in node.meta and self._calls.get(node) == call
            if known and not other.intersection(node.all_input_nodes):
                continue
            before = _kind(node)
            yield node
            if _kind(node) != before:
                other.add(node)

    def _value(self, node: fx.Node, name: str) -> Any:
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda each: each.meta["val"])
        fakes = (getattr(each.meta.get("val"), "fake_mode", None) for each in self._arguments)
        mode = next((each for each in fakes if each is not None), None)
        target: Any = node.target
        try:
            if mode is None:
                return target(*args, **kwargs)
            with mode:
                return target(*args, **kwargs)
        except Exception as error:
            raise ConfigError(f"{name} made {node.format_node()}, which fails: {error}") from error


def _kind(value: Any) -> str:
    """Return type and shape of a node's value; the node's text where it is no tensor."""
    found = value.meta.get("val") if isinstance(value, fx.Node) else value
    if isinstance(found, torch.Tensor):
        return f"{found.dtype}{list(found.shape)}".removeprefix("torch.")
    return str(found)
