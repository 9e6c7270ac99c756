"""Gears of one Dynamo graph: from the marks on its arguments to values of its symbols.

The gears of frames are recorded, to recognise a retrace for another size. Dynamo guards the sizes
that were static in a trace, and traces the frame again for a call with another size. The arguments
of that call have no gears: without this record they would look like those of a model without gears.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from types import CodeType
from typing import Any

import sympy
import torch
from torch import fx, nn

from kernelmill.backend.arguments import names_of
from kernelmill.config import CompilerConfig
from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import evaluate, symbols
from kernelmill.core.errors import GearError, PaddingError
from kernelmill.core.log import get_logger
from kernelmill.gears import gear_set
from kernelmill.gears.gear_set import ATTRIBUTE, DimGears, Gear, GearDim, GearSet, Link, Marked
from kernelmill.graph.ir import Graph
from kernelmill.torch_internals import dynamo
from kernelmill.torch_internals.dynamo import current_trace, is_static, shown_error, source_names

_log = get_logger("backend")


_Shown: Any = shown_error()


class ShownGearError(_Shown, GearError):
    """A GearError that Dynamo passes to the caller unchanged."""


class ShownPaddingError(_Shown, PaddingError):
    """A PaddingError that Dynamo passes to the caller unchanged."""


@contextmanager
def shown_errors() -> Generator[None]:
    """Raise errors about gears as those that Dynamo passes on."""
    try:
        yield
    except GearError as error:
        raise ShownGearError(str(error)) from None
    except PaddingError as error:
        raise ShownPaddingError(str(error)) from None


@dataclass(frozen=True)
class TracedArgument(Marked):
    """An argument of Dynamo's graph as traced. `dims` are sympy expressions, of a tensor's shape or
    of an integer (`dtype` None)."""

    source: str
    dims: tuple[Any, ...]
    dtype: torch.dtype | None


class SizeAssumptions:
    """Assumptions of a trace about its symbols, at its end: torch's `ranges` of them by name, and
    the `facts`, expressions that must be true, with the user's stack (or None)."""

    def __init__(self, env: Any) -> None:
        self.ranges = {str(symbol): found for symbol, found in env.var_to_range.items()}
        self.facts: list[tuple[Any, Any]] = []
        for guard in (*env.guards, *itertools.chain(*env.deferred_runtime_asserts.values())):
            stack = getattr(getattr(guard, "sloc", None), "user_stack", None)
            self.facts.append((env.replace(guard.expr), stack))

    def broken(self, values: Mapping[str, int]) -> str:
        """Describe the first assumption broken by these values, by name; "" for none."""
        for name, size in values.items():
            allowed = self.ranges.get(name)
            if allowed is not None and not allowed.lower <= size <= allowed.upper:
                least, most = allowed.lower, allowed.upper
                return f"it is traced for sizes in [{least}, {most}], and {name} is {size}"
        for expression, stack in self.facts:
            if at(expression, values) == sympy.false:
                return f"it takes {expression} for granted{_where(stack)}"
        return ""


@dataclass(frozen=True)
class CaptureGears:
    """The gears of one graph. `values` gives, for each gear that the trace holds for, the values of
    torch's symbols by name; `unfit` has the reasons for the other gears."""

    arguments: tuple[TracedArgument, ...]
    gears: GearSet
    values: Mapping[Gear, Mapping[str, int]]
    unfit: Mapping[Gear, str]
    guards: SizeAssumptions

    def takes(self, shapes: Mapping[str, Sequence[int]]) -> bool:
        """Return whether arguments of these shapes, as far as known, fit a gear."""
        if self._static_mismatch(shapes):
            return False
        known = all(axis.argument in shapes for axis in self.gears.axes)
        return not known or self.gears.of(shapes) in self.values

    def refusal(self, shapes: Mapping[str, Sequence[int]]) -> GearError:
        """Return the error for arguments of these shapes, which no gear takes."""
        if mismatch := self._static_mismatch(shapes):
            return GearError(mismatch)
        sizes = self.gears.of(shapes)
        if why := self.unfit.get(sizes):
            return GearError(misfit(self.gears, sizes, why))
        names = dict.fromkeys(axis.argument for axis in self.gears.axes)
        came = ", ".join(f"{name!r} has the shape {list(shapes[name])}" for name in names)
        return GearError(self.gears.refusal(came, sizes))

    def _static_mismatch(self, shapes: Mapping[str, Sequence[int]]) -> str:
        for name, traced in shapes_of(self.arguments).items():
            shape = shapes.get(name, ())
            if len(shape) != len(traced):
                continue
            for dim, (size, expected) in enumerate(zip(shape, traced, strict=True)):
                if size != expected and GearDim(name, dim) not in self.gears.axes:
                    return (
                        f"argument {name!r} has the shape {list(shape)}: dim {dim} is {size}, and "
                        f"{expected} at the first call; dims without gears are static where others "
                        f"have them. The gears are {self.gears.describe_all()}: declare gears for "
                        "this dim too"
                    )
        return ""


def capture_gears(
    gm: fx.GraphModule, arguments: Sequence[TracedArgument], config: CompilerConfig
) -> CaptureGears | None:
    """Return the gears that the arguments of Dynamo's graph carry; None when none does.

    GearError when they break a rule: see `kernelmill.inference.set_dim_gears`.
    """
    if all(argument.gears is None for argument in arguments):
        return None
    _check_surroundings(gm, config)
    gear_set.check_small(arguments, config.inference_config.allow_small_gears)
    gears = gear_set.combine(arguments, config.inference_config.dynamic_gears_merge_policy)
    shapes = shapes_of(arguments)
    first = gears.of(shapes)
    _log.info("Compiling concrete graph 0 with options:")
    for name, value in gear_set.graph_options(arguments, gears).items():
        _log.info("    %s = %s", name, value)
    guards = SizeAssumptions(shape_env_of(gm))
    by_name = {argument.name: argument for argument in arguments}
    axes = [by_name[axis.argument].dims[axis.dim] for axis in gears.axes]
    for axis, expression in zip(gears.axes, axes, strict=True):
        if not expression.free_symbols:
            raise GearError(
                f"{axis.argument}[{axis.dim}] has gears, but in the trace it is "
                f"always {expression}: was it compiled with dynamic=False, or does the model "
                "itself fix that size?"
            )
    geared = set[Any]().union(*(expression.free_symbols for expression in axes))
    fixed = {
        str(dim): size
        for argument in arguments
        if argument.dtype is not None
        for dim, size in zip(argument.dims, argument.shape, strict=True)
        if dim.is_Symbol and dim not in geared
    }
    listed = config.inference_config.dynamic_gears_merge_policy == "zip"
    values, unfit = solved(gears, axes, fixed, guards.broken, listed)
    found = CaptureGears(tuple(arguments), gears, values, unfit, guards)
    if first not in values and config.inference_config.gear_miss == "error":
        raise found.refusal(shapes)
    return found


def relax_guards(gm: fx.GraphModule) -> None:
    """Take the guards on sizes away from Dynamo, for a graph whose every size the entry checks.

    A size that is no gear then reaches the entry and its error, and is not traced. Guards stay
    where an integer argument may be one of the sizes: nothing else would check it.
    """
    env = shape_env_of(gm)
    if all(isinstance(entry.fake, torch.Tensor) for entry in env.tracked_fakes):
        env.tracked_fakes.clear()
        env.guards.clear()


def traced_arguments(gm: fx.GraphModule) -> list[TracedArgument]:
    """Return the arguments of Dynamo's graph with the shapes and gears of their real tensors."""
    found: list[TracedArgument] = []
    nodes = gm.graph.find_nodes(op="placeholder")
    sources = source_names(gm)
    for node, name, source in zip(nodes, names_of(sources), sources, strict=True):
        fake: Any = node.meta.get("example_value")
        example: Any = getattr(node.meta.get("grapharg"), "example", None)
        shape, gears, dims, dtype = (), None, (), None
        if isinstance(fake, torch.Tensor) and isinstance(example, torch.Tensor):
            shape, gears, dtype = tuple(example.shape), gear_set.gears_of(example), example.dtype
            dims = tuple(map(symbolic, fake.shape))
        elif isinstance(fake, torch.SymInt) and isinstance(fake.node.hint, int):
            shape, dims = (fake.node.hint,), (symbolic(fake),)
        found.append(TracedArgument(name, shape, gears, source, dims, dtype))
    return found


def shapes_of(arguments: Sequence[TracedArgument]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of tensor arguments by name."""
    return {one.name: one.shape for one in arguments if one.dtype is not None}


def symbolic(size: Any) -> Any:
    """Return a traced size as a sympy expression."""
    return size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(size)


def at(expression: Any, values: Mapping[str, int]) -> Any:
    """Substitute values of symbols, by name, into a sympy expression."""
    free = [symbol for symbol in expression.free_symbols if str(symbol) in values]
    return expression.xreplace({symbol: sympy.Integer(values[str(symbol)]) for symbol in free})


def _check_surroundings(gm: fx.GraphModule, config: CompilerConfig) -> None:
    options = config.inference_config
    reason: Any = getattr(gm, "compile_subgraph_reason", None)
    if getattr(reason, "graph_break", False) and not options.gears_with_graph_breaks:
        raise GearError(
            "gears are for a model that is one graph, and this one breaks in two: "
            f"{reason.reason.splitlines()[0]}{_where(reason.user_stack)}; "
            "torch.compile(..., fullgraph=True) tells more; or set "
            "config.inference_config.gears_with_graph_breaks = True"
        )
    if is_static():
        raise GearError(
            "gears and dynamic=False cannot be combined: gears come from one trace for all sizes; "
            "use torch.compile(..., dynamic=True)"
        )
    changed = config.changed()
    for name in ("export.export_mode", "experimental_config.enable_ref_data"):
        if name in changed:
            raise GearError(f"gears and config.{name} cannot be combined: drop one")


def shape_env_of(gm: fx.GraphModule) -> Any:
    values: Any = (node.meta.get("example_value") for node in gm.graph.nodes)
    return next(value.fake_mode.shape_env for value in values if hasattr(value, "fake_mode"))


Values = Mapping[str, int]
"""Values of symbols by name."""
Broken = Callable[[Values], str]
"""Describes what values break of a trace; "" for nothing."""


def solved(
    gears: GearSet, axes: Sequence[Any], fixed: Values, broken: Broken, listed: bool
) -> tuple[dict[Gear, Values], dict[Gear, str]]:
    """Return the values of torch's symbols in each gear that the trace holds for, and why it does
    not hold for the others. `axes` are sympy expressions, one for each axis; `fixed` are values of
    symbols that gears do not change.

    GearError where none fits, or one that was `listed`, and is no mere combination; else a warning.
    """
    solutions = {gear: _solution(gears, axes, gear, dict(fixed), broken) for gear in gears.gears}
    values = {gear: known for gear, known in solutions.items() if not isinstance(known, str)}
    unfit = {gear: why for gear, why in solutions.items() if isinstance(why, str)}
    if unfit:
        text = misfit(gears, *next(iter(unfit.items())))
        if listed or not values:
            raise GearError(f"{text}; leave it out")
        more = f" (and {len(unfit) - 1} more)" if len(unfit) > 1 else ""
        _log.warning("%s%s: it is not compiled", text, more)
    return values, unfit


def misfit(gears: GearSet, gear: Gear, why: str) -> str:
    """Return the message for a gear that the trace does not hold for."""
    return f"the gear ({gears.describe(gear)}) does not fit the model: {why}"


def _solution(
    gears: GearSet, axes: Sequence[Any], gear: Gear, values: dict[str, int], broken: Broken
) -> Values | str:
    sizes = zip(gears.axes, axes, gear, strict=True)
    for axis, expression, size in sorted(sizes, key=lambda entry: not entry[1].is_Symbol):
        if expression.is_Symbol:
            values.setdefault(str(expression), size)
        left = [symbol for symbol in expression.free_symbols if str(symbol) not in values]
        if len(left) == 1 and expression.is_polynomial(*left):  # as 2*n + 1
            roots = sympy.solve(expression - size, *left)
            values.update({str(*left): int(root) for root in roots if root.is_Integer})
        if (found := at(expression, values)) != size:
            return f"{axis.argument}[{axis.dim}] is {found} where it should be {size}"
    return broken(values) or values


def unequal(graph: Graph, values: Values) -> str:
    """Describe sizes that a graph takes for equal, and that differ at these values; "" for none."""
    for left, right in graph.equations:
        if symbols(left).keys() | symbols(right).keys() <= values.keys():
            sizes = evaluate(left, values), evaluate(right, values)
            if sizes[0] != sizes[1]:
                return f"its trace takes {left} for {right}, and those are {sizes[0]}, {sizes[1]}"
    return ""


def _where(stack: Any) -> str:
    """Return the user's line, of the innermost frame of a stack."""
    if not stack:
        return ""
    frame = list(stack)[-1]
    return f" ({frame.filename.rpartition('/')[2]}:{frame.lineno} in {frame.name})"


_MOST_REMEMBERED = 64


_frames: weakref.WeakKeyDictionary[CodeType, list[tuple[weakref.ref[Any] | None, CaptureGears]]] = (
    weakref.WeakKeyDictionary()
)
"""The traces of each frame: the module it belongs to (or None), and its gears."""


def remember(gears: CaptureGears) -> None:
    """Record the gears of the frame that Dynamo is tracing."""
    code, owner = _traced_now()
    if code is not None:
        known = _frames.setdefault(code, [])
        known.append((None if owner is None else weakref.ref(owner), gears))
        del known[:-_MOST_REMEMBERED]


def recall(arguments: Sequence[TracedArgument]) -> CaptureGears | None:
    """Return the gears of an earlier trace of this frame whose arguments differ only in sizes."""
    code, owner = _traced_now()
    for known, gears in reversed(_frames.get(code, []) if code is not None else []):
        of = None if known is None else known()
        same = of is owner and (known is None) == (owner is None)  # else its owner is gone
        if same and _signature(gears.arguments) == _signature(arguments):
            return gears
    return None


def _traced_now() -> tuple[CodeType | None, Any]:
    tx = current_trace()
    if tx is None:
        return None, None
    # A method may have another name for self; containers of torch.nn are traced as `fn`.
    held = tx.f_locals.values()
    owner = next((v for v in held if isinstance(v, nn.Module)), tx.f_locals.get("self"))
    try:
        weakref.ref(owner)
    except TypeError:
        owner = None
    return tx.f_code, owner


def _signature(arguments: Sequence[TracedArgument]) -> list[tuple[Any, ...]]:
    tensors = (argument for argument in arguments if argument.dtype is not None)
    return [(one.source, one.dtype, len(one.shape)) for one in tensors]


Call = Callable[..., Any]


def linked_results(gm: fx.GraphModule, gears: CaptureGears) -> Callable[[Call], Call]:
    """Return a wrapper for the call of Dynamo's graph that sets gears on the tensors it returns.

    The gears of a result's dim are its sizes for each gear of the graph. They are linked with those
    of the graph's arguments, which the next graph may take too.
    """
    link = Link()
    nodes = gm.graph.find_nodes(op="placeholder")
    for node, argument in zip(nodes, gears.arguments, strict=True):
        declared = argument.gears
        if declared is not None and (rows := _rows(argument.dims, gears)):
            setattr(node.meta["grapharg"].example, ATTRIBUTE, DimGears(declared.dims, link, rows))
    marks: list[DimGears | None] = []
    results: Any = gm.graph.output_node().args[0]
    for node in results:
        fake = node.meta.get("example_value") if isinstance(node, fx.Node) else None
        dims = map(symbolic, fake.shape) if isinstance(fake, torch.Tensor) else ()
        rows = _rows(dims, gears)
        marks.append(DimGears(rows, link, rows) if rows else None)

    def wrap(call: Call) -> Call:
        def run(*args: Any) -> Any:
            made = call(*args)
            _mark(made, marks)
            return made

        return run

    return wrap


def _rows(dims: Iterable[Any], gears: CaptureGears) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Return the dims of a tensor whose size depends on the gear: (dim, size for each gear)."""
    found: list[tuple[int, tuple[int, ...]]] = []
    for dim, expression in enumerate(dims):
        sizes = [at(expression, values) for values in gears.values.values()]
        if len(set(sizes)) > 1 and all(size.is_number for size in sizes):
            found.append((dim, tuple(map(int, sizes))))
    return tuple(found)


def _mark(results: Sequence[Any], marks: Sequence[DimGears | None]) -> None:
    functions = dynamo.marks.get()
    for result, mark in zip(results, marks, strict=True):
        if mark is not None and functions is not None and isinstance(result, torch.Tensor):
            setattr(result, ATTRIBUTE, mark)
            for dim, _ in mark.dims:
                functions.dynamic(result, dim)
