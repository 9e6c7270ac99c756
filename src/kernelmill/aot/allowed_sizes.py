"""Sizes of arguments that an exported program accepts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kernelmill.aot.exported import Exported
from kernelmill.artifact.manifest import Condition, Limit
from kernelmill.artifact.sizes import where_of
from kernelmill.core.dim import Dim, Expr, bounds, linear_part, maximum, symbols
from kernelmill.core.scalar import roots, spelled
from kernelmill.frontend import conditions_asked, conditions_of
from kernelmill.graph.ir import Graph
from kernelmill.plan.ir import Plan
from kernelmill.runtime.memory.dims import given_symbols
from kernelmill.torch_internals.export import SizeQuestion


def sizes_in(graph: Graph) -> tuple[Dim, ...]:
    """Return the symbolic sizes of the values that a graph computes."""
    shapes = (value.shape for node in graph.nodes for value in node.results)
    return tuple(dict.fromkeys(dim for shape in shapes for dim in shape if isinstance(dim, Expr)))


def allowed_sizes(
    exported: Exported, sizes: Sequence[Dim], plan: Plan, asked: Sequence[SizeQuestion] | None
) -> tuple[tuple[Limit, ...], tuple[Condition, ...]]:
    """Return the limits and conditions on sizes of arguments: torch.export's ranges, named by the
    dims that have these sizes, further conditions of the trace, among them those that it `asked`
    (None: unknown, and possibly whether sizes are 0), and that no size is negative. Sizes that
    operators compute are checked at run time."""
    ranges, known = exported.ranges, given_symbols(plan)
    values = (node.meta.get("val") for node in exported.gm.graph.find_nodes(op="placeholder"))
    modes = (getattr(value, "fake_mode", None) for value in values)
    found = next((m.shape_env for m in modes if m is not None and m.shape_env is not None), None)
    if not known or found is None:
        return (), ()
    conditions, positive = conditions_asked(asked or (), found, frozenset(known))
    least = {n: max(s.lo, int(asked is None or n in positive)) for n, s in known.items()}
    natural = [*sizes, *(left - 1 for left, right in plan.equations if right == maximum(left, 1))]
    more: list[Condition] = []
    for dim in _may_be_negative(natural, frozenset(known)):
        (name, *others) = symbols(dim)
        line = None if others or name not in known else line_of(dim, name)
        if line is None:
            more.append(("<=", "0", spelled(dim)))
        else:
            times, plus = line
            least[name] = max(least[name], -(plus // times))
    limits = tuple(
        Limit(n, max(ranges[n][0], least[n]), ranges[n][1], where_of(plan, s))
        for n, s in known.items()
        if n in ranges
    )
    all_conditions = (*conditions_of(found, frozenset(known)), *conditions, *more)
    return limits, tuple(dict.fromkeys(all_conditions))


def _may_be_negative(dims: Iterable[Dim], known: frozenset[str]) -> Iterator[Dim]:
    """Yield the dims over known symbols alone whose ranges allow negative values, as n - 1."""
    for dim in dict.fromkeys(dims):
        low, names = bounds(dim)[0], roots((dim,))
        if names and names <= known and (low is None or low < 0):
            yield dim


def line_of(dim: Dim, name: str) -> tuple[int, int] | None:
    """Return (times, plus) of a dim times * name + plus that grows with name; None for others."""
    times, plus = linear_part(dim, name) or (0, 0)
    if isinstance(times, int) and isinstance(plus, int) and times > 0:
        return times, plus
    return None
