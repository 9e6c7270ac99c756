"""Rewrites of users over the graph that AOTAutograd gives, before anything of ours: the two passes
of a config, and between them the replacements that were registered in this process.

They see ATen operators without mutation inside, but for the writes to arguments at the end. What a
rewrite makes gets its values by torch's rules for shapes and types.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx

from kernelmill.backend.replacements import REPLACEMENTS, functions_of
from kernelmill.config import CompilerConfig
from kernelmill.core.errors import ConfigError


def apply_passes(gm: fx.GraphModule, example_inputs: Sequence[Any], config: CompilerConfig) -> None:
    """Rewrite a graph. Raises what a pass raises, and ConfigError for one that leaves a graph of
    other arguments or results."""
    if not functions_of(config):
        return
    before = _Graph(gm)
    if config.post_grad_custom_pre_pass is not None:
        _run(config.post_grad_custom_pre_pass, gm, example_inputs, config)
        before.settle("post_grad_custom_pre_pass")
    if config.experimental_config.pattern_fusion_pass and REPLACEMENTS.functions:
        REPLACEMENTS.matcher().apply(gm)
        before.settle("register_replacement")
    if config.post_grad_custom_post_pass is not None:
        _run(config.post_grad_custom_post_pass, gm, example_inputs, config)
        before.settle("post_grad_custom_post_pass")


def _run(
    function: Callable[..., Any], gm: fx.GraphModule, inputs: Sequence[Any], config: CompilerConfig
) -> None:
    """A pass as TorchAir has them, or as Inductor: of the graph alone."""
    for given in ((gm, inputs, config), (gm.graph,)):
        try:
            inspect.signature(function).bind(*given)
        except TypeError:
            continue
        except ValueError:  # some of torch's own functions have none
            pass
        function(*given)
        return
    name = f"{function!r:.60}"
    raise ConfigError(f"{name} takes neither (gm, example_inputs, config) nor (graph)")


class _Graph:
    """A graph as it was before a rewrite."""

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

    def settle(self, name: str) -> None:
        """After a rewrite: what it made gets its values, what nothing reads is removed."""
        if list(self._gm.graph.find_nodes(op="placeholder")) != self._arguments:
            raise ConfigError(f"{name} changed the arguments of the graph: they have to stay")
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

    def _made(self) -> Iterator[fx.Node]:
        """Nodes that are new, were changed, or read one whose value has become another."""
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
    """Type and shape of what a node gives; the node's text where it is no tensor."""
    found = value.meta.get("val") if isinstance(value, fx.Node) else value
    if isinstance(found, torch.Tensor):
        return f"{found.dtype}{list(found.shape)}".removeprefix("torch.")
    return str(found)
