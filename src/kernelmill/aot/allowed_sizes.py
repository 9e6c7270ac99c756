"""Sizes of arguments that an exported program accepts.

Also guards on the layout of arguments, if the code of an exported program reads it, or the layout
of results depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Interpreter

from kernelmill.aot.exported import Exported
from kernelmill.artifact.guard_kinds import STRIDES, strides_found, strides_name
from kernelmill.artifact.guards import where_of
from kernelmill.artifact.manifest import Condition, Guard, Limit
from kernelmill.artifact.paths import Path, name_of_argument
from kernelmill.backend.gears import symbolic
from kernelmill.backend.guards import following
from kernelmill.core.dim import Dim, Expr, bounds, linear_part, maximum, symbols
from kernelmill.core.errors import UnsupportedError
from kernelmill.core.scalar import roots, spelled
from kernelmill.frontend.conditions import conditions_asked, conditions_of
from kernelmill.graph.ir import Graph
from kernelmill.plan.ir import Plan
from kernelmill.runtime.memory.dims import given_symbols
from kernelmill.torch_internals.export import SizeQuestion
from kernelmill.torch_internals.tracing import fake_mode


def sizes_in(graph: Graph) -> tuple[Dim, ...]:
    """Return the symbolic sizes of the values that a graph computes."""
    shapes = (value.shape for node in graph.nodes for value in node.results)
    return tuple(dict.fromkeys(dim for shape in shapes for dim in shape if isinstance(dim, Expr)))


def allowed_sizes(
    exported: Exported, sizes: Sequence[Dim], plan: Plan, asked: Sequence[SizeQuestion] | None
) -> tuple[tuple[Limit, ...], tuple[Condition, ...]]:
    """Return the limits and conditions on sizes of arguments: torch.export's ranges, named by the
    dims that have these sizes, further conditions of the trace, among them the tests that it
    `asked` (None: unknown, possibly for size 0), and that no size is negative. Sizes that operators
    compute are checked at run time."""
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


_OFFSET = "storage_offset"

_Order = Callable[[int], Sequence[int]]
_ORDERS: tuple[_Order, ...] = (
    lambda rank: [*range(rank)],
    lambda rank: [*reversed(range(rank))],
    lambda rank: [0, *range(2, rank), 1],
)
"""The dims of a tensor from the outermost on: row-major, column-major, channels last."""


def results_follow_order(program: ExportedProgram) -> bool:
    """Return whether strides of results depend on the order of the arguments' dims in memory. True
    where unknown: then no other order is accepted.

    Torch's operators are called without data for arguments of several orders. A result in the
    memory of an argument is a view of that of each call, whatever its strides.
    """
    mode = fake_mode.get()
    if mode is None:
        return True
    try:
        with mode(), torch.no_grad():
            found = [_result_strides(program, order) for order in (None, *_ORDERS)]
    except Exception:  # whatever operators raise for other layouts
        return True
    return any(each != found[0] for each in found)


def _result_strides(program: ExportedProgram, order: _Order | None) -> list[Any]:
    """Return the strides of each result, None in the memory of an argument. The dims of arguments
    have this order, or that of the trace."""
    nodes = program.graph.find_nodes(op="placeholder")
    kinds = [spec.kind for spec in program.graph_signature.input_specs]
    given = [
        _like(node.meta["val"], order if kind == InputKind.USER_INPUT else None)
        for node, kind in zip(nodes, kinds, strict=True)
    ]
    results: Any = Interpreter(program.graph_module).run(*given)
    memory = {t.untyped_storage() for t in given if isinstance(t, torch.Tensor)}
    return [
        None if each.untyped_storage() in memory else each.stride()
        for each in results
        if isinstance(each, torch.Tensor)
    ]


def _like(value: Any, order: _Order | None) -> Any:
    """Return a tensor or number as in the trace, of the sizes that it had there."""
    if isinstance(value, torch.SymInt):
        return _traced(value)
    if not isinstance(value, torch.Tensor):
        return value
    shape, strides = list(map(_traced, value.shape)), list(map(_traced, value.stride()))
    if order is not None:
        step = 1
        for dim in reversed(order(len(shape))):
            strides[dim], step = step, step * shape[dim]
    return torch.empty_strided(shape, strides, dtype=value.dtype, device=value.device)


def _traced(size: int | torch.SymInt) -> int:
    node: Any = getattr(size, "node", None)
    return int(size) if node is None else node.hint


def asked_layouts(exported: Exported, asked: Sequence[str]) -> Iterator[Guard]:
    """Yield guards on the strides of arguments for code that `asked` by these methods: they must
    stay the same, or be those of a dense tensor. The trace has the answers for those alone.

    Any tensor that is asked may be a view of any argument. UnsupportedError where the answer
    differs between calls that a file accepts, and nothing can check it.
    """
    if not asked:
        return
    nodes = exported.gm.graph.find_nodes(op="placeholder")
    for node, path in zip(nodes, exported.leaves, strict=False):  # weights follow them
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            continue
        if _OFFSET in asked:
            raise UnsupportedError(
                f"it asks for {_OFFSET}() of tensors, which is another one for each argument"
            )
        yield _strides(path, value)


def _strides(path: Path, value: torch.Tensor) -> Guard:
    sizes, strides = list(map(symbolic, value.shape)), list(map(symbolic, value.stride()))
    dims = following(sizes, strides, lambda n: strides[n].is_Integer)
    if dims is None:
        raise UnsupportedError(
            f"it asks for strides, and those of argument {name_of_argument(path)!r} do not follow "
            "from its sizes: pass a contiguous tensor"
        )
    dims.sort()
    found = strides_found(str(strides[n]) if inner < 0 else inner for n, inner in dims)
    return Guard(STRIDES, path, found, strides_name(dims))
