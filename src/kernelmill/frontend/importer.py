"""Import of AOTAutograd's FX graph: inputs, a step for each node, updates and results."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import fx

from kernelmill.config.super_kernel_marks import DETERMINISTIC_KEY, Mark, mark_of
from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, as_sym
from kernelmill.core.dtype import BOOL, F32, F64, I64, InputRole
from kernelmill.core.errors import ConfigError, UnsupportedError
from kernelmill.frontend.context import Bodies, ImportContext
from kernelmill.frontend.emitter import Computed, NotTranslated, emit_aten
from kernelmill.frontend.operators import OperatorImporter
from kernelmill.frontend.results import ResultImporter
from kernelmill.frontend.waits import AWAIT, RECORD, WAIT, Waits
from kernelmill.graph.ir import Graph, Held, Input, TensorType, Value
from kernelmill.graph.typing import TypingError
from kernelmill.torch_internals.dispatch import outside_modes
from kernelmill.torch_internals.operators import OpOverload, gives_views, overload_named
from kernelmill.torch_internals.tracing import opaque_value

__all__ = ["ImportedGraph", "import_fx"]

_aten = torch.ops.aten


@dataclass(frozen=True)
class ImportedGraph:
    """An imported graph, and the constants of the traced module, which are its last inputs.

    The program is called with the FX graph's arguments followed by the constants. `repeated` are
    integer arguments that torch's guards, and nothing in the graph, hold equal to expressions of
    others: the number of each, its symbol, and the expression. `words` are the arguments that are
    floats or bools, with the kind of each: the program takes their encoding as integers. `objects`
    are arguments that the program does not take: it is right for calls in which they equal these.
    """

    graph: Graph
    constants: tuple[torch.Tensor, ...]
    repeated: tuple[tuple[int, Dim, Dim], ...] = ()
    words: tuple[tuple[int, str], ...] = ()
    objects: tuple[tuple[int, object], ...] = ()


def import_fx(
    gm: fx.GraphModule,
    name: str,
    input_roles: Sequence[InputRole],
    input_names: Sequence[str],
    saved_from: int | None = None,
    ones: bool = False,
) -> ImportedGraph:
    """Translate a functionalised ATen graph whose nodes carry fake tensors in `meta["val"]`.

    Roles and names are by position of the placeholder; an argument that the graph itself updates is
    always the user's. Results from `saved_from` on are for a backward graph alone, and need not
    have the traced strides. With `ones` the program also runs at size 1 where torch traced a size
    as not 1: for callers who have dropped the guard. UnsupportedError when the graph as a whole
    cannot be imported (sparse tensors); a single operator without translation becomes an `aten`
    node instead.
    """
    # AOTAutograd calls compilers under its fake mode, where a constant's contents cannot be read.
    importer = _Importer(gm, name, saved_from, ones)
    return outside_modes(lambda: importer.run(input_roles, input_names))


class _Importer:
    def __init__(self, gm: fx.GraphModule, name: str, saved_from: int | None, ones: bool) -> None:
        self.gm, self.saved_from = gm, saved_from
        self.context = ImportContext(name, ones)
        self.operators = OperatorImporter(self.context, Bodies(self.context, import_fx))
        self.builder, self.emitter = self.context.builder, self.context.emitter
        self.held: dict[str, Value] = {}
        self.constants: dict[Value, torch.Tensor] = {}
        self.names: set[str] = set()
        self.bound: set[str] = set()
        self.repeated: list[tuple[int, Dim, Dim]] = []
        self.words: list[tuple[int, str]] = []
        self.objects: list[tuple[int, object]] = []
        self.waits = Waits()

    def run(self, roles: Sequence[InputRole], names: Sequence[str]) -> ImportedGraph:
        graph = self.builder.graph
        placeholders = self.gm.graph.find_nodes(op="placeholder")
        shape_env = self._shape_env(placeholders)
        if shape_env is not None:
            self.context.symbols.guards.follow(shape_env)
            self.context.symbols.guards.divisors(self.gm.graph.nodes)
        for node, role, name in zip(placeholders, roles, names, strict=True):
            self._input(node, role, self._unique(name))
        if shape_env is not None:
            # Guards hold whenever the program is called; the program has their equations all the
            # same, as conclusions from them are invisible elsewhere.
            self.context.symbols.assume(shape_env, graph.symbols)
        for node in self.gm.graph.nodes:
            self.builder.origin = _origin(node)
            custom = node.meta.get("custom") or {}
            self.builder.mark = self._mark(custom)
            self.builder.deterministic = custom.get(DETERMINISTIC_KEY)
            try:
                self._node(node)
            except (UnsupportedError, TypingError, NotTranslated) as error:
                raise UnsupportedError(f"{error}{self._where()}") from None
        graph.equations += self.context.symbols.assumed()
        self.context.symbols.guards.install()
        self._drop_unread_constants()
        self._keep_updated_unpacked()
        constants, repeated = tuple(self.constants.values()), tuple(self.repeated)
        return ImportedGraph(graph, constants, repeated, tuple(self.words), tuple(self.objects))

    def _shape_env(self, placeholders: Iterable[fx.Node]) -> Any:
        """Return torch's ShapeEnv of the symbols; None where all sizes are numbers."""
        for node in placeholders:
            traced = node.meta.get("val")
            holder = traced.node if isinstance(traced, torch.SymInt) else None
            holder = getattr(traced, "fake_mode", holder)
            if holder is not None and holder.shape_env is not None:
                return holder.shape_env
        return None

    def _node(self, node: fx.Node) -> None:
        env, graph = self.context.env, self.builder.graph
        if node.op == "get_attr":
            env[node] = self._constant(str(node.target))
        elif node.op == "call_function":
            first = len(graph.nodes)
            env[node] = self._call(node)
            self.waits.note(node, graph.nodes[first:], env)
        elif node.op == "output":
            returned: Any = node.args[0]
            if isinstance(returned, fx.Node):
                returned = (returned,)  # of a body: see BodyName.single
            results = ResultImporter(self.context, self.operators, self.saved_from)
            graph.results = results.run(returned)
        elif node.op != "placeholder":
            raise UnsupportedError(f"an FX node of kind {node.op}")

    def _where(self) -> str:
        return f" (at {self.builder.origin})" if self.builder.origin else ""

    def _mark(self, custom: Mapping[str, Any]) -> Mark:
        try:
            return mark_of(custom)
        except ConfigError as error:
            raise ConfigError(f"{error}{self._where()}") from None

    # ---- inputs and constants ---------------------------------------------------------------

    def _input(self, node: fx.Node, role: InputRole, name: str) -> None:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            for size in value.shape:
                self.context.symbols.argument(size)
            # Of a lazily negated one programs see a copy that is not (runtime/calls.realign.py).
            kind = self.context.type_of(value, f"argument {name}")
            made = self.builder.input(name, kind.dtype, kind.shape, kind.strides, role)
            self.context.env[node] = made
        elif isinstance(value, (torch.SymInt, int)) and not isinstance(value, bool):
            if isinstance(value, torch.SymInt) and isinstance(value.node.hint, torch.SymInt):
                raise UnsupportedError(f"argument {name} is the ragged size of a nested tensor")
            dim = self.context.env[node] = self.context.symbols.argument(value)
            symbol = as_sym(dim)
            if symbol is not None and symbol.name not in self.bound:
                self.builder.dim_input(dim)
                self.bound.add(symbol.name)
                return
            fresh = self.context.symbols.fresh(name)
            self.builder.dim_input(fresh)
            if isinstance(value, torch.SymInt):
                self.repeated.append((len(self.builder.graph.inputs) - 1, fresh, dim))
        elif isinstance(value, (bool, float, torch.SymBool, torch.SymFloat)):
            kind = "bool" if isinstance(value, (bool, torch.SymBool)) else "float"
            word = self.context.symbols.fresh(name)
            self.words.append((len(self.builder.graph.inputs), kind))
            self.builder.dim_input(word)
            self.context.env[node] = self.context.number_given(kind, word, value)
        elif (found := opaque_value(value)) is not None:
            self.objects.append((len(self.builder.graph.inputs) + len(self.objects), found))
            self.context.env[node] = Held(type(found).__name__, found)
        else:
            raise UnsupportedError(f"argument {name} is a {type(value).__name__}")

    def _constant(self, target: str) -> Value | Held:
        """Return a tensor of the traced module, or the held argument of a higher-order operator."""
        if target not in self.held:
            tensor: Any = self.gm
            for part in target.split("."):
                tensor = getattr(tensor, part)
            if not isinstance(tensor, torch.Tensor):
                return Held(type(tensor).__name__, tensor)
            if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
                raise UnsupportedError(f"the traced module holds a {type(tensor).__name__}")
            self.held[target] = self._constant_value(tensor.detach(), self._unique(target))
        return self.held[target]

    def _constant_value(self, tensor: torch.Tensor, name: str) -> Value:
        tensor = tensor.resolve_conj().resolve_neg()
        kind = self.context.type_of(tensor, f"constant {name}")
        if tensor.numel() == 1 and not kind.dtype.is_opaque:
            return self.emitter.constant(tensor.item(), kind.dtype, kind.shape)
        value = self.builder.input(name, kind.dtype, kind.shape, kind.strides, InputRole.PARAM)
        self.constants[value] = tensor
        return value

    def _unique(self, name: str) -> str:
        """Return an input name that no other has: word characters and dots, not only digits."""
        base = re.sub(r"[^\w.]+", "_", name).strip("_") or "arg"
        base = f"arg{base}" if base.isdigit() else base
        unique, count = base, 1
        while unique in self.names:
            count += 1
            unique = f"{base}_{count}"
        self.names.add(unique)
        return unique

    def _drop_unread_constants(self) -> None:
        graph = self.builder.graph
        read = {operand for node in graph.nodes for operand in node.operands}
        read.update(result for result in graph.results if isinstance(result, Value))
        read.update(new for _, new in graph.updates)
        unread = {value for value in self.constants if value not in read}
        for value in unread:
            del self.constants[value]
        graph.inputs = [
            entry
            for entry in graph.inputs
            if not isinstance(entry, Input) or entry.value not in unread
        ]

    def _keep_updated_unpacked(self) -> None:
        """Clear the role of inputs that the program writes to: they must not be pre-packed."""
        graph = self.builder.graph
        updated = {held for held, _ in graph.updates}
        graph.inputs = [
            Input(entry.value) if isinstance(entry, Input) and entry.value in updated else entry
            for entry in graph.inputs
        ]

    # ---- nodes ------------------------------------------------------------------------------

    def _call(self, node: fx.Node) -> Any:
        target: Any = node.target
        if target is operator.getitem:
            source, index = node.args
            return self.context.env[source][index]  # type: ignore[index]
        special = _SPECIAL.get(target)
        if special is not None:
            return special(self, node)
        traced = node.meta.get("val")
        if isinstance(traced, (int, float, torch.SymInt, torch.SymFloat, torch.SymBool)):
            return self._number(node)
        if isinstance(target, OpOverload):
            return self.operators.run(node)
        return self.operators.higher_order(node)

    def _number(self, node: fx.Node) -> Any:
        try:
            return self.context.arithmetic(node)
        except UnsupportedError as error:
            return error

    def _update(self, node: fx.Node) -> Value:
        """Import `copy_` into an argument: AOTAutograd puts it at the end for a mutated input."""
        target, source = node.args[:2]
        assert isinstance(target, fx.Node)
        if target.op != "placeholder" or not all(map(_is_only_returned, node.users)):
            raise UnsupportedError("copy_ that is not the last word on an argument")
        held: Value = self.context.env[target]
        if held.dtype.is_opaque:
            raise UnsupportedError(f"an argument of dtype {held.dtype} is written to")
        fresh = self.emitter.cast(self.context.argument(source), held.dtype)
        self.builder.graph.updates.append((held, self.emitter.expand(fresh, held.shape)))
        return held

    def _wait(self, node: fx.Node) -> Any:
        """Import `wait_tensor`, whose result is its first argument."""
        return self.context.argument(node.args[0])

    def _point(self, node: fx.Node) -> Any:
        """Import `record`, whose tensor is empty, and `wait`."""
        self.waits.point(node, self.builder.mark.stream, self.context.env)
        return self.emitter.constant(0, F32, (0,)) if node.target is RECORD else None

    def _item(self, node: fx.Node) -> Any:
        """Import `item()`: a symbol bound to the value, or a float kept as a value."""
        traced: Any = node.meta["val"]
        if isinstance(traced, (int, float)):
            return traced
        source = self.emitter.reshape(self.context.argument(node.args[0]), ())
        if isinstance(traced, torch.SymFloat):
            return Computed("float", None, self.emitter.cast(source, F64))
        symbols = sorted(traced.node.expr.free_symbols, key=str)
        if len(symbols) != 1 or source.dtype.is_opaque:
            raise UnsupportedError(f"item() of {traced.node.expr}")
        known = as_sym(self.context.symbols.of_expr(symbols[0], traced.node.shape_env))
        assert known is not None
        self.builder.symbol(known)
        whole = self.emitter.cast(source, I64)
        emit_aten(
            self.builder, "aten.clone.default", [whole], {}, [TensorType(I64, ())],
            [(known.name, 0, -1)], "a size read from a tensor",
        )  # fmt: skip
        return self.context.scalar(traced)

    def _assert(self, node: fx.Node) -> None:
        """Import an assertion of eager on sizes, as one on a 0-d bool."""
        condition, message = self.context.argument(node.args[0]), node.args[1]
        if condition is True:
            return
        if not isinstance(condition, Computed):
            raise UnsupportedError(f"an assertion on {condition}")
        held = self.emitter.constant(condition, BOOL)
        emit_aten(
            self.builder, "aten._assert_async.msg", [held, message], {}, [], (), "an assertion"
        )

    def _effect(self, node: fx.Node) -> list[Any]:
        return self.operators.effect(node)

    def _nothing(self, node: fx.Node) -> None:
        """Ignore a token, which only orders effects."""

    def _checked_in_tracing(self, node: fx.Node) -> None:
        """Ignore a check whose outcome tracing has already relied on."""


_BY_NAME = {
    "aten._local_scalar_dense.default": _Importer._item,
    "aten._assert_scalar.default": _Importer._assert,
    "higher_order.with_effects": _Importer._effect,
    "prims._make_token.default": _Importer._nothing,
    "prims._sink_tokens.default": _Importer._nothing,
    "aten.sym_constrain_range.default": _Importer._checked_in_tracing,
    "aten.sym_constrain_range_for_size.default": _Importer._checked_in_tracing,
    "aten._assert_tensor_metadata.default": _Importer._checked_in_tracing,
}
_SPECIAL: dict[Any, Any] = {
    _aten.copy_.default: _Importer._update,
    WAIT: _Importer._wait,
    RECORD: _Importer._point,
    AWAIT: _Importer._point,
    **{overload_named(name): method for name, method in _BY_NAME.items()},
}
_SPECIAL.pop(None, None)  # for names that this torch does not have


_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')


@cache
def _is_only_returned(user: fx.Node) -> bool:
    """Return whether the node is the output, or a view used only by it: such a view is made of the
    argument itself, and so includes the update."""
    is_view = user.target is operator.getitem or gives_views(str(user.target))
    return user.op == "output" or (is_view and all(map(_is_only_returned, user.users)))


def _origin(node: fx.Node) -> str:
    """Return the user's line and, in brackets, the module: "model.py:7 in forward (Linear fc)"."""
    line, module = _line(node.stack_trace or ""), _module(node.meta)
    return f"{line} ({module})" if line and module else line or module


def _line(stack_trace: str) -> str:
    """Return "file.py:line in function" of the innermost frame."""
    frames = _FRAME.findall(stack_trace)
    if not frames:
        return ""
    path, line, function = frames[-1]
    return f"{path.rpartition('/')[2]}:{line} in {function}"


_OWNER = re.compile(r"^\w+\['\w+'\]\.?")


def _module(meta: Mapping[str, Any]) -> str:
    """Return the innermost module that called the operator, by class and path: "Linear 2.0". Dynamo
    has no line for calls of torch's own containers."""
    stack: Any = meta.get("nn_module_stack") or meta.get("fwd_nn_module_stack")
    if not stack:
        return ""
    path, kind = list(stack.values())[-1]
    name = kind.rpartition(".")[2] if isinstance(kind, str) else kind.__name__  # from torch.export
    return f"{name} {_OWNER.sub('', path)}".strip()
