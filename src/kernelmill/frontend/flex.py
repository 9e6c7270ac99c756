"""`flex_attention`: attention with a model's functions on scores and masks, element by element.

Torch traces these functions with 0-d tensors: a score, the positions that it belongs to, and the
tensors that they look up. Here each becomes a tensor of rank 4 that has a size other than 1 where
it depends on a position; the functions then consist of ordinary operators, whose values the
attention's kernel computes itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, bounds, provably_nonnegative
from kernelmill.core.dtype import BOOL, F32, I32, DType
from kernelmill.frontend.aten.attention import known_scale
from kernelmill.frontend.aten.scatters import index
from kernelmill.frontend.context import ImportContext
from kernelmill.frontend.emitter import NotTranslated, common_shape, require_known, translator_of
from kernelmill.graph.ir import Held, OpKind, TensorType, Value
from kernelmill.graph.ops import OPS

NAME = "higher_order.flex_attention"

_MOST_NODES = 64
"""Most nodes of a function, whose code is run for each score."""

_ALL_KEYS = 1 << 30
"""The sizes of blocks if torch was given no mask: one block has all rows and keys."""

_RANK = 4
_WIDE = (1,) * _RANK
_VIEWS = ("expand", "reshape", "slice", "permute")
_INDEX = torch.ops.aten.index.Tensor

Translate = Callable[[fx.Node, list[TensorType]], Any]
"""Translates a node that depends on no position."""


@dataclass(frozen=True)
class _Part:
    """A tensor with some of its first dims indexed."""

    whole: Value
    indices: tuple[Value, ...]


def flex_attention(
    context: ImportContext, translate: Translate, node: fx.Node, used: Sequence[bool]
) -> list[Value | None]:
    """Return the node's results. NotTranslated, TypingError, UnsupportedError: torch runs it."""
    return _FlexCall(context, translate, node).run(used)


class _FlexCall:
    def __init__(self, context: ImportContext, translate: Translate, node: fx.Node) -> None:
        self.context, self.e, self.translate = context, context.emitter, translate
        if len(node.args) != 9 or node.kwargs:
            raise NotTranslated("flex_attention with other arguments than are known")
        given: tuple[Any, ...] = node.args
        self.score_mod, self.mask, self.captured = given[3], given[4], given[7:]
        query, key, value, scale = (context.argument(given[n]) for n in (0, 1, 2, 5))
        self.query, self.key, self.value = self._operands(query, key, value)
        self.scale = known_scale(scale)
        self.positions = (*self.query.shape[:3], self.key.shape[2])

    def _operands(self, query: Value, key: Value, value: Value) -> tuple[Value, Value, Value]:
        """Return operands cast as in eager: scores in the wide type, values in the query's type."""
        e, batch = self.e, query.shape[0]
        heads, shared, depth = query.shape[1], key.shape[1], query.shape[-1]
        sizes = heads, shared, depth, value.shape[-1]
        if not all(isinstance(size, int) and size > 0 for size in sizes):
            raise NotTranslated("flex_attention of symbolic heads or depths")
        wide, narrow = query.dtype.compute, query.dtype
        key = e.expand(key if key.dtype == narrow else e.cast(key, wide), (batch, *key.shape[1:]))
        value = e.expand(e.cast(value, narrow), (batch, *value.shape[1:]))
        return e.cast(query, key.dtype), key, value

    def run(self, used: Sequence[bool]) -> list[Value | None]:
        if used[2]:
            raise NotTranslated("the largest scores")
        e = self.e
        scores = e.emit("attention_scores", self.query, self.key, scale=self.scale)
        *_, rows, keys, mask_mod = self.mask
        rows, keys = self._size(rows), self._size(keys)
        function = _Function(self, self.score_mod, self.captured[0])
        modified = function.run(scores)
        if modified is not scores and not _reads(modified, scores):
            raise NotTranslated("a function of scores that gives the same for each")
        modified = e.cast(e.expand(modified, scores.shape), scores.dtype)
        mask = e.cast(_Function(self, mask_mod, self.captured[1]).run(None), BOOL)
        masks = () if _is_full(mask, True) else (mask,)
        lists = self._lists(rows, keys)
        attrs: dict[str, Any] = {"masked": True} if masks else {}
        attrs |= {"blocks": (rows, keys)} if lists else {}
        attrs |= {"normaliser": True} if used[1] else {}
        found = e.emit("flex_attention", modified, self.value, *masks, *lists, **attrs)
        return [*self._parts(found), None] if used[1] else [found, None, None]

    def _parts(self, found: Value) -> tuple[Value, Value]:
        """Return the result, and the normaliser's logarithm to base 2."""
        e, depth = self.e, self.value.shape[-1]
        logarithm = e.div(e.select(found, 3, depth), math.log(2))
        return e.cast(e.slice(found, 3, 0, depth), self.value.dtype), e.cast(logarithm, F32)

    def _size(self, size: Any) -> int:
        """Return a size of blocks, which kernels need as a constant."""
        known = self.e.symbols.guards.number(self.context.argument(size))
        if known is None:
            raise NotTranslated("blocks of a size known only while running")
        return known

    def _lists(self, rows: int, keys: int) -> tuple[Value, ...]:
        """Return counts and indices of blocks, those in which the mask varies first."""
        given = [self.context.argument(x) for x in self.mask[2:6] if x is not None]
        if len(given) == 2 and keys >= _ALL_KEYS:
            counts, numbers = given
            if _is_full(counts, 1) and _is_full(numbers, 0) and numbers.shape == _WIDE:
                return ()
        return tuple(self._list(x) for x in given)

    def _list(self, listed: Value) -> Value:
        if any((bounds(size)[0] or 0) < 1 for size in listed.shape[2:]):
            raise NotTranslated("a list of blocks that may be empty")
        shape = [
            size if size == 1 else want
            for size, want in zip(listed.shape, self.positions[:2], strict=False)
        ]
        return self.e.cast(self.e.respelled(listed, (*shape, *listed.shape[2:])), I32)


class _Function:
    """A function on scores or positions, as operators on tensors of all positions."""

    def __init__(self, call: _FlexCall, module: Any, captured: Any) -> None:
        held = call.context.env[module]
        if not isinstance(held, Held) or not isinstance(held.found, fx.GraphModule):
            raise NotTranslated("a function that is no graph")
        self.call, self.context, self.e = call, call.context, call.e
        self.module: fx.GraphModule = held.found
        self.captured: Sequence[Any] = captured
        self.found: dict[fx.Node, Value | _Part] = {}
        self.places: dict[Value, int] = {}
        self.widened: set[fx.Node] = set()

    def run(self, scores: Value | None) -> Value:
        """Return the function's result for the scores, or for positions alone."""
        inputs = self.module.graph.find_nodes(op="placeholder")
        self._bind(inputs, scores)
        nodes = self.module.graph.nodes
        if len(nodes) > _MOST_NODES + len(inputs):
            raise NotTranslated(f"a function of {len(nodes)} operators for each score")
        result: Any = None
        for node in nodes:
            if node.op == "output":
                result = node.args[0]
            elif node.op == "get_attr":
                self.context.env[node] = self._constant(str(node.target))
            elif node.op == "call_function":
                self._node(node)
        if isinstance(result, (list, tuple)):
            (result,) = result
        return self._value(result)

    def _bind(self, inputs: Sequence[fx.Node], scores: Value | None) -> None:
        first = 0 if scores is None else 1
        if scores is not None:
            self.found[inputs[0]] = scores
            self.widened.add(inputs[0])
        for axis, node in enumerate(inputs[first : first + _RANK]):
            shape = [1] * axis + [self.call.positions[axis]] + [1] * (_RANK - 1 - axis)
            place = self.e.cast(self.e.iota(shape, axis), I32)
            self.found[node] = place
            self.places[place] = axis
        for node, outer in zip(inputs[first + _RANK :], self.captured, strict=True):
            self.context.env[node] = self.context.argument(outer)

    def _constant(self, target: str) -> Value:
        tensor: Any = self.module
        for part in target.split("."):
            tensor = getattr(tensor, part)
        if not isinstance(tensor, torch.Tensor) or tensor.numel() != 1:
            raise NotTranslated("a function that holds a tensor")
        kind = self.context.type_of(tensor, "a constant")
        return self.e.constant(tensor.item(), kind.dtype, kind.shape)

    def _node(self, node: fx.Node) -> None:
        traced = node.meta.get("val")
        if isinstance(traced, (int, float, torch.SymInt, torch.SymFloat, torch.SymBool)):
            self.context.env[node] = self.context.arithmetic(node)
            return
        if not isinstance(traced, torch.Tensor):
            raise NotTranslated(f"{node.target} in a function of scores")
        kind = self.context.type_of(traced, f"a result of {node.target}")
        if self.found.keys().isdisjoint(node.all_input_nodes):
            self.context.env[node] = self.call.translate(node, [kind])
        elif node.target is _INDEX:
            self.found[node] = self._indexed(node, traced.dim())
        elif traced.dim() == 0:
            self.found[node] = self._computed(node, kind.dtype)
        else:
            raise NotTranslated(f"{node.target} of positions gives more than a number")

    def _value(self, node: fx.Node) -> Value:
        """Return the value of a node for all positions."""
        found = self.found.get(node)
        found = self.context.argument(node) if found is None else found
        if isinstance(found, Value) and not found.shape:
            return self.e.reshape(found, _WIDE)
        if not isinstance(found, Value) or node not in self.found:
            raise NotTranslated("an operator on a whole tensor and a position")
        return found

    # ---- operators on numbers ---------------------------------------------------------------

    def _computed(self, node: fx.Node, dtype: DType) -> Value:
        translate = translator_of(node.target)
        if translate is None:
            raise NotTranslated(f"{node.target} for each score")
        arguments = [self._argument(argument) for argument in node.args]
        named = {name: self._argument(argument) for name, argument in node.kwargs.items()}
        operands = [self._value(x) for x in node.all_input_nodes if self._is_tensor(x)]
        shape = common_shape([operand.shape for operand in operands])
        dtype = self._dtype(node, dtype)
        self.e.out, self.e.used, self.e.strides = (TensorType(dtype, shape),), (True,), ()
        nodes = self.context.builder.graph.nodes
        mark = len(nodes)
        require_known(translate, arguments, named)
        value = translate(self.e, *arguments, **named)
        if any(not _is_elementwise(made.op) for made in nodes[mark:]):
            raise NotTranslated(f"{node.target} for each score")
        return value if value.shape else self.e.reshape(value, _WIDE)

    def _dtype(self, node: fx.Node, traced: DType) -> DType:
        """Return the type of a result: eager has scores of half types in f32, and so their derived
        values, though they were traced in the half type."""
        query = self.call.value.dtype
        casts = str(node.target).startswith(("aten._to_copy", "prims.convert_element_type"))
        if casts or traced != query or self.widened.isdisjoint(node.all_input_nodes):
            return traced
        self.widened.add(node)
        return query.compute

    def _is_tensor(self, node: fx.Node) -> bool:
        return isinstance(node.meta.get("val"), torch.Tensor) or node in self.found

    def _argument(self, argument: Any) -> Any:
        if isinstance(argument, fx.Node):
            tensor = self._is_tensor(argument)
            return self._value(argument) if tensor else self.context.argument(argument)
        if isinstance(argument, (list, tuple)):
            return [self._argument(item) for item in argument]
        return self.context.argument(argument)

    # ---- look-ups ---------------------------------------------------------------------------

    def _indexed(self, node: fx.Node, rank: int) -> Value | _Part:
        """Return the value of a look-up: a view where the indices are the positions themselves."""
        source, indices = node.args[:2]
        assert isinstance(source, fx.Node) and isinstance(indices, (list, tuple))
        found = self.found.get(source)
        if isinstance(found, Value) or any(entry is None for entry in indices):
            raise NotTranslated("a look-up of more than a number for each score")
        part = found or _Part(self.context.argument(source), ())
        known = (*part.indices, *(self._value(entry) for entry in indices))  # type: ignore[arg-type]
        if rank:
            return _Part(part.whole, known)
        view = self._view(part.whole, known)
        return index(self.e, part.whole, known) if view is None else view

    def _view(self, table: Value, indices: Sequence[Value]) -> Value | None:
        """Return the table permuted to its dims' positions; None where indices are computed."""
        axes: list[int] = []
        for dim, entry in reversed(list(enumerate(indices))):
            number, axis = _number(entry), self._axis(entry)
            size = table.shape[dim]
            if number is not None and isinstance(size, int) and 0 <= number < size:
                table = self.e.select(table, dim, number)
            elif axis is None or axis in axes or not self._has(size, axis):
                return None
            else:
                axes.insert(0, axis)
                table = self.e.slice(table, dim, 0, self.call.positions[axis])
        table = self.e.permute(table, sorted(range(len(axes)), key=axes.__getitem__))
        shape = [self.call.positions[d] if d in axes else 1 for d in range(_RANK)]
        return self.e.reshape(table, shape)

    def _axis(self, entry: Value) -> int | None:
        while entry not in self.places and entry.node is not None and entry.node.op == "cast":
            entry = entry.node.operands[0]
        return self.places.get(entry)

    def _has(self, size: Dim, axis: int) -> bool:
        """Return whether a dim of a table has an entry for each position."""
        count = self.call.positions[axis]
        return provably_nonnegative(size - count) or self.e.symbols.equal(size, count)


def _is_elementwise(op: str) -> bool:
    return OPS[op].kind in (OpKind.POINTWISE, OpKind.SOURCE) or op in _VIEWS


def _reads(value: Value, scores: Value) -> bool:
    pending, seen = [value], set[Value]()
    while pending:
        found = pending.pop()
        if found is scores:
            return True
        if found.node is not None and found not in seen:
            seen.add(found)
            pending += found.node.operands
    return False


def _number(value: Value) -> int | None:
    """Return the constant in each element of an index tensor, if it is one."""
    known = value.behind("reshape", "expand", "cast").number
    return known if isinstance(known, int) and not isinstance(known, bool) else None


def _is_full(value: Value, number: object) -> bool:
    return value.behind("reshape", "expand").number == number
