"""Import of an ATen operator: translated into graph operators, or as an `aten` node."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import resolve_unbacked_bindings
from torch.fx.node import map_arg

import kernelmill.frontend.aten as _translators
from kernelmill.core.dim import (
    Dim,
    Expr,
    as_sym,
    bounds,
    ceildiv,
    maximum,
    product,
    provably_less,
    provably_nonnegative,
    symbols,
)
from kernelmill.core.dtype import I64
from kernelmill.core.errors import UnsupportedError
from kernelmill.core.log import get_logger
from kernelmill.core.scalar import Apply
from kernelmill.frontend.context import Bodies, ImportContext, dense_strides, overlaps
from kernelmill.frontend.emitter import (
    UNDEFINED,
    BodyName,
    NotTranslated,
    emit_aten,
    require_known,
    translator_of,
)
from kernelmill.frontend.flex import NAME as FLEX_ATTENTION
from kernelmill.frontend.flex import flex_attention
from kernelmill.frontend.recurrent import aten_name
from kernelmill.frontend.symbols import SymbolTable
from kernelmill.graph.ir import Held, TensorType, Value
from kernelmill.graph.typing import TypingError
from kernelmill.torch_internals.operators import name_of_operator, packets_named, schema_of
from kernelmill.torch_internals.tracing import opaque_value

_Part = tuple[int, Dim, Dim | None]
"""The dim of a slice or selection, its start, and its length (None: a selection)."""


def _slice(
    symbols: SymbolTable,
    sizes: tuple[Dim, ...],
    dim: int = 0,
    start: Dim | None = None,
    end: Dim | None = None,
    step: Dim = 1,
) -> _Part:
    size = sizes[dim]
    first = 0 if start is None else symbols.clamped(start, size)
    last = size if end is None or end == sys.maxsize else symbols.clamped(end, size)
    return dim, first, ceildiv(maximum(last - first, 0), step)


def _select(symbols: SymbolTable, sizes: tuple[Dim, ...], dim: int, index: Dim) -> _Part:
    behind = Apply("sum", (sizes[dim], index))
    place = symbols.computed(Apply("either", (Apply("lt", (index, 0)), behind, index)))
    return dim, maximum(place, 0), None  # the operator refuses a negative one


_PARTS: dict[Any, Callable[..., _Part]] = {
    torch.ops.aten.slice.Tensor: _slice,
    torch.ops.aten.select.int: _select,
}


def settle(context: ImportContext, node: fx.Node) -> None:
    """Define torch's symbols for the length and the offset of a slice or a selection."""
    find = _PARTS.get(node.target)
    if find is None or (find is _select and not node.meta.get("unbacked_bindings")):
        return
    given = [context.argument(value) for value in node.args[1:]]
    named = {name: context.argument(value) for name, value in node.kwargs.items()}
    if not any(map(_may_have_either_sign, (*given, *named.values()))):
        return
    symbols, operand = context.symbols, node.args[0]
    assert isinstance(operand, fx.Node)
    whole: torch.Tensor = operand.meta["val"]
    part: torch.Tensor = node.meta["val"]
    dim, first, length = find(symbols, symbols.dims(whole.shape), *given, **named)
    place = symbols.dim(whole.storage_offset()) + first * symbols.dim(whole.stride(dim))
    symbols.define(part.storage_offset(), place)
    if length is not None:
        symbols.define(part.shape[dim], length)
        symbols.require_equal(symbols.dim(part.shape[dim]), length)


def _may_have_either_sign(index: object) -> bool:
    low, high = bounds(index) if isinstance(index, Expr) else (0, 0)
    return (low is None or low < 0) and (high is None or high >= 0)


_TRANSLATORS = _translators  # imported for its registrations
_log = get_logger("frontend")
_aten = torch.ops.aten
_BATCH_NORMS = packets_named("aten._batch_norm_with_update_functional")
_EMBEDDING_BAGS = packets_named("aten._embedding_bag", "aten._embedding_bag_forward_only")
_UNIQUES = (_aten.unique_dim, _aten.unique_consecutive)
_INTO_VIEWS = (
    _aten.select_scatter, _aten.slice_scatter, _aten.diagonal_scatter
)  # fmt: skip
_BY_MEMORY = (_aten.as_strided, _aten.as_strided_copy, _aten.as_strided_scatter)
"""Operators that index memory and not elements of the tensor."""


class OperatorImporter:
    """An importer of the operator overloads among an FX graph's nodes."""

    def __init__(self, context: ImportContext, bodies: Bodies) -> None:
        self.context, self.bodies = context, bodies
        self.builder, self.emitter = context.builder, context.emitter

    def run(self, node: fx.Node) -> Any:
        """Return the node's results: a Value, or a list with None for undefined ones."""
        target: Any = node.target
        traced = node.meta.get("val")
        settle(self.context, node)
        kinds = self._kinds(traced, target)
        found = self._translated(node, target, kinds)
        if isinstance(found, NotTranslated):
            if _mistraced(node, kinds):
                raise UnsupportedError(f"torch traces other results than {target} gives")
            found = self.as_aten(node, kinds, str(found))
        return found[0] if isinstance(traced, torch.Tensor) else found

    def _kinds(self, traced: Any, target: Any) -> list[TensorType]:
        return [
            UNDEFINED if t is None else self.context.type_of(t, f"a result of {target}")
            for t in flattened(traced)
        ]

    # ---- translation ------------------------------------------------------------------------

    def _translated(
        self, node: fx.Node, target: Any, kinds: Sequence[TensorType]
    ) -> list[Value | None] | NotTranslated:
        translate = translator_of(target)
        if target.overloadpacket in _BY_MEMORY:
            translate = translate if self._starts_its_memory(node) else None
        if translate is None:
            return NotTranslated("no translation")
        if target.overloadpacket in _INTO_VIEWS and self._overlaps(node.args[0]):
            return NotTranslated("a write into elements that share memory")
        if any(kind.dtype.is_opaque for kind in (*kinds, *self._operand_types(node))):
            return NotTranslated("a dtype that kernels do not compute on")
        self.emitter.out, self.emitter.used = tuple(kinds), _used(node, len(kinds))
        self.emitter.strides = self._strides(node)
        arguments = [self.context.argument(arg) for arg in node.args]
        named = {name: self.context.argument(arg) for name, arg in node.kwargs.items()}

        def translated() -> list[Value | None]:
            require_known(translate, arguments, named)
            found = translate(self.emitter, *arguments, **named)
            values: Sequence[Value | None] = (found,) if isinstance(found, Value) else found
            return [
                None if value is None else self._conformed(value, kind)
                for value, kind in zip(values, kinds, strict=True)
            ]

        return self._attempt(translated)

    def _attempt(
        self, translate: Callable[[], list[Value | None]]
    ) -> list[Value | None] | NotTranslated:
        """Return the translation; if it fails, restore the graph and return the reason."""
        nodes, equations = self.builder.graph.nodes, self.builder.graph.equations
        mark, known = len(nodes), len(equations)
        try:
            return translate()
        except (NotTranslated, TypingError) as error:
            del nodes[mark:], equations[known:]
            return NotTranslated(str(error))

    def _strides(self, node: fx.Node) -> tuple[Dim, ...]:
        first = node.args[0] if node.args else None
        traced = first.meta.get("val") if isinstance(first, fx.Node) else None
        if not isinstance(traced, torch.Tensor) or traced.layout != torch.strided:
            return ()
        return self.context.symbols.dims(traced.stride())

    def _starts_its_memory(self, node: fx.Node) -> bool:
        """Return whether the operand of an operator that indexes memory was traced as row-major.
        UnsupportedError for a view of other memory, which values here do not have: an argument may
        begin anywhere in its own."""
        operand: Any = node.args[0]
        traced: torch.Tensor = operand.meta["val"]
        if operand.op == "placeholder" or operand.target is _aten.copy_.default:  # an argument
            scatters = node.target is _aten.as_strided_scatter.default
            if scatters and not self._stays_inside(node, traced):
                raise UnsupportedError("as_strided writes beyond the elements of an argument")
            return False
        if _counts_from_start(node) and any(
            isinstance(found := other.meta.get("val"), torch.Tensor)
            and found.untyped_storage() == traced.untyped_storage()
            for other in node.graph.find_nodes(op="placeholder")
        ):
            raise UnsupportedError("as_strided of a view of an argument")
        kind = self.context.type_of(traced, "an operand")
        whole = kind.strides is None or dense_strides(kind) is not None
        if not whole or self.context.symbols.dim(traced.storage_offset()) != 0:
            raise UnsupportedError("as_strided of a view of a larger tensor")
        return kind.strides is None

    def _stays_inside(self, node: fx.Node, argument: torch.Tensor) -> bool:
        """Return whether `as_strided_scatter` writes to elements of the argument alone, not to
        memory before, between and behind them."""
        symbols, kind = self.context.symbols, self.context.type_of(argument, "an operand")
        begins = symbols.dim(argument.storage_offset())
        size, stride, *offset = map(self.context.argument, node.args[2:])
        first = begins if not offset or offset[0] is None else offset[0]
        last = sum(((n - 1) * step for n, step in zip(size, stride, strict=True)), first)
        dense = kind.strides is None or dense_strides(kind) is not None
        inside = provably_less(last, begins + product(kind.shape))
        return dense and provably_nonnegative(first - begins) and inside

    def _overlaps(self, operand: Any) -> bool:
        """Return whether the operand was traced with elements that share addresses: eager's write
        to one of them is one to all."""
        symbols, traced = self.context.symbols, operand.meta["val"]
        shape, strides = symbols.dims(traced.shape), symbols.dims(traced.stride())
        return overlaps(shape, strides)

    def _operand_types(self, node: fx.Node) -> list[TensorType]:
        values = (self.context.env[source] for source in node.all_input_nodes)
        return [value.type for value in values if isinstance(value, Value)]

    def _conformed(self, value: Value, kind: TensorType) -> Value:
        """Return the value with its sizes spelled as traced; they are equal, perhaps not in text.
        NotTranslated for another dtype, and for sizes that differed in the traced call."""
        fits = value.dtype == kind.dtype and len(value.shape) == len(kind.shape)
        if not fits or any(map(self.context.symbols.differ, value.shape, kind.shape)):
            raise NotTranslated(f"{value.type}, traced as {kind}")
        return self.emitter.respelled(value, kind.shape)

    # ---- ATen -------------------------------------------------------------------------------

    def as_aten(
        self, node: fx.Node, kinds: Sequence[TensorType], reason: str
    ) -> list[Value | None]:
        """Emit the node's operator as an ATen call. UnsupportedError for one that writes."""
        traced = node.meta.get("val")
        return self._call(
            node.target, node.args, node.kwargs, traced, kinds, reason,
            self._binds(node, list(_leaves(traced))),
        )  # fmt: skip

    def effect(self, node: fx.Node) -> list[Any]:
        """Import `with_effects(token, operator, ...)`, whose tokens only order calls: ATen calls
        stay in program order anyway."""
        target: Any
        _, target, *args = node.args
        traced = node.meta["val"][1:] if schema_of(target).returns else ()
        kinds = self._kinds(traced, target)
        return [None, *self._call(target, args, node.kwargs, traced, kinds, "an effect")]

    def higher_order(self, node: fx.Node) -> Any:
        """Import an operator of operators or graphs. Torch traces only its results: it writes to
        nothing and returns no views."""
        name, traced = name_of_operator(node.target), _traced(node)
        if name is None:
            raise UnsupportedError(f"the operator {getattr(node.target, '__name__', node.target)}")
        if name == FLEX_ATTENTION:
            found = self._attempt(lambda: self._flex_attention(node))
            if not isinstance(found, NotTranslated):
                return found
            _log.info("flex_attention runs in torch (%s) at %s", found, self.builder.origin)
        by_memory = any(name.endswith("_storage_offset") for name in node.kwargs)
        hand_over = partial(self._handed_over, node, name)
        args = [hand_over(arg, False) for arg in node.args]
        kwargs = {
            key: hand_over(arg, by_memory and key == "_all_bases")
            for key, arg in node.kwargs.items()
        }
        leaves = list(_leaves(traced))
        binds = [*self._numbers(leaves), *self._binds(node, leaves)]
        kinds = [self._kind(leaf, name) for leaf in leaves]
        reason = self.bodies.reason((args, kwargs))
        values = emit_aten(self.builder, name, args, kwargs, kinds, binds, reason)
        found = (self._found(*pair) for pair in zip(values, leaves, strict=True))
        return _in_place_of(traced, found)

    def _flex_attention(self, node: fx.Node) -> list[Value | None]:
        def translate(inner: fx.Node, kinds: list[TensorType]) -> Value:
            found = self._translated(inner, inner.target, kinds)
            if isinstance(found, NotTranslated) or found[0] is None:
                raise NotTranslated(f"{inner.target} in a function of scores")
            return found[0]

        try:
            return flex_attention(self.context, translate, node, _used(node, 3))
        except UnsupportedError as error:
            raise NotTranslated(str(error)) from None

    def _kind(self, leaf: Any, name: str) -> TensorType:
        """Return the type of one result of a higher-order operator."""
        if not isinstance(leaf, torch.Tensor):
            return UNDEFINED if leaf is None else TensorType(I64, ())
        kind = self.context.type_of(leaf, f"a result of {name}")
        return replace(kind, shape=self._known_sizes(kind.shape, leaf))

    def _found(self, value: Value, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return self._given(value, leaf)
        return None if leaf is None else self.context.scalar(leaf)

    def _numbers(self, leaves: Sequence[Any]) -> Iterator[tuple[str, int, int]]:
        """Yield integer results that define a new symbol: (symbol, number of the result, -1)."""
        for number, leaf in enumerate(leaves):
            if isinstance(leaf, torch.SymInt):
                dim = self.context.symbols.of_expr(leaf.node.expr, leaf.node.shape_env)
                known = as_sym(dim)
                if known is not None and known.name not in self.builder.graph.symbols:
                    self.builder.symbol(known)
                    yield known.name, number, -1
            elif not isinstance(leaf, (torch.Tensor, int, type(None))):
                raise UnsupportedError(f"an operator that returns a {type(leaf).__name__}")

    def _known_sizes(self, shape: Sequence[Dim], traced: torch.Tensor) -> tuple[Dim, ...]:
        """Return the shape with numbers for symbols that no argument gives: torch traces the size
        of a random state as one. Calls check them."""
        known = self.builder.graph.symbols
        sizes: list[Dim] = []
        for dim, size in zip(shape, traced.shape, strict=True):
            found: Any = size
            free = any(name not in known for name in symbols(dim))
            hint = found.node.hint if free else None
            sizes.append(hint if isinstance(hint, int) else dim)
        return tuple(sizes)

    def _handed_over(self, node: fx.Node, name: str, argument: Any, by_memory: bool) -> Any:
        """Return an argument of a higher-order operator. `by_memory`: the operator indexes memory,
        so a tensor must start at the beginning of its own."""
        if isinstance(argument, (list, tuple)):
            parts: list[Any] = [self._handed_over(node, name, item, by_memory) for item in argument]
            return parts if isinstance(argument, list) else tuple(parts)
        if isinstance(argument, fx.Node):
            given = self.context.env[argument]
            if isinstance(given, Held):
                return self.bodies.of(given.found, name, node)
        elif not _is_plain(argument):
            return self._held(argument)
        value = self._aten_argument(argument, False)
        if not by_memory or not isinstance(value, Value):
            return value
        if self.context.symbols.dim(argument.meta["val"].storage_offset()) != 0:
            raise UnsupportedError("an operator that writes to a view of an argument's memory")
        return self.context.stored(value, value.type.memory_strides)

    def _held(self, argument: Any) -> BodyName:
        inside: list[fx.Node] = []
        map_arg(argument, inside.append)
        if inside:
            raise UnsupportedError(f"a {type(argument).__name__} of tensors as an argument")
        return self.bodies.held(dict(argument) if isinstance(argument, dict) else argument)

    def _call(
        self,
        target: Any,
        arguments: Sequence[Any],
        keywords: Mapping[str, Any],
        traced: Any,
        kinds: Sequence[TensorType],
        reason: str,
        binds: Sequence[tuple[str, int, int]] = (),
    ) -> list[Value | None]:
        schema = schema_of(target)
        if schema.is_mutable:
            raise UnsupportedError(f"{target} writes into its arguments")
        _log.debug("%s runs as ATen (%s) at %s", target, reason, self.builder.origin)
        owned = any(arg.alias_info is not None for arg in schema.arguments)
        args = [self._aten_argument(arg, owned) for arg in arguments]
        kwargs = {name: self._aten_argument(arg, owned) for name, arg in keywords.items()}
        values = emit_aten(self.builder, aten_name(target), args, kwargs, kinds, binds, reason)
        return [
            None if tensor is None else self._given(value, tensor)
            for value, tensor in zip(values, flattened(traced), strict=True)
        ]

    def _aten_argument(self, argument: Any, owned: bool) -> Any:
        """Return an argument of a call, a tensor in its traced memory layout. `owned`: the result
        is a view of it. So a copy of an argument must not be that argument, and strides of dims of
        size 1 count too: other dims of the view get theirs from them."""
        if isinstance(argument, (list, tuple)):
            return [self._aten_argument(item, owned) for item in argument]
        value = self.context.argument(argument)
        if isinstance(value, Held):
            return self.bodies.held(value.found)
        if not isinstance(value, Value):
            found = opaque_value(value)
            return self.emitter.argument(value) if found is None else self.bodies.held(found)
        if value.node is None and argument.op != "placeholder":
            # A copy of an argument was dropped; ATen may rely on the copy's strides.
            kind = self.context.type_of(argument.meta["val"], "an operand")
            copied = owned and not self._is_view_of(argument, value)
            if copied or kind.memory_strides != value.type.memory_strides:
                return self.context.stored(value, kind.memory_strides)
        return self.context.laid_out(value, argument.meta["val"], exactly=owned)

    def _is_view_of(self, node: fx.Node, argument: Value) -> bool:
        """Return whether a node with all elements of an argument has its memory, and is no copy."""
        storage = node.meta["val"].untyped_storage()
        return any(
            value is argument and other.meta["val"].untyped_storage() == storage
            for other, value in self.context.env.items()
            if other.op == "placeholder"
        )

    def _given(self, value: Value, traced: torch.Tensor) -> Value:
        """Return ATen's result. A lazily negated view of a computable dtype is negated in memory,
        which kernels read."""
        self.context.given[value] = self.context.symbols.dims(traced.stride())
        if not traced.is_neg() or value.dtype.is_opaque:
            return value
        reason = "a lazily negated view"
        return emit_aten(
            self.builder, "aten.resolve_neg.default", [value], {}, [value.type], (), reason
        )[0]

    def _binds(self, node: fx.Node, results: Sequence[Any]) -> list[tuple[str, int, int]]:
        """Return sizes known only after the call: (symbol, number of the result, its dim)."""
        found = node.meta.get("unbacked_bindings")
        if not found:
            return []
        shape_env = _shape_env(results)
        binds: list[tuple[str, int, int]] = []
        for symbol in resolve_unbacked_bindings(shape_env, found) or {}:
            dim = self.context.symbols.of_expr(symbol, shape_env)
            known, place = as_sym(dim), self._place(dim, results)
            if symbols(dim).keys() <= self.builder.graph.symbols.keys():
                continue
            if place is None or known is None:
                raise UnsupportedError(f"{node.target} finds {symbol}, which is no size")
            self.builder.symbol(known)
            binds.append((known.name, *place))
        return binds

    def _place(self, dim: Dim, results: Sequence[Any]) -> tuple[int, int] | None:
        """Return the first (result, dim) that has this size."""
        for number, result in enumerate(results):
            sizes = result.shape if isinstance(result, torch.Tensor) else ()
            shape = self.context.symbols.dims(sizes)
            if dim in shape:
                return number, shape.index(dim)
        return None


def flattened(traced: Any) -> list[torch.Tensor | None]:
    """Return the tensors among an operator's results in order, None for an undefined one."""
    if isinstance(traced, (list, tuple)):
        return [tensor for item in traced for tensor in _nested(item)]
    return [] if traced is None else _nested(traced)


def _traced(node: fx.Node) -> Any:
    """Return a node's traced results, put together from its getitem nodes where torch noted only
    theirs; None for missing ones."""
    known = node.meta.get("val")
    if known is not None:
        return known
    taken: dict[Any, fx.Node] = {
        user.args[1]: user for user in node.users if user.target is operator.getitem
    }
    parts = [_traced(taken[n]) if n in taken else None for n in range(max(taken, default=-1) + 1)]
    return parts or None


_PLAIN = (
    type(None), bool, int, float, str, complex, torch.SymInt, torch.SymFloat, torch.SymBool,
    torch.dtype, torch.device, torch.layout, torch.memory_format,
)  # fmt: skip


def _is_plain(argument: Any) -> bool:
    """Return whether an argument has a text form in our graphs."""
    return isinstance(argument, _PLAIN) or name_of_operator(argument) is not None


def _leaves(traced: Any) -> Iterator[Any]:
    """Yield the results of an operator in order, lists flattened."""
    if isinstance(traced, (list, tuple)):
        for item in traced:
            yield from _leaves(item)
    else:
        yield traced


def _in_place_of(traced: Any, values: Iterator[Any]) -> Any:
    """Return the values nested in lists as in the trace."""
    if isinstance(traced, (list, tuple)):
        return [_in_place_of(item, values) for item in traced]
    return next(values, None)


def _nested(item: Any) -> list[torch.Tensor | None]:
    if item is None:
        return [None]
    if isinstance(item, (list, tuple)):
        return [tensor for inner in item for tensor in _nested(inner)]
    if not isinstance(item, torch.Tensor):
        raise UnsupportedError(f"an operator that returns a {type(item).__name__}")
    return [item]


def _used(node: fx.Node, count: int) -> tuple[bool, ...]:
    if count == 1 and isinstance(node.meta.get("val"), torch.Tensor):
        return (True,)
    taken: list[Any] = [u.args[1] for u in node.users if u.target is operator.getitem]
    return tuple(i in taken for i in range(count))


def _mistraced(node: fx.Node, kinds: Sequence[TensorType]) -> bool:
    """Return whether torch traces used results with another dtype, shape or layout than they have:
    statistics of half types, embedding bags' saved results, `unique` of matrices."""
    target: Any = node.target
    packet = target.overloadpacket
    if packet in _UNIQUES:
        source: Any = node.args[0]
        place = 1 if packet is _aten.unique_dim else 3
        dim: Any = node.args[place] if len(node.args) > place else node.kwargs.get("dim")
        return dim != 0 and not (dim is None and source.meta["val"].dim() == 1)
    if not any(_used(node, len(kinds))[1:]):
        return False
    half = kinds[0].dtype.compute != kinds[0].dtype
    last_offset = True in node.args[7:8] or bool(node.kwargs.get("include_last_offset"))
    return (packet in _BATCH_NORMS and half) or (
        packet in _EMBEDDING_BAGS and (half or last_offset)
    )


def _shape_env(results: Sequence[Any]) -> Any:
    for result in results:
        sizes = [result]
        if isinstance(result, torch.Tensor):
            strided = result.layout == torch.strided
            sizes = [*result.shape, result.storage_offset() if strided else 0]
        for size in sizes:
            if isinstance(size, torch.SymInt):
                return size.node.shape_env
    raise UnsupportedError("an operator finds a size that none of its results has")


def _counts_from_start(node: fx.Node) -> bool:
    """Return whether an operator of `_BY_MEMORY` has an explicit storage offset."""
    target: Any = node.target
    names = [argument.name for argument in schema_of(target).arguments]
    given = dict(zip(names, node.args, strict=False)) | node.kwargs
    return given.get("storage_offset") is not None
