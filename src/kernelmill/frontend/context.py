"""What the parts of the importer share: the graph under construction and what FX nodes became."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim
from kernelmill.core.dtype import from_torch
from kernelmill.core.errors import UnsupportedError
from kernelmill.frontend.emitter import Emitter
from kernelmill.frontend.promotion import WeakFloat
from kernelmill.frontend.scalars import ScalarReader
from kernelmill.frontend.symbols import SymbolTable
from kernelmill.frontend.tensors import carried_type, dense_strides
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import TensorType, Value


@dataclass(frozen=True)
class Condition:
    """A truth value over sizes, kept as torch's expression."""

    expr: Any
    shape_env: Any


class ImportContext:
    """`env` holds for each FX node a Value, a list of them (None for an undefined result), a dim,
    a number, a WeakFloat, a Condition, or the error to raise when a number is needed after all.
    `given` has the strides of what ATen gives, those of dims of size 1 too."""

    def __init__(self, name: str) -> None:
        self.builder = GraphBuilder(name)
        self.symbols = SymbolTable()
        self.emitter = Emitter(self.builder, self.symbols)
        self.floats: dict[Any, Value] = {}
        self.scalars = ScalarReader(self.emitter, self.symbols, self.floats)
        self.env: dict[fx.Node, Any] = {}
        self.given: dict[Value, tuple[Dim, ...]] = {}
        self._layouts: dict[tuple[Value, tuple[Dim, ...]], Value] = {}

    def type_of(self, tensor: torch.Tensor, what: str) -> TensorType:
        """The type of a traced tensor; see carried_type."""
        return carried_type(tensor, self.symbols, what)

    def argument(self, argument: Any) -> Any:
        """An FX argument with nodes, symbolic numbers and dtypes as ours."""
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
        """A traced number: itself, a dim, a WeakFloat or a Condition."""
        if isinstance(traced, (bool, int, float)):
            return traced
        expr, shape_env = traced.node.expr, traced.node.shape_env
        if isinstance(traced, torch.SymInt):
            return self.symbols.of_expr(expr, shape_env)
        if isinstance(traced, torch.SymBool):
            return Condition(expr, shape_env)
        if expr.is_number:
            return float(expr)
        return WeakFloat(self.scalars.floating(expr, shape_env))

    def laid_out(self, value: Value, traced: torch.Tensor, exactly: bool = False) -> Value:
        """The value in memory as traced, where that is a dense order; `exactly`, with the strides
        of dims of size 1 too."""
        kind = self.type_of(traced, "a result")
        if value.node is None or (kind.strides is not None and dense_strides(kind) is None):
            return value
        strides = self.symbols.dims(traced.stride()) if exactly else kind.memory_strides
        lies = self.lies(value) if exactly else value.type.memory_strides
        return value if strides == lies else self.stored(value, strides)

    def lies(self, value: Value) -> tuple[Dim, ...]:
        """The strides of a value in memory, as traced where ATen makes it."""
        return self.given.get(value, value.type.memory_strides)

    def stored(self, value: Value, strides: tuple[Dim, ...]) -> Value:
        """The value in memory of its own with these strides; the same one when asked again."""
        key = (value, strides)
        if key not in self._layouts:
            self._layouts[key] = self.builder.emit("layout", value, strides=strides)
        return self._layouts[key]
