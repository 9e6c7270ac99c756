"""Runs passes one after the other, and names a pass that breaks the graph."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol

from kernelmill.core import knobs
from kernelmill.core.log import write_stage
from kernelmill.graph.ir import Graph
from kernelmill.graph.text import print_graph
from kernelmill.graph.verifier import verify_graph
from kernelmill.passes.constants import FoldConstants
from kernelmill.passes.dce import EliminateCommonSubexpressions, EliminateDeadCode
from kernelmill.passes.heads import FoldRepeatedKV
from kernelmill.passes.identities import RemoveIdentities
from kernelmill.passes.integer_products import MultiplyIntegers
from kernelmill.passes.results import WriteInPlace, apart
from kernelmill.passes.split_joins import SplitJoins, SplitReductions
from kernelmill.passes.views import MergeViews


class Pass(Protocol):
    """A rewrite: a frozen dataclass whose fields are its options. It never changes its argument."""

    @property
    def name(self) -> str: ...

    def apply(self, graph: Graph) -> Graph:
        """Return an equivalent graph, or the same one."""
        ...


DEFAULT: tuple[Pass, ...] = (
    FoldConstants(),
    MergeViews(),
    RemoveIdentities(),
    MergeViews(),
    MultiplyIntegers(),
    FoldRepeatedKV(),
    EliminateCommonSubexpressions(),
    EliminateDeadCode(),
    SplitReductions(),
    SplitJoins(),
    WriteInPlace(),
    EliminateDeadCode(),
)
"""Folding uncovers identities and both uncover equal nodes; what they leave unused goes last."""


def run_pipeline(graph: Graph, passes: Sequence[Pass] = DEFAULT) -> Graph:
    """Return the graph after all passes. It is verified at both ends, and with KERNELMILL_DEBUG
    after every pass. Raises VerificationError with the name of the pass that broke it."""
    verify_graph(graph, "the importer")
    write_stage(graph.name, "imported_graph", partial(print_graph, graph))
    each = knobs.DEBUG.get()
    before = graph
    for rewrite in passes:
        after = rewrite.apply(before)
        if after is not before:
            write_stage(graph.name, f"after_{rewrite.name}", partial(print_graph, after))
            if each:
                verify_graph(after, rewrite.name, before)
        before = after
    made = apart(graph, before)
    if made is not graph:
        verify_graph(made, passes[-1].name, graph)
    return made
