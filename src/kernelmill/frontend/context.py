"""State that the importer's parts share: the graph under construction, values of FX nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from kernelmill.core.dim import Dim, Expr, provably_nonnegative
from kernelmill.core.dtype import from_torch
from kernelmill.core.errors import UnsupportedError
from kernelmill.core.scalar import FROM_WORD, Apply, Scalar, depth_of, evaluate_scalar, symbols_in
from kernelmill.frontend.emitter import Emitter
from kernelmill.frontend.promotion import Computed
from kernelmill.frontend.scalars import applied, function_of
from kernelmill.frontend.symbols import SymbolTable
from kernelmill.frontend.tensors import carried_type, dense_strides
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import TensorType, Value

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
