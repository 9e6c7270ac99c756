"""The table of ATen operators that have a translation into graph operators, and the emitter of
translators: graph operators plus broadcasting, casts and constants.

A translator is a function `(e: Emitter, *args, **kwargs)` with the operator's own arguments,
tensors as graph values and sizes as dims. It returns the value, or for several results the sequence
of values, of the operator's result, or raises `NotTranslated` to leave it to ATen.

Operators that run in torch are `aten` nodes. Encoding of their `args` and of the values in `kwargs`
(pairs of name and value): numbers, strings, None, dims and element types are themselves; ("tensor",
i) is operand i; ("list", ...) a list, and ("tuple", ...) a tuple, as an argument of a higher-order
operator; ("float", dim) and ("bool", dim) the number that a word encodes; ("device", name),
("layout", name), ("memory_format", name) and ("operator", name) those objects of torch; ("complex",
text) a complex number; ("body", name) one of the graph's bodies, as a function that returns a
tuple, and ("single", name) one that returns its only result.

Results are the tensors among the operator's results, lists flattened, in order; an undefined one
has the type bool[0] and no reader.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar, Union, cast

import torch

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, Expr, Sym, bounds, of_atom, product
from kernelmill.core.dtype import BOOL, F64, I64, DType, from_torch, to_torch
from kernelmill.core.errors import UnsupportedError
from kernelmill.core.scalar import TO_WORD, Apply, Scalar
from kernelmill.frontend.symbols import SymbolTable
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Attr, NumberResult, TensorType, Value
from kernelmill.torch_internals.operators import name_of_operator

Translator = Callable[..., Any]
F = TypeVar("F", bound=Translator)

TRANSLATORS: dict[Any, Translator] = {}
"""Translators by overload (`torch.ops.aten.add.Tensor`), or by packet for all its overloads."""


class NotTranslated(Exception):
    """A use of an operator that is left to ATen; the message is the reason given in reports."""


def translates(*names: str) -> Callable[[F], F]:
    """Register a translator: "add.Tensor", "relu" (every overload), "prims.iota.default"."""

    def register(function: F) -> F:
        for name in names:
            TRANSLATORS[_operator(name)] = function
        return function

    return register


FOREIGN: dict[str, Translator] = {}
"""Translators by name, for optional libraries ("transformers.grouped_mm_fallback")."""


def translates_foreign(name: str) -> Callable[[F], F]:
    """Register a translator of another library's operator, all of its overloads."""

    def register(function: F) -> F:
        FOREIGN[name] = function
        return function

    return register


def _operator(name: str) -> Any:
    parts = name.split(".")
    if parts[0] not in ("aten", "prims"):
        parts.insert(0, "aten")
    found: Any = torch.ops
    for part in parts:
        found = getattr(found, part)
    return found


def translator_of(operator: Any) -> Translator | None:
    """Return the translator of an operator overload, or None."""
    found = TRANSLATORS.get(operator)
    if found is None:
        found = TRANSLATORS.get(getattr(operator, "overloadpacket", None))
    return FOREIGN.get(str(getattr(operator, "overloadpacket", ""))) if found is None else found


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


@dataclass(frozen=True, eq=False)
class Computed:
    """A Python number known only while running, of kind "float" or "bool": its expression, or the
    0-d value that it was read from. It has no truth value during import."""

    kind: str
    scalar: Scalar | None
    value: Value | None = None

    def __bool__(self) -> bool:
        raise NotTranslated("a number known only while running decides")


Number = Union[bool, int, float, Expr, Computed]
"""Expr: a Python integer known only while running."""
Operand = Union[Value, Number]


def default_float() -> DType:
    """Return the dtype of a float tensor made from Python numbers."""
    found = from_torch(torch.get_default_dtype())
    assert found is not None
    return found


def number_dtype(number: Number) -> DType:
    """Return the dtype of a Python number without operands of other dtypes."""
    if isinstance(number, bool) or (isinstance(number, Computed) and number.kind == "bool"):
        return BOOL
    return I64 if isinstance(number, (int, Expr)) else default_float()


def promote(operands: Iterable[Operand]) -> DType:
    """Return the common dtype of an elementwise operator's operands. Rule: torch.result_type
    (documentation "Tensor Attributes", type promotion): a lower group (0-d tensors, numbers)
    changes the result only when its kind (bool, integer, float) is higher."""
    groups: list[DType | None] = [None, None, None]
    for operand in operands:
        if isinstance(operand, Value):
            group, dtype = (0 if operand.shape else 1), operand.dtype
        else:
            group, dtype = 2, number_dtype(operand)
        known = groups[group]
        groups[group] = dtype if known is None else join(known, dtype)
    result: DType | None = None
    for dtype in groups:
        if dtype is not None and (result is None or _rank(dtype) > _rank(result)):
            result = dtype if result is None else join(result, dtype)
    assert result is not None
    return result


def join(a: DType, b: DType) -> DType:
    """Return torch.promote_types of two computable dtypes."""
    if a == b:
        return a
    found = from_torch(torch.promote_types(to_torch(a), to_torch(b)))
    assert found is not None
    return found


def _rank(dtype: DType) -> int:
    return 3 if dtype.is_opaque else 2 if dtype.is_float else 1 if dtype.is_integer else 0


_ANY_NUMBER = re.compile(r"\b(Any|Number|Operand|object)\b")
_ANY_INTEGER = re.compile(r"\bDims?\b")


def require_known(
    translate: Callable[..., object], arguments: Sequence[object], named: Mapping[str, object]
) -> None:
    """Raise NotTranslated if a number known only while running is passed to a parameter that is not
    annotated for one."""
    numbers = (Expr, Computed)
    given = [*arguments, *named.values()]
    if not any(isinstance(leaf, numbers) for each in given for leaf in _leaves(each)):
        return
    signature = _signature(translate)
    for name, value in signature.bind(None, *arguments, **named).arguments.items():
        found = [leaf for leaf in _leaves(value) if isinstance(leaf, numbers)]
        annotation = str(signature.parameters[name].annotation) if found else ""
        whole = _ANY_INTEGER.search(annotation) and all(isinstance(n, Expr) for n in found)
        if found and not whole and not _ANY_NUMBER.search(annotation):
            raise NotTranslated(f"{name} is known only while running")


@cache
def _signature(translate: Callable[..., object]) -> inspect.Signature:
    return inspect.signature(translate)


def _leaves(value: object) -> Iterable[object]:
    if isinstance(value, (list, tuple)):
        return [leaf for part in cast(Sequence[object], value) for leaf in _leaves(part)]
    if isinstance(value, dict):
        return _leaves(list(cast(Mapping[str, object], value).values()))
    return (value,)


_INT_RANGE = {"i64": (63, 1), "i32": (31, 1), "i16": (15, 1), "i8": (7, 1), "u8": (8, 0)}


class Emitter:
    """An emitter that appends to one graph. `out` are the traced types of the ATen node in
    translation, and `used` flags of its results that are read; `strides` those its first operand
    was traced with, if that is a tensor. `symbols` can prove more about dims than their text
    shows."""

    def __init__(self, builder: GraphBuilder, symbols: SymbolTable) -> None:
        self.builder = builder
        self.symbols = symbols
        self.out: tuple[TensorType, ...] = ()
        self.used: tuple[bool, ...] = ()
        self.strides: tuple[Dim, ...] = ()
        self._found: dict[Value, Scalar] = {}

    # ---- the node being translated ----------------------------------------------------------

    @property
    def shape(self) -> tuple[Dim, ...]:
        """Traced shape of the (first) result."""
        return self.out[0].shape

    @property
    def dtype(self) -> DType:
        """Traced dtype of the (first) result."""
        return self.out[0].dtype

    # ---- operators --------------------------------------------------------------------------

    def emit(self, op: str, *operands: Value, **attrs: Attr) -> Value:
        return self.builder.emit(op, *operands, **attrs)

    def pointwise(self, op: str, *operands: Value, **attrs: Attr) -> Value:
        """Emit a pointwise operator on operands that are broadcast to their common shape first."""
        return self.emit(op, *self.broadcast(*operands), **attrs)

    def cast(self, x: Value, dtype: DType) -> Value:
        return x if x.dtype == dtype else self.emit("cast", x, dtype=dtype)

    def add(self, a: Value, b: Value | Number) -> Value:
        return self.pointwise("add", a, self.like(b, a))

    def sub(self, a: Value, b: Value | Number) -> Value:
        return self.pointwise("sub", a, self.like(b, a))

    def mul(self, a: Value, b: Value | Number) -> Value:
        return self.pointwise("mul", a, self.like(b, a))

    def div(self, a: Value, b: Value | Number) -> Value:
        return self.pointwise("div", a, self.like(b, a))

    def compare(self, op: str, a: Value, b: Value | Number) -> Value:
        return self.pointwise(op, a, self.like(b, a))

    def where(self, condition: Value, a: Value | Number, b: Value | Number) -> Value:
        """Emit a selection; numbers take the dtype of the other branch, which is a value."""
        model = a if isinstance(a, Value) else b
        assert isinstance(model, Value)
        return self.pointwise("where", condition, self.like(a, model), self.like(b, model))

    def clamp(self, x: Value, low: Value | Number | None, high: Value | Number | None) -> Value:
        """Clamp x to bounds; of equals the second is taken, so that x keeps the sign of a zero."""
        if low is not None:
            x = self.pointwise("maximum", self.like(low, x), x)
        return x if high is None else self.pointwise("minimum", self.like(high, x), x)

    # ---- constants --------------------------------------------------------------------------

    def like(self, operand: Operand, model: Value) -> Value:
        """Return a value unchanged; a number as a constant of the model's shape and dtype."""
        if isinstance(operand, Value):
            return operand
        return self.constant(operand, model.dtype, model.shape)

    def operand(self, operand: Operand, dtype: DType) -> Value:
        """Return a value cast to dtype, or a number as a 0-d constant of it."""
        if isinstance(operand, Value):
            return self.cast(operand, dtype)
        return self.constant(operand, dtype)

    def constant(self, number: Number, dtype: DType, shape: Sequence[Dim] = ()) -> Value:
        """Emit a tensor with `number` in every element."""
        if isinstance(number, Expr):
            value = self.emit("dim_value", value=number)
            return self.expand(self.cast(value, dtype), shape)
        if isinstance(number, Computed):
            return self.expand(self.cast(self._read(number), dtype), shape)
        return self.emit("full", value=_literal(number, dtype), dtype=dtype, shape=tuple(shape))

    def _read(self, number: Computed) -> Value:
        """Emit a number that a call computes, as a 0-d f64 or bool."""
        if number.value is not None:
            return number.value
        word = self.emit("dim_value", value=self.word(number))
        return (
            self.emit("bitcast", word, dtype=F64)
            if number.kind == "float"
            else (self.cast(word, BOOL))
        )

    def scalar(self, number: Number) -> Scalar:
        """Return the expression of a number. A number read from a tensor becomes a symbol."""
        if not isinstance(number, Computed):
            return number
        if number.scalar is not None:
            return number.scalar
        assert number.value is not None
        found = self._found.get(number.value)
        if found is None:
            bits = self.emit("bitcast", number.value, dtype=I64)
            symbol = Sym(f"read{len(self._found)}", -(2**63))
            self.builder.symbol(symbol)
            emit_aten(
                self.builder, "aten.clone.default", [bits], {}, [bits.type],
                [(symbol.name, 0, -1)], "a number read from a tensor",
            )  # fmt: skip
            found = self._found[number.value] = Apply("from_bits", (of_atom(symbol),))
        return found

    def word(self, number: Computed) -> Dim:
        """Return the integer that encodes a number: the bits of a float, 0 or 1."""
        return self.symbols.computed(Apply(TO_WORD[number.kind], (self.scalar(number),)))

    def iota(self, shape: Sequence[Dim], dim: int) -> Value:
        """Emit the i64 index of each element along `dim`."""
        return self.emit("iota", dim=dim, shape=tuple(shape))

    # ---- views ------------------------------------------------------------------------------

    def expand(self, x: Value, shape: Sequence[Dim]) -> Value:
        """Expand x. Sizes that are spelled differently are assumed equal, which the call checks,
        unless one may be 1: then NotTranslated, as x would have to be repeated."""
        if x.shape == tuple(shape):
            return x
        lead = len(shape) - len(x.shape)
        sizes = list(x.shape)
        for d, (have, want) in enumerate(zip(x.shape, shape[max(lead, 0) :], strict=False)):
            if have in (1, want) or not _may_be_equal(have, want):
                continue
            if (bounds(have)[0] or 0) < 2 and not self.symbols.equal(have, want):
                raise NotTranslated(f"{have} may be 1 or {want}")
            sizes[d] = want
        x = self.respelled(x, sizes)
        return x if x.shape == tuple(shape) else self.emit("expand", x, shape=tuple(shape))

    def respelled(self, x: Value, shape: Sequence[Dim]) -> Value:
        """Return the value with its sizes spelled as in `shape`, of the same rank; the call checks
        that they are equal. It is a slice, as a reshape would have to divide."""
        for d, (have, want) in enumerate(zip(x.shape, shape, strict=True)):
            if have != want:
                if not self.symbols.equal(have, want):
                    self.builder.equal(have, want)
                x = self.slice(x, d, 0, want)
        return x

    def reshape(self, x: Value, shape: Sequence[Dim]) -> Value:
        return x if x.shape == tuple(shape) else self.emit("reshape", x, shape=tuple(shape))

    def permute(self, x: Value, dims: Sequence[int]) -> Value:
        if tuple(dims) == tuple(range(len(x.shape))):
            return x
        return self.emit("permute", x, dims=tuple(dims))

    def slice(self, x: Value, dim: int, start: Dim, end: Dim, step: int = 1) -> Value:
        """Emit a slice, 0 <= start <= end <= size."""
        if (start, end, step) == (0, x.shape[dim], 1):
            return x
        return self.emit("slice", x, dim=dim, start=start, end=end, step=step)

    def select(self, x: Value, dim: int, index: Dim) -> Value:
        part = self.slice(x, dim, index, index + 1)
        return self.reshape(part, (*x.shape[:dim], *x.shape[dim + 1 :]))

    def unsqueeze(self, x: Value, dim: int) -> Value:
        return self.reshape(x, (*x.shape[:dim], 1, *x.shape[dim:]))

    def move_to_end(self, x: Value, dims: Sequence[int]) -> Value:
        """Permute the named dims to the end, in that order; the others keep their order."""
        kept = [d for d in range(len(x.shape)) if d not in dims]
        return self.permute(x, (*kept, *dims))

    def align(self, x: Value, rank: int, dim: int) -> Value:
        """Reshape a 1-d value to `rank` dims, with its size at `dim` and 1 elsewhere."""
        shape: list[Dim] = [1] * rank
        shape[dim] = x.shape[0]
        return self.reshape(x, shape)

    def broadcast(self, *operands: Value) -> tuple[Value, ...]:
        """Return all operands expanded to their common shape (torch's rules)."""
        shape = common_shape([operand.shape for operand in operands])
        return tuple(self.expand(operand, shape) for operand in operands)

    def pad(self, x: Value, low: Sequence[Dim], high: Sequence[Dim], value: Number) -> Value:
        """Emit constant padding, amounts >= 0."""
        if not any(amount != 0 for amount in (*low, *high)):
            return x
        assert isinstance(value, (bool, int, float))
        literal = _literal(value, x.dtype)
        return self.emit("pad", x, low=tuple(low), high=tuple(high), value=literal)

    def aten(
        self,
        target: str,
        args: Sequence[Any],
        results: Sequence[TensorType],
        reason: str,
        **kwargs: Any,
    ) -> tuple[Value, ...]:
        """Emit an ATen operator that runs in torch; see `emit_aten`."""
        args = [self.argument(arg) for arg in args]
        kwargs = {name: self.argument(arg) for name, arg in kwargs.items()}
        return emit_aten(self.builder, target, args, kwargs, results, reason=reason)

    def argument(self, argument: Any) -> Any:
        """Return an argument of an ATen operator, computed numbers as their words."""
        if isinstance(argument, Computed):
            return NumberResult(argument.kind, self.word(argument))
        return argument

    # ---- reductions -------------------------------------------------------------------------

    def reduce(self, op: str, x: Value, dims: Sequence[int], keep: bool = False) -> Value:
        """Emit a reduction over `dims` (not negative); `keep` leaves them with size 1."""
        if not dims:
            return x
        result = self.emit(op, x, dims=tuple(sorted(dims)))
        if not keep:
            return result
        return self.reshape(result, [1 if d in dims else s for d, s in enumerate(x.shape)])

    def mean(self, x: Value, dims: Sequence[int], keep: bool = False) -> Value:
        count = product(x.shape[d] for d in dims)
        total = self.reduce("reduce_sum", x, dims, keep)
        return self.div(total, self.constant(count, x.dtype, total.shape))

    # ---- dtypes -----------------------------------------------------------------------------

    def promoted(self, *operands: Operand) -> tuple[Value, ...]:
        """Return the operands in the dtype of eager's computation; numbers as 0-d constants."""
        dtype = promote(operands)
        return tuple(self.operand(operand, dtype) for operand in operands)

    def floating(self, x: Value) -> Value:
        """Return integers and bools cast to the default float type; floats unchanged."""
        return x if x.dtype.is_float else self.cast(x, default_float())

    def wide(self, x: Value) -> Value:
        """Return half types cast to f32, in which eager computes inside its composite operators."""
        return self.cast(x, x.dtype.compute)


def _literal(number: bool | int | float, dtype: DType) -> bool | int | float:
    if dtype == BOOL:
        return bool(number)
    if dtype.is_float:
        return float(number)
    if isinstance(number, float) and not math.isfinite(number):
        raise NotTranslated(f"{number} as {dtype}")
    value = int(number)
    bits, signed = _INT_RANGE[dtype.name]
    if not -(2**bits) * signed <= value < 2**bits:
        raise NotTranslated(f"{number} is out of range for {dtype}")
    return value


def common_shape(shapes: Sequence[Sequence[Dim]]) -> tuple[Dim, ...]:
    """Return the broadcast of shapes. Sizes that differ and are not 1 are left to typing rules."""
    rank = max(len(shape) for shape in shapes)
    result: list[Dim] = [1] * rank
    for shape in shapes:
        for d, size in enumerate(shape, rank - len(shape)):
            if result[d] == 1:
                result[d] = size
    return tuple(result)


def _may_be_equal(a: Dim, b: Dim) -> bool:
    difference = a - b
    return not isinstance(difference, int) or difference == 0


def wrap(dim: int, rank: int) -> int:
    """Return a dim that may be negative as one that is not; 0-d tensors have one dim here."""
    return dim + max(rank, 1) if dim < 0 else dim


def wrap_all(dims: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Return the dims of a reduction, sorted: None or an empty list means all of them."""
    if dims is None or (not isinstance(dims, int) and not dims):
        return tuple(range(rank))
    listed = (dims,) if isinstance(dims, int) else dims
    return tuple(sorted(wrap(d, rank) for d in listed)) if rank else ()
