"""Bisection of a model: its first kernel whose result differs from eager's."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from kernelmill.backend.capture import compile_capture
from kernelmill.backend.report import Capture
from kernelmill.compiler.bisect import Difference, difference, first_difference
from kernelmill.compiler.pipeline import Compiler
from kernelmill.config import CompilerConfig, given_config
from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import UnsupportedError
from kernelmill.graph.interpreter import run_graph
from kernelmill.graph.ir import Graph
from kernelmill.torch_internals.export import leaves_of
from kernelmill.torch_internals.modules import is_compiled


@dataclass(frozen=True)
class Bisection:
    """first      the first difference, None when there is none
    graphs     graphs that were checked
    torch      why graphs, or parts of the work, were left to torch"""

    first: Difference | None
    graphs: int
    torch: tuple[str, ...]


def bisect(
    model: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    config: CompilerConfig | None = None,
    factor: float = 1.0,
) -> Bisection:
    """Run the model in eager, and each of its compiled launches; for inference, with the sizes of
    these arguments. `factor` widens the tolerance.

    The model and the arguments are copied first. Raises the errors of the model.
    """
    search = _Search(given_config(config), factor)
    kwargs = dict(kwargs or {})
    torch.compiler.reset()
    with torch.no_grad():
        expected = _called(model, args, kwargs)
        compiled = torch.compile(copy.deepcopy(model), backend=search, dynamic=False)
        actual = _called(compiled, args, kwargs)
    torch.compiler.reset()
    if search.first is None:
        search.first = _import_at_fault(actual, expected, factor)
    return Bisection(search.first, search.graphs, tuple(search.torch))


def _called(model: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    own = model if is_compiled(model) else copy.deepcopy(model)
    torch.manual_seed(0)
    return own(*copy.deepcopy(tuple(args)), **copy.deepcopy(dict(kwargs)))


def _import_at_fault(actual: Any, expected: Any, factor: float) -> Difference | None:
    """Compare results of graphs run in torch: differences come from wrong graphs."""
    pairs = zip(leaves_of(actual), leaves_of(expected), strict=True)
    found = (difference(mine, theirs, factor) for mine, theirs in pairs if isinstance(mine, Tensor))
    return next((Difference("import", "", text) for text in found if text), None)


class _Search:
    """A backend that runs graphs operator by operator, and searches the first difference."""

    def __init__(self, config: CompilerConfig, factor: float) -> None:
        self.config, self.factor = config, factor
        self.first: Difference | None = None
        self.graphs = 0
        self.torch: list[str] = []

    def __call__(self, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        return compile_capture(
            gm, example_inputs, Compiler(self.config), {}, self._record, instead=self._instead
        )

    def _record(self, capture: Capture) -> None:
        if capture.refused:
            self.torch.append(f"{capture.name}: {capture.refused}")

    def _instead(self, graph: Graph) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self._look(graph, arguments)
            return run_graph(graph, arguments)

        return call

    def _look(self, graph: Graph, arguments: Sequence[Any]) -> None:
        if self.first is not None:
            return
        self.graphs += 1
        try:
            self.first = first_difference(graph, arguments, self.config, self.factor)
        except UnsupportedError as error:
            self.torch.append(f"{graph.name}: {error}")
