"""State that the importer's parts share: the graph under construction, values of FX nodes, and
bodies of higher-order operators. A graph that such an operator calls is imported too; objects that
only torch can run or read are passed unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from math import prod
from typing import Any

import numpy as np
import torch
from torch import fx

from kernelmill.core.digest import digest_of
from kernelmill.core.dim import Dim, Expr, provably_nonnegative
from kernelmill.core.dtype import InputRole, from_torch
from kernelmill.core.errors import UnsupportedError
from kernelmill.core.log import get_logger
from kernelmill.core.scalar import FROM_WORD, Apply, Scalar, depth_of, evaluate_scalar, symbols_in
from kernelmill.frontend.emitter import BodyName, Computed, Emitter
from kernelmill.frontend.symbols import SymbolTable, applied, function_of
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Graph, Held, TensorType, Value, row_major
from kernelmill.graph.text import print_graph
from kernelmill.graph.typing import TypingError
from kernelmill.torch_internals.tracing import is_traced


def carried_type(tensor: torch.Tensor, symbols: SymbolTable, what: str) -> TensorType:
    """Return the type of a traced tensor. UnsupportedError for one that no program can hold:
    sparse, quantised, nested, a subclass, or on another device than the CPU."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) and not is_traced(tensor):
        raise UnsupportedError(f"{what} is a {type(tensor).__name__}")
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise UnsupportedError(f"{what} has the layout {tensor.layout}, not strided")
    if tensor.device.type != "cpu":
        raise UnsupportedError(f"{what} is on {tensor.device}, not on the CPU")
    dtype = from_torch(tensor.dtype)
    if dtype is None:
        raise UnsupportedError(f"{what} has the dtype {tensor.dtype}")
    shape = symbols.dims(tensor.shape)
    strides = symbols.dims(tensor.stride())
    return TensorType(dtype, shape, None if is_row_major(shape, strides) else strides)


def is_row_major(shape: Sequence[Dim], strides: Sequence[Dim]) -> bool:
    """Return whether strides are dense and row-major; a stride of size 1 is free."""
    if any(size == 0 for size in shape):
        return True
    wanted = row_major(shape)
    return all(
        size == 1 or have == want for size, have, want in zip(shape, strides, wanted, strict=True)
    )


def lies_row_major(tensor: torch.Tensor) -> bool:
    """Return whether a (fake) tensor is dense and row-major."""
    symbols = SymbolTable(lambda symbol: None)
    return is_row_major(symbols.dims(tensor.shape), symbols.dims(tensor.stride()))


def dense_strides(kind: TensorType) -> tuple[Dim, ...] | None:
    """Return the strides, if they are a dense permutation of row-major and not row-major itself."""
    return None if kind.strides is None or _inner_first(kind) is None else kind.strides


def memory_order(kind: TensorType) -> tuple[int, ...]:
    """Return the dims from the outermost to the innermost in memory; unchanged if it has gaps."""
    found = None if kind.strides is None else _inner_first(kind)
    return tuple(range(kind.rank)) if found is None else tuple(reversed(found))


def _inner_first(kind: TensorType) -> list[int] | None:
    """Return the dims by growing stride, if the memory is dense in some order of the dims."""
    strides = kind.memory_strides
    order = [d for d, size in enumerate(kind.shape) if size == 1]
    left = [d for d in reversed(range(kind.rank)) if d not in order]
    expected: Dim = 1
    while left:
        found = next((d for d in left if strides[d] == expected), None)
        if found is None:
            return None
        left.remove(found)
        order.append(found)
        expected = expected * kind.shape[found]
    return order


def overlaps(shape: Sequence[Dim], strides: Sequence[Dim]) -> bool:
    """Return whether elements share addresses: a dim of stride 0, or constant sizes and strides
    that reach one address in two ways. Undecided symbolic sizes count as no."""
    pairs = [(stride, size) for size, stride in zip(shape, strides, strict=True) if size != 1]
    if any(size == 0 for _, size in pairs):
        return False
    if any(stride == 0 for stride, _ in pairs):
        return True
    known = [(a, b) for a, b in pairs if isinstance(a, int) and isinstance(b, int)]
    return len(known) == len(pairs) and _collide(sorted(known))


def _collide(pairs: Sequence[tuple[int, int]]) -> bool:
    """Return whether dims (stride, size), by growing stride, reach an address in two ways."""
    reach, nested = 0, True
    for stride, size in pairs:
        nested = nested and stride > reach
        reach += (size - 1) * stride
    count = prod(size for _, size in pairs)
    if nested or count > reach + 1:
        return not nested
    places = np.zeros(1, np.int64)
    for stride, size in pairs:
        places = np.add.outer(places, stride * np.arange(size)).reshape(-1)
    return len(np.unique(places)) < count


_STEPS = 8
"""Most nested functions in one number."""


class ImportContext:
    """Shared state of an import. `env` has for each FX node a Value, a list of them (None for an
    undefined result), a dim, a number, a Computed, or the error to raise when a number is needed
    after all. `given` has the strides of ATen's results, those of dims of size 1 too."""

    def __init__(self, name: str, ones: bool = False) -> None:
        self.builder = GraphBuilder(name)
        self.symbols = SymbolTable(self.builder.symbol, ones)
        self.emitter = Emitter(self.builder, self.symbols)
        self.env: dict[fx.Node, Any] = {}
        self.given: dict[Value, tuple[Dim, ...]] = {}
        self._layouts: dict[tuple[Value, tuple[Dim, ...]], Value] = {}

    def type_of(self, tensor: torch.Tensor, what: str) -> TensorType:
        """Return the type of a traced tensor; see carried_type."""
        return carried_type(tensor, self.symbols, what)

    def argument(self, argument: Any) -> Any:
        """Return an FX argument with nodes, symbolic numbers and dtypes converted to ours."""
        if isinstance(argument, fx.Node):
            found = self.env[argument]
            if isinstance(found, UnsupportedError):
                raise found
            return found
        if isinstance(argument, (list, tuple)):
            return [self.argument(item) for item in argument]
        if isinstance(argument, torch.dtype):
            return self._dtype(argument)
        if isinstance(argument, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return self.scalar(argument)
        return argument

    def _dtype(self, dtype: torch.dtype) -> Any:
        found = from_torch(dtype)
        if found is None:
            raise UnsupportedError(f"the dtype {dtype}")
        return found

    def scalar(self, traced: Any) -> Any:
        """Return a traced number: itself, a dim or a Computed."""
        if isinstance(traced, (bool, int, float)):
            return traced
        if isinstance(traced, torch.SymInt):
            return self.symbols.dim(traced)
        kind = "bool" if isinstance(traced, torch.SymBool) else "float"
        return _number(kind, self.symbols.scalar(traced.node.expr, traced.node.shape_env))

    def number_given(self, kind: str, word: Dim, traced: Any) -> Any:
        """Return the number for an argument, which a call passes as a word."""
        if isinstance(traced, (bool, float)):
            return traced
        found = from_word(kind, word)
        self.symbols.numbers[traced.node.expr] = self.emitter.scalar(found)
        return found

    def arithmetic(self, node: fx.Node) -> Any:
        """Return the number that a node computes, with its operations in the node's order."""
        traced, function = node.meta["val"], function_of(node.target)
        if isinstance(traced, torch.SymInt) and self.symbols.says(traced):
            return self.symbols.dim(traced)
        if function is None or isinstance(traced, (bool, int, float)):
            return self.scalar(traced)
        parts = [self._part(argument) for argument in node.args]
        if isinstance(traced, torch.SymBool) and _always(function, parts):
            return True
        scalar = applied(function, parts)
        expr = traced.node.expr
        if isinstance(traced, torch.SymInt):
            return self.symbols.computed(scalar, expr, traced.node.shape_env)
        kind = "bool" if isinstance(traced, torch.SymBool) else "float"
        found = self._shortened(_number(kind, Apply(kind, (scalar,))))
        self.symbols.numbers.setdefault(expr, self.emitter.scalar(found))
        return found

    def _shortened(self, number: Any) -> Any:
        """Return the number, or a symbol for it if its expression is so deep that its text would
        grow without bound."""
        if not isinstance(number, Computed) or depth_of(self.emitter.scalar(number)) <= _STEPS:
            return number
        return from_word(number.kind, self.emitter.word(number))

    def _part(self, argument: Any) -> Any:
        if isinstance(argument, (list, tuple)):
            return [self._part(item) for item in argument]
        return self.emitter.scalar(self.argument(argument))

    def laid_out(self, value: Value, traced: torch.Tensor, exactly: bool = False) -> Value:
        """Return the value in the traced memory layout, if that is dense; `exactly`: with the
        strides of dims of size 1 too."""
        kind = self.type_of(traced, "a result")
        if value.node is None or (kind.strides is not None and dense_strides(kind) is None):
            return value
        strides = self.symbols.dims(traced.stride()) if exactly else kind.memory_strides
        lies = self.lies(value) if exactly else value.type.memory_strides
        return value if strides == lies else self.stored(value, strides)

    def lies(self, value: Value) -> tuple[Dim, ...]:
        """Return the strides of a value in memory, as traced where ATen makes it."""
        return self.given.get(value, value.type.memory_strides)

    def stored(self, value: Value, strides: tuple[Dim, ...]) -> Value:
        """Return a copy of the value with these strides; the same one when asked again."""
        key = (value, strides)
        if key not in self._layouts:
            self._layouts[key] = self.builder.emit("layout", value, strides=strides)
        return self._layouts[key]


def _always(function: str, parts: Sequence[Any]) -> bool:
    """Return whether the node is a comparison of sizes that always holds."""
    if function not in _DISTANCES or not all(isinstance(part, (int, Expr)) for part in parts):
        return False
    return provably_nonnegative(_DISTANCES[function](*parts))


_DISTANCES: dict[str, Callable[[Dim, Dim], Dim]] = {
    "ge": lambda a, b: a - b,
    "gt": lambda a, b: a - b - 1,
    "le": lambda a, b: b - a,
    "lt": lambda a, b: b - a - 1,
}
"""Differences that are at least zero exactly if the comparison holds."""


def from_word(kind: str, word: Dim) -> Computed:
    """Return the number of this kind that an integer represents."""
    return Computed(kind, Apply(FROM_WORD[kind], (word,)))


def _number(kind: str, scalar: Scalar) -> Any:
    if symbols_in(scalar):
        return Computed(kind, scalar)
    found = evaluate_scalar(scalar, {})
    return float(found) if kind == "float" else bool(found)


_log = get_logger("frontend")
_numbers = count()

Importing = Callable[[fx.GraphModule, str, Sequence[InputRole], Sequence[str]], Any]
"""The type of `import_fx`."""

_OPERANDS: dict[str, Callable[[Sequence[Any]], Sequence[Any]]] = {
    "higher_order.cond": lambda args: args[3],
    "higher_order.invoke_subgraph": lambda args: args[2:],
    "higher_order.map_impl": lambda args: args[2],
    "higher_order.scan": lambda args: args[3],
    "higher_order.while_loop": lambda args: args[3],
    "higher_order.while_loop_stack_output": lambda args: args[3],
}
"""Operators that call their graphs with tensors alone, each with the arguments that are the same in
all these calls: the last inputs of the graph, in this order."""


class Bodies:
    """The bodies of one graph under construction."""

    def __init__(self, context: ImportContext, importing: Importing) -> None:
        self._context, self._importing = context, importing
        self._found = context.builder.graph.bodies
        self._known: dict[tuple[Any, ...], BodyName] = {}

    def of(self, module: object, operator: str, node: fx.Node) -> BodyName:
        """Return the body for a graph or other object of the module, in a call of this operator."""
        operands = _OPERANDS.get(operator)
        if operands is None or not isinstance(module, fx.GraphModule):
            return self.held(module)
        given = [self._role(operand) for operand in operands(node.args)]
        key = (id(module), *given)
        if key not in self._known:
            self._known[key] = self._imported(module, given)
        return self._known[key]

    def held(self, found: object) -> BodyName:
        """Return the body for an object that calls take unchanged."""
        name = f"held_{len(self._found)}"
        self._found[name] = Held(type(found).__name__, found)
        return BodyName(name)

    def reason(self, arguments: Any) -> str:
        """Return why an operator with these arguments runs in torch."""
        names = list(_names_in(arguments))
        if names and not any(isinstance(self._found[name], Held) for name in names):
            return "a higher-order operator, whose graphs are compiled"
        return "a higher-order operator"

    def _role(self, operand: Any) -> InputRole:
        """Return the role of an operand in calls of a body: that of the outer graph's input, if it
        is one that nothing writes to."""
        value = self._context.env.get(operand) if isinstance(operand, fx.Node) else None
        if not isinstance(value, Value) or value.node is not None or _is_written(operand):
            return InputRole.USER
        entries = self._context.builder.graph.tensor_inputs()
        return next((entry.role for entry in entries if entry.value is value), InputRole.USER)

    def _imported(self, module: fx.GraphModule, given: Sequence[InputRole]) -> BodyName:
        placeholders = module.graph.find_nodes(op="placeholder")
        roles = [InputRole.USER] * (len(placeholders) - len(given)) + list(given)
        try:
            made = self._importing(module, "body", roles, [node.name for node in placeholders])
            if made.constants or made.words or made.objects:
                raise UnsupportedError("it has constants, or arguments that are no integers")
        except (UnsupportedError, TypingError) as error:
            _log.info("a graph of a higher-order operator runs in torch: %s", error)
            return self.held(module)
        graph: Graph = made.graph
        # Held objects have no text.
        own = any(isinstance(body, Held) for body in graph.bodies.values())
        text = f"{next(_numbers)}" if own else digest_of(print_graph(graph, names=False).encode())
        graph.name = f"body_{text[:16]}"
        self._found.setdefault(graph.name, graph)
        return BodyName(graph.name, isinstance(module.graph.output_node().args[0], fx.Node))


def _names_in(arguments: Any) -> Iterator[str]:
    if isinstance(arguments, BodyName):
        yield arguments.name
    elif isinstance(arguments, (list, tuple, dict)):
        for part in arguments.values() if isinstance(arguments, dict) else arguments:  # type: ignore[reportUnknownVariableType]
            yield from _names_in(part)


def _is_written(operand: fx.Node) -> bool:
    copy = torch.ops.aten.copy_.default
    return any(user.target is copy and user.args[0] is operand for user in operand.users)
