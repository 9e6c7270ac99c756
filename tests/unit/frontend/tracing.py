"""Functions traced by Dynamo and AOTAutograd, imported, and run by the graph interpreter."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from functorch.compile import min_cut_rematerialization_partition
from torch import fx
from torch._functorch import config as aot_config
from torch._functorch.aot_autograd import aot_module_simplified

from kernelmill.core.dtype import InputRole
from kernelmill.frontend.decompositions import decomposition_table
from kernelmill.frontend.importer import import_fx
from kernelmill.graph.interpreter import run_graph
from kernelmill.graph.ir import Graph
from kernelmill.graph.text import parse_graph, print_graph
from kernelmill.passes import Pass, run_pipeline


@dataclass
class Traced:
    """A function compiled into interpreted graphs: call it, then look at `graphs`."""

    function: Callable[..., Any]
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    passes: tuple[Pass, ...] = ()
    graphs: list[Graph] = field(default_factory=list[Graph])

    def __call__(self, *args: Any) -> Any:
        torch._dynamo.reset()
        return torch.compile(self.function, backend=self._backend, **self.options)(*args)

    @property
    def graph(self) -> Graph:
        """The only graph."""
        (graph,) = self.graphs
        return graph

    def operators(self) -> list[str]:
        """The operators of all graphs, ATen calls by their own name."""
        nodes = [node for graph in self.graphs for node in graph.nodes]
        return [str(n.attrs["target"]) if n.op == "aten" else n.op for n in nodes]

    def fallbacks(self) -> list[str]:
        """Operators of ATen but those of returned views, which are no steps."""
        nodes = [node for graph in self.graphs for node in graph.nodes if node.op == "aten"]
        steps = (node for node in nodes if node.attrs["reason"] != "a view that is returned")
        return [str(node.attrs["target"]) for node in steps]

    def _backend(self, gm: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        compiler = self._interpret
        with aot_config.patch(unlift_effect_tokens=True):
            return aot_module_simplified(
                gm,
                examples,
                fw_compiler=compiler,
                bw_compiler=compiler,
                inference_compiler=compiler,
                decompositions=decomposition_table(),
                keep_inference_input_mutations=True,
                partition_fn=min_cut_rematerialization_partition,
            )

    def _interpret(self, gm: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        placeholders = gm.graph.find_nodes(op="placeholder")
        names = [node.name for node in placeholders]
        imported = import_fx(gm, "traced", [InputRole.USER] * len(names), names)
        text = print_graph(imported.graph)
        assert print_graph(parse_graph(text)) == text
        graph = run_pipeline(imported.graph, self.passes)
        self.graphs.append(graph)

        def run(args: list[Any]) -> Any:
            return run_graph(graph, [*args, *imported.constants])

        run._boxed_call = True  # type: ignore[attr-defined]
        return run


def trace(
    function: Callable[..., Any], *args: Any, passes: tuple[Pass, ...] = (), **options: Any
) -> Traced:
    """The function after one call without gradients that agreed with eager, updates included."""
    traced = Traced(function, options, passes)
    mine, eager = copy.deepcopy(args), copy.deepcopy(args)
    with torch.no_grad():
        torch.manual_seed(5)
        expected = function(*eager)
        torch.manual_seed(5)
        actual = traced(*mine)
    torch.testing.assert_close(actual, expected, equal_nan=True, rtol=2e-5, atol=1e-5)
    torch.testing.assert_close(mine, eager, equal_nan=True, rtol=2e-5, atol=1e-5)
    return traced
