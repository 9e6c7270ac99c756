"""AOTAutograd's FX graph as our graph: inputs, one translation a node, results and updates."""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import resolve_unbacked_bindings
from torch.utils._python_dispatch import _disable_current_modes

import kernelmill.frontend.aten as _translators
from kernelmill.core.dim import as_sym
from kernelmill.core.dtype import F64, I64, from_torch
from kernelmill.core.errors import UnsupportedError, VerificationError
from kernelmill.core.log import get_logger
from kernelmill.frontend.aten_call import UNDEFINED, emit_aten
from kernelmill.frontend.emitter import Emitter
from kernelmill.frontend.promotion import WeakFloat
from kernelmill.frontend.registry import NotTranslated, translator_of
from kernelmill.frontend.scalars import ScalarReader
from kernelmill.frontend.symbols import SymbolTable
from kernelmill.frontend.tensors import carried_type, dense_strides
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Graph, Input, Result, TensorType, Value
from kernelmill.graph.ops import TypingError

__all__ = ["ImportedGraph", "import_fx"]

_log = get_logger("frontend")
_TRANSLATORS = _translators  # imported for what it registers


@dataclass(frozen=True)
class ImportedGraph:
    """A graph, and the tensors its last inputs stand for: constants that the traced module held.

    The program is called with the FX graph's arguments followed by the constants.
    """

    graph: Graph
    constants: tuple[torch.Tensor, ...]


def import_fx(
    gm: fx.GraphModule, name: str, input_roles: Sequence[str], input_names: Sequence[str]
) -> ImportedGraph:
    """Translate a functionalised ATen graph whose nodes carry fake tensors in `meta["val"]`.

    Roles ("user", "param", "buffer") and names go by the position of the placeholder. Raises
    UnsupportedError when the graph cannot be carried as a whole (sparse tensors, higher-order
    operators); a single operator that has no translation becomes an `aten` node instead.
    """
    # AOTAutograd calls compilers under its fake mode, where a constant's contents cannot be read.
    with _disable_current_modes():
        return _Importer(gm, name).run(input_roles, input_names)


class _Importer:
    def __init__(self, gm: fx.GraphModule, name: str) -> None:
        self.gm = gm
        self.builder = GraphBuilder(name)
        self.emitter = Emitter(self.builder)
        self.symbols = SymbolTable()
        self.env: dict[fx.Node, Any] = {}
        self.floats: dict[Any, Value] = {}
        self.scalars = ScalarReader(self.emitter, self.symbols, self.floats)
        self.constants: dict[str, Value] = {}
        self.constant_tensors: list[torch.Tensor] = []
        self.names: set[str] = set()

    def run(self, roles: Sequence[str], names: Sequence[str]) -> ImportedGraph:
        placeholders = self.gm.graph.find_nodes(op="placeholder")
        for node, role, name in zip(placeholders, roles, names, strict=True):
            self._input(node, role, self._unique(name))
        for node in self.gm.graph.nodes:
            self.builder.origin = _origin(node.stack_trace or "")
            if node.op == "get_attr":
                self.env[node] = self._constant(str(node.target))
            elif node.op == "call_function":
                self.env[node] = self._call(node)
            elif node.op == "output":
                self.builder.graph.results = [self._result(x) for x in _listed(node.args[0])]
            elif node.op != "placeholder":
                raise UnsupportedError(f"an FX node of kind {node.op}")
        self._keep_updated_unpacked()
        return ImportedGraph(self.builder.graph, tuple(self.constant_tensors))

    def _keep_updated_unpacked(self) -> None:
        """What the program itself writes to must not be pre-packed, so it is no parameter."""
        graph = self.builder.graph
        updated = {held for held, _ in graph.updates}
        graph.inputs = [
            Input(entry.value) if isinstance(entry, Input) and entry.value in updated else entry
            for entry in graph.inputs
        ]

    # ---- inputs, constants, results ---------------------------------------------------------

    def _input(self, node: fx.Node, role: str, name: str) -> None:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            _refuse_lazy(value, f"argument {name}")
            kind = carried_type(value, self.symbols, f"argument {name}")
            self.env[node] = self.builder.input(name, kind.dtype, kind.shape, kind.strides, role)
        elif isinstance(value, (torch.SymInt, int)) and not isinstance(value, bool):
            dim = self.env[node] = self.symbols.dim(value)
            self.builder.dim_input(dim if as_sym(dim) is not None else self.symbols.fresh(name))
        else:
            raise UnsupportedError(f"argument {name} is a {type(value).__name__}")

    def _constant(self, target: str) -> Value:
        if target not in self.constants:
            tensor: Any = self.gm
            for part in target.split("."):
                tensor = getattr(tensor, part)
            if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
                raise UnsupportedError(f"the traced module holds a {type(tensor).__name__}")
            self.constants[target] = self._constant_value(tensor.detach(), self._unique(target))
        return self.constants[target]

    def _constant_value(self, tensor: torch.Tensor, name: str) -> Value:
        _refuse_lazy(tensor, f"constant {name}")
        kind = carried_type(tensor, self.symbols, f"constant {name}")
        if tensor.numel() == 1 and not kind.dtype.is_opaque:
            return self.emitter.constant(tensor.item(), kind.dtype, kind.shape)
        self.constant_tensors.append(tensor)
        return self.builder.input(name, kind.dtype, kind.shape, kind.strides, "param")

    def _unique(self, name: str) -> str:
        """A name for an input that no other has: word characters and dots, not only digits."""
        base = re.sub(r"[^\w.]+", "_", name).strip("_") or "arg"
        base = f"arg{base}" if base.isdigit() else base
        unique, count = base, 1
        while unique in self.names:
            count += 1
            unique = f"{base}_{count}"
        self.names.add(unique)
        return unique

    def _result(self, entry: Any) -> Result:
        if entry is None or isinstance(entry, int):
            return entry
        value = self._argument(entry)
        if isinstance(value, Value):
            return self._laid_out(value, entry.meta["val"])
        if isinstance(value, WeakFloat):
            raise UnsupportedError("a float as result")
        return value

    def _laid_out(self, value: Value, traced: torch.Tensor) -> Value:
        """The value in memory as traced, where that is another dense order than row-major."""
        if value.node is None or value.type.strides is not None:
            return value
        strides = dense_strides(carried_type(traced, self.symbols, "a result"))
        return value if strides is None else self.builder.emit("layout", value, strides=strides)

    # ---- nodes ------------------------------------------------------------------------------

    def _call(self, node: fx.Node) -> Any:
        target: Any = node.target
        if target is operator.getitem:
            source, index = node.args
            return self.env[source][index]  # type: ignore[index]
        if target is torch.ops.aten.copy_.default:
            return self._update(node)
        if target is torch.ops.aten._local_scalar_dense.default:
            return self._item(node)
        if target is torch.ops.aten._assert_scalar.default:
            return self._assert(node)
        traced = node.meta.get("val")
        if isinstance(traced, (int, float, torch.SymInt, torch.SymFloat, torch.SymBool)):
            return self._scalar(traced)
        if target in _DROPPED:
            return None
        if not isinstance(target, torch._ops.OpOverload):
            raise UnsupportedError(f"the operator {getattr(target, '__name__', target)}")
        return self._operator(node, target, traced)

    def _operator(self, node: fx.Node, target: Any, traced: Any) -> Any:
        flat = _flattened(traced)
        kinds = [
            UNDEFINED if t is None else carried_type(t, self.symbols, f"a result of {target}")
            for t in flat
        ]
        translated = self._translate(node, target, kinds)
        if isinstance(translated, NotTranslated):
            values = self._aten(node, target, kinds, str(translated))
            flat_values = [None if t is None else v for t, v in zip(flat, values, strict=True)]
        else:
            flat_values = [
                None if value is None else self._conformed(value, kind, target)
                for value, kind in zip(translated, kinds, strict=True)
            ]
        return flat_values[0] if isinstance(traced, torch.Tensor) else flat_values

    def _translate(
        self, node: fx.Node, target: Any, kinds: Sequence[TensorType]
    ) -> Sequence[Value | None] | NotTranslated:
        translate = translator_of(target)
        if translate is None:
            return NotTranslated("no translation")
        if any(kind.dtype.is_opaque for kind in (*kinds, *self._operand_types(node))):
            return NotTranslated("a dtype that kernels do not compute on")
        self.emitter.out, self.emitter.used = tuple(kinds), _used(node, len(kinds))
        nodes = self.builder.graph.nodes
        mark = len(nodes)
        try:
            found = translate(
                self.emitter,
                *(self._argument(arg) for arg in node.args),
                **{name: self._argument(arg) for name, arg in node.kwargs.items()},
            )
        except (NotTranslated, TypingError) as error:
            del nodes[mark:]
            return NotTranslated(str(error))
        return (found,) if isinstance(found, Value) else found

    def _operand_types(self, node: fx.Node) -> list[TensorType]:
        values = (self.env[source] for source in node.all_input_nodes)
        return [value.type for value in values if isinstance(value, Value)]

    def _conformed(self, value: Value, kind: TensorType, target: Any) -> Value:
        """The value with the traced spelling of its sizes; they are equal, perhaps not in text."""
        if value.dtype != kind.dtype or len(value.shape) != len(kind.shape):
            raise VerificationError(f"{target} gave {value.type}, traced as {kind}", "frontend")
        if value.shape == kind.shape:
            return value
        for have, want in zip(value.shape, kind.shape, strict=True):
            if isinstance(have, int) and isinstance(want, int) and have != want:
                raise VerificationError(f"{target} gave {value.type}, traced as {kind}", "frontend")
        return self.builder.emit("reshape", value, shape=kind.shape)

    def _argument(self, argument: Any) -> Any:
        if isinstance(argument, fx.Node):
            return self.env[argument]
        if isinstance(argument, (list, tuple)):
            return [self._argument(item) for item in argument]  # type: ignore[reportUnknownVariableType]
        if isinstance(argument, torch.dtype):
            return from_torch(argument) or _refuse(f"the dtype {argument}")
        if isinstance(argument, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return self._scalar(argument)
        return argument

    # ---- what runs as ATen ------------------------------------------------------------------

    def _aten(
        self, node: fx.Node, target: Any, kinds: Sequence[TensorType], reason: str
    ) -> tuple[Value, ...]:
        if target._schema.is_mutable:
            raise UnsupportedError(f"{target} writes into its arguments")
        _log.debug("%s runs as ATen (%s) at %s", target, reason, self.builder.origin)
        args = [self._aten_argument(arg) for arg in node.args]
        kwargs = {name: self._aten_argument(arg) for name, arg in node.kwargs.items()}
        binds = self._binds(node)
        values = emit_aten(self.builder, str(target), args, kwargs, kinds, binds, reason)
        return tuple(
            self._resolved(value, traced)
            for value, traced in zip(values, _flattened(node.meta.get("val")), strict=True)
        )

    def _aten_argument(self, argument: Any) -> Any:
        """As `_argument`, with tensors in memory as they were when the call was traced."""
        if isinstance(argument, (list, tuple)):
            return [self._aten_argument(item) for item in argument]  # type: ignore[reportUnknownVariableType]
        value = self._argument(argument)
        return self._laid_out(value, argument.meta["val"]) if isinstance(value, Value) else value

    def _resolved(self, value: Value, traced: torch.Tensor | None) -> Value:
        """A lazily negated view of a computable dtype, negated in truth: kernels see memory."""
        if traced is None or not traced.is_neg() or value.dtype.is_opaque:
            return value
        reason = "a lazily negated view"
        return emit_aten(
            self.builder, "aten.resolve_neg.default", [value], {}, [value.type], (), reason
        )[0]

    def _binds(self, node: fx.Node) -> list[tuple[str, int, int]]:
        """Sizes known only afterwards: (symbol, number of the result, its dim)."""
        traced = node.meta.get("val")
        tensors = [t for t in _flattened(traced) if t is not None]
        found = node.meta.get("unbacked_bindings")
        if not found:
            return []
        shape_env = _shape_env(tensors)
        bindings = resolve_unbacked_bindings(shape_env, found) or {}
        binds: list[tuple[str, int, int]] = []
        for symbol in bindings:
            dim = self.symbols.of_expr(symbol, shape_env)
            place = next(
                (
                    (number, d)
                    for number, tensor in enumerate(_flattened(traced))
                    if tensor is not None
                    for d, size in enumerate(tensor.shape)
                    if self.symbols.dim(size) == dim
                ),
                None,
            )
            known = as_sym(dim)
            if place is None or known is None:
                raise UnsupportedError(f"{node.target} finds {symbol}, which is no size")
            self.builder.symbol(known)
            binds.append((known.name, *place))
        return binds

    # ---- updates, scalars, assertions -------------------------------------------------------

    def _update(self, node: fx.Node) -> Value:
        """`copy_` into an argument, which AOTAutograd puts at the end for a mutated input."""
        target, source = node.args[:2]
        assert isinstance(target, fx.Node)
        readers = [user for user in node.users if user.op != "output"]
        if target.op != "placeholder" or readers:
            raise UnsupportedError("copy_ that is not the last word on an argument")
        held: Value = self.env[target]
        fresh = self.emitter.cast(self._argument(source), held.dtype)
        fresh = self.emitter.expand(fresh, held.shape)
        if held.dtype.is_opaque:
            raise UnsupportedError(f"an argument of dtype {held.dtype} is written to")
        self.builder.graph.updates.append((held, fresh))
        return held

    def _item(self, node: fx.Node) -> Any:
        """`item()`: a symbol bound to the value, or a float kept as a value."""
        source: Value = self.env[node.args[0]]  # type: ignore[index]
        traced: Any = node.meta["val"]
        source = self.emitter.reshape(source, ())
        if isinstance(traced, (int, float)):
            return traced
        if isinstance(traced, torch.SymFloat):
            value = self.emitter.cast(source, F64)
            self.floats[traced.node.expr] = value
            return WeakFloat(value)
        symbols = sorted(traced.node.expr.free_symbols, key=str)
        if len(symbols) != 1 or source.dtype.is_opaque:
            raise UnsupportedError(f"item() of {traced.node.expr}")
        known = as_sym(self.symbols.of_expr(symbols[0], traced.node.shape_env))
        assert known is not None
        self.builder.symbol(known)
        whole = self.emitter.cast(source, I64)
        emit_aten(
            self.builder, "aten.clone.default", [whole], {}, [TensorType(I64, ())],
            [(known.name, 0, -1)], "a size read from a tensor",
        )  # fmt: skip
        return self._scalar(traced)

    def _scalar(self, traced: Any) -> Any:
        if isinstance(traced, (bool, int, float)):
            return traced
        expr, shape_env = traced.node.expr, traced.node.shape_env
        if isinstance(traced, torch.SymInt):
            return self.symbols.of_expr(expr, shape_env)
        if isinstance(traced, torch.SymBool):
            return _Condition(expr, shape_env)
        if expr.is_number:
            return float(expr)
        return WeakFloat(self.scalars.floating(expr, shape_env))

    def _assert(self, node: fx.Node) -> None:
        """A check of sizes that eager would make, made on a 0-d bool."""
        condition, message = self._argument(node.args[0]), node.args[1]
        if condition is True:
            return
        if not isinstance(condition, _Condition):
            raise UnsupportedError(f"an assertion on {condition}")
        held = self.scalars.condition(condition.expr, condition.shape_env)
        emit_aten(
            self.builder, "aten._assert_async.msg", [held, message], {}, [], (), "an assertion"
        )


@dataclass(frozen=True)
class _Condition:
    """A truth value over sizes, kept as torch's expression."""

    expr: Any
    shape_env: Any


_DROPPED: tuple[Any, ...] = (
    torch.ops.aten.sym_constrain_range.default,
    torch.ops.aten.sym_constrain_range_for_size.default,
    torch.ops.aten._assert_tensor_metadata.default,
)
"""Checks that tracing has already made."""


def _refuse(what: str) -> Any:
    raise UnsupportedError(what)


def _refuse_lazy(tensor: torch.Tensor, what: str) -> None:
    if tensor.is_conj() or tensor.is_neg():
        raise UnsupportedError(f"{what} is a lazily conjugated or negated view")


def _listed(results: Any) -> list[Any]:
    return list(results) if isinstance(results, (list, tuple)) else [results]  # type: ignore[reportUnknownArgumentType]


def _flattened(traced: Any) -> list[torch.Tensor | None]:
    """The tensors among an operator's results in order, None for one it leaves undefined."""
    if isinstance(traced, (list, tuple)):
        return [tensor for item in traced for tensor in _nested(item)]  # type: ignore[reportUnknownVariableType]
    return [] if traced is None else _nested(traced)


def _nested(item: Any) -> list[torch.Tensor | None]:
    if item is None:
        return [None]
    if isinstance(item, (list, tuple)):
        return [tensor for inner in item for tensor in _nested(inner)]  # type: ignore[reportUnknownVariableType]
    if not isinstance(item, torch.Tensor):
        raise UnsupportedError(f"an operator that returns a {type(item).__name__}")
    return [item]


def _used(node: fx.Node, count: int) -> tuple[bool, ...]:
    """Which results of a node anybody takes out of it."""
    if count == 1 and isinstance(node.meta.get("val"), torch.Tensor):
        return (True,)
    taken: list[Any] = [u.args[1] for u in node.users if u.target is operator.getitem]
    return tuple(i in taken for i in range(count))


def _shape_env(tensors: Sequence[torch.Tensor]) -> Any:
    for tensor in tensors:
        for size in tensor.shape:
            if isinstance(size, torch.SymInt):
                return size.node.shape_env
    raise UnsupportedError("an operator finds a size that none of its results has")


_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')


@cache
def _origin(stack_trace: str) -> str:
    """ "file.py:line in function" of the innermost frame."""
    frames = _FRAME.findall(stack_trace)
    if not frames:
        return ""
    path, line, function = frames[-1]
    return f"{path.rpartition('/')[2]}:{line} in {function}"
