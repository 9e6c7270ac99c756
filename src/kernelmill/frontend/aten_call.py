"""ATen calls in the graph IR: the `aten` node, for operators that run in torch.

Encoding of `args` and of the values in `kwargs` (pairs of name and value): numbers, strings, None,
dims and element types are themselves; ("tensor", i) is operand i; ("list", ...) a list, and
("tuple", ...) a tuple, as an argument of a higher-order operator; ("float", dim) and ("bool", dim)
the number that a word encodes; ("device", name), ("layout", name), ("memory_format", name) and
("operator", name) those objects of torch; ("complex", text) a complex number; ("body", name) one of
the graph's bodies, as a function that returns a tuple, and ("single", name) one that returns its
only result.

Results are the tensors among the operator's results, lists flattened, in order; an undefined one
has the type bool[0] and no reader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Expr
from kernelmill.core.dtype import BOOL, DType
from kernelmill.core.errors import UnsupportedError
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Attr, NumberResult, TensorType, Value
from kernelmill.torch_internals.operators import name_of_operator

UNDEFINED = TensorType(BOOL, (0,))
"""The type of a result that the operator leaves undefined (a gradient that is not needed)."""


@dataclass(frozen=True)
class BodyName:
    """An argument that is a body of the graph; `single` if its calls return no tuple."""

    name: str
    single: bool = False


class _Encoder:
    def __init__(self, target: str) -> None:
        self.operands: list[Value] = []
        self.tuples = target.startswith("higher_order.")

    def __call__(self, argument: Any) -> Attr:
        if isinstance(argument, Value):
            if argument not in self.operands:
                self.operands.append(argument)
            return ("tensor", self.operands.index(argument))
        if argument is None or isinstance(argument, (bool, int, float, str, Expr, DType)):
            return argument
        if isinstance(argument, NumberResult):
            return (argument.kind, argument.word)
        if isinstance(argument, BodyName):
            return ("single" if argument.single else "body", argument.name)
        if isinstance(argument, (list, tuple)):
            kind = "tuple" if self.tuples and isinstance(argument, tuple) else "list"
            return (kind, *(self(item) for item in argument))  # type: ignore[reportUnknownVariableType]
        for kind, tag in _TAGS:
            if isinstance(argument, kind):
                return (tag, str(argument).removeprefix("torch."))
        name = name_of_operator(argument)
        if name is not None:
            return ("operator", name)
        raise UnsupportedError(f"an ATen call with a {type(argument).__name__} as argument")


_TAGS: tuple[tuple[Any, str], ...] = (
    (torch.device, "device"),
    (torch.layout, "layout"),
    (torch.memory_format, "memory_format"),
    (complex, "complex"),
)


def emit_aten(
    builder: GraphBuilder,
    target: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    results: Sequence[TensorType],
    binds: Sequence[tuple[str, int, int]] = (),
    reason: str = "",
) -> tuple[Value, ...]:
    """Append an `aten` node. UnsupportedError for an argument that has no encoding."""
    encode = _Encoder(target)
    coded = tuple(encode(arg) for arg in args)
    named = tuple((name, encode(value)) for name, value in kwargs.items())
    types = tuple((kind.dtype, kind.shape, kind.strides) for kind in results)
    return builder.emit_many(
        "aten", *encode.operands, target=target, args=coded, kwargs=named, results=types,
        binds=tuple(binds), reason=reason,
    )  # fmt: skip
