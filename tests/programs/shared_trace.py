"""One trace of a program for several modes.

Modes that differ behind the backend's call only get the same graphs from Dynamo and AOTAutograd,
and tracing is most of what a program costs. So graphs are traced once and each mode's backend
compiles them; a call runs what the current mode has made of them, with a module, arguments and
threads of its own.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from functorch.compile import make_boxed_func
from torch import fx
from torch.compiler import disable

from kernelmill.backend import capture
from kernelmill.config.super_kernel_marks import MARK_KEY
from kernelmill.core.version import BACKEND_NAME
from kernelmill.torch_internals.autograd import output_strides
from tests.programs.modes import Compiled, Made, Mode, Subject, counted
from tests.torch_settings import threads_set

Call = Callable[..., Any]
Graph = fx.GraphModule


class SharedTrace:
    """A backend that compiles each graph as the backends of several modes do."""

    def __init__(self, modes: Sequence[Mode]) -> None:
        self._ways = {mode.name: way for mode in modes if isinstance(way := mode.make, Compiled)}
        self._threads = {mode.name: mode.threads for mode in modes}
        self._backends = {name: way.backend() for name, way in self._ways.items()}
        self._marked = any(way.marked for way in self._ways.values())
        self._current = modes[0].name
        self._graphs = 0
        self.failed = False
        self.__name__ = BACKEND_NAME  # as `Backend` is called

    @property
    def serves_all(self) -> bool:
        """Whether what was traced is what each mode would trace: marks may change where a program
        that is no whole graph is cut, and nothing else."""
        return not self._marked or self._graphs == 1

    def make(self, mode: Mode, subject: Subject) -> Made:
        """The program in this mode."""
        model = subject.model(self._marked)
        compiled = torch.compile(model, backend=self, dynamic=self._ways[mode.name].dynamic)

        def run(*args: Any) -> Any:
            self._current = mode.name
            return compiled(*args)

        return model, counted(run, self._backends[mode.name], subject)

    def __call__(self, gm: Graph, example_inputs: Sequence[Any], **_: Any) -> Call:
        self._graphs += 1
        try:
            return self._compiled(gm, example_inputs)
        except Exception:
            self.failed = True
            raise

    def _compiled(self, gm: Graph, example_inputs: Sequence[Any]) -> Call:
        """Each backend gets as far as AOTAutograd, which then calls the compilers of all."""
        names = list(self._backends)
        calls: dict[str, Call] = {}
        compilers: dict[str, Mapping[str, Call]] = {}
        traced = capture.aot_module_simplified
        wrapped: Call | None = None

        def compile_next() -> None:
            name = names[len(compilers)]
            calls[name] = self._backends[name](gm, example_inputs)

        def trace(module: Graph, inputs: Sequence[Any], **given: Any) -> Call:
            nonlocal wrapped
            compilers[names[len(compilers)]] = given
            if len(compilers) < len(names):
                compile_next()
            else:
                kinds = [kind for kind in given if kind.endswith("_compiler")]
                all_of = {kind: partial(self._compile_all, kind, compilers) for kind in kinds}
                wrapped = traced(module, inputs, **{**given, **all_of})
            assert wrapped is not None
            return wrapped

        with patch.object(capture, "aot_module_simplified", trace):
            compile_next()
        return disable(self._current_of(calls), reason="it runs compiled programs")

    def _compile_all(
        self, kind: str, compilers: Mapping[str, Mapping[str, Call]], gm: Graph, inputs: Any
    ) -> Call:
        """What AOTAutograd calls for one of its graphs, of all modes."""
        made: dict[str, Call] = {}
        strides = output_strides()
        told: list[Any] = []
        for name, given in compilers.items():
            if strides is not None:
                strides.clear()
            with threads_set(self._threads[name]):
                made[name] = given[kind](self._graph_of(name, gm), inputs)
            told.append(None if strides is None else list(strides))
        if any(one != told[0] for one in told):
            raise NotShared("the modes' forwards lay their results in memory in several ways")
        run = self._current_of(made)
        return make_boxed_func(lambda *args: run(list(args)))

    def _current_of(self, calls: Mapping[str, Call]) -> Call:
        """Calls that of the current mode, with its threads."""

        def run(*args: Any) -> Any:
            with threads_set(self._threads[self._current]):
                return calls[self._current](*args)

        return run

    def _graph_of(self, name: str, gm: Graph) -> Graph:
        """A copy of the graph for a mode, without marks where its own program has none."""
        mine = _copied(gm)
        if not self._ways[name].marked:
            for node in mine.graph.nodes:
                marks = node.meta.get("custom")
                if marks and MARK_KEY in marks:
                    node.meta["custom"] = {k: v for k, v in marks.items() if k != MARK_KEY}
        return mine


class NotShared(Exception):
    """The modes need traces of their own."""


def _copied(gm: Graph) -> Graph:
    """A graph of its own over the same tensors."""
    mine = fx.GraphModule(gm, copy.deepcopy(gm.graph))
    mine.meta = copy.copy(gm.meta)
    return mine
