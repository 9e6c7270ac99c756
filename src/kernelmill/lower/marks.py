"""In which super-kernel range a kernel is, when its operators may be in several."""

from __future__ import annotations

from collections.abc import Sequence

from kernelmill.config.ranges import TAKEN_OUT
from kernelmill.graph.ir import Node
from kernelmill.graph.ops import OPS


def launch_mark(nodes: Sequence[Node]) -> str:
    """The mark of the last marked operator that computes something: a kernel that does work of a
    range belongs to it. One with an operator that was taken out of its range is in none."""
    marks = [node.scope for node in nodes if node.scope and OPS[node.op].kind != "view"]
    return "" if TAKEN_OUT in marks or not marks else marks[-1]
