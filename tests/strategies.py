"""Hypothesis strategies for graphs: well-typed, over every lowered group of operators.

What is generated can be compared between implementations that agree within the tolerance table.
Two kinds of taint see to that: a value that functions or sums may round differently is read only by
operators that keep its relative error small, and one whose zeros may have either sign only by
operators that do not look at it. Divisions of integers have odd divisors; floats are made finite
and small before they become integers; indices are always in range.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from kernelmill.core.dim import Dim, bounds, product, sym
from kernelmill.core.dtype import BF16, BOOL, COMPUTABLE, F16, F32, F64, I64, DType
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Cost, Graph, Value, row_major
from kernelmill.graph.ops import OPS
from kernelmill.graph.typing import bit_pointwise, float_pointwise, predicate, shift
from tests.arguments import arguments

ELEMENTS = 600
"""No value has more elements than this."""
_SIZES = st.sampled_from((0, 1, 1, 2, 3, 4, 5, 8, 9, 16, 17))
_EXACT_UNARY = ("neg", "abs", "floor", "ceil", "trunc", "round", "sqrt", "sign")
_INEXACT_UNARY = [
    op.name
    for op in OPS.values()
    if (op.rule, op.arity, op.cost) == (float_pointwise, 1, Cost.FUNCTION)
    and op.name not in ("erfinv", "digamma")
] + ["rsqrt"]
_BITWISE = [op.name for op in OPS.values() if op.arity == 2 and op.rule in (bit_pointwise, shift)]
_COMPARE = [op.name for op in OPS.values() if op.arity == 2 and op.rule is predicate]


@dataclass(frozen=True)
class Taint:
    """`rounded`: how many roundings may differ. `zeros`: the sign of a zero may differ."""

    rounded: int = 0
    zeros: bool = False


@st.composite
def graphs(
    draw: st.DrawFn,
    max_nodes: int = 8,
    dtypes: Sequence[DType] = COMPUTABLE,
    symbolic: bool = False,
) -> Graph:
    """A graph of about `max_nodes` nodes on values of these dtypes (and, for indices, i64).

    With `symbolic`, some sizes of the inputs are symbols; the graph is valid for every value in
    their ranges. `arguments` makes what to call it with.
    """
    grower = _Grower(draw, tuple(dtypes), symbolic)
    grower.inputs(draw(st.integers(1, 3)))
    for _ in range(draw(st.integers(1, max_nodes))):
        draw(st.sampled_from(_STEPS))(grower)
    return grower.finish()


class _Grower:
    """Appends random nodes; a step that finds no fitting operand does nothing."""

    def __init__(self, draw: st.DrawFn, dtypes: tuple[DType, ...], symbolic: bool) -> None:
        self.draw, self.dtypes, self.symbolic = draw, dtypes, symbolic
        self.b = GraphBuilder("random")
        self.taints: dict[Value, Taint] = {}

    # ---- inputs and results -----------------------------------------------------------------

    def inputs(self, count: int) -> None:
        least = self.draw(st.integers(0, 1)) if self.symbolic else 0
        known = [sym("s0", least, 7), sym("s1", 0, 5)] if self.symbolic else []
        for symbol in known:
            self.b.dim_input(symbol)
        size = st.one_of(_SIZES, st.sampled_from(known)) if known else _SIZES
        for number in range(count):
            shape: tuple[Dim, ...] = ()
            for _ in range(self.draw(st.integers(0, 4))):
                more = (*shape, self.draw(size))
                shape = more if _small(more) else shape
            strides = self.draw(_strides(shape))
            value = self.b.input(
                f"x{number}", self.draw(st.sampled_from(self.dtypes)), shape, strides
            )
            self.taints[value] = Taint()

    def finish(self) -> Graph:
        graph = self.b.graph
        values = list(self.taints)
        used = graph.users()
        graph.results = [v for v in values if v.node is not None and v not in used]
        extra = self.draw(st.lists(st.sampled_from(values), max_size=2))
        graph.results += extra or ([] if graph.results else values[:1])
        return graph

    # ---- picking and making values ----------------------------------------------------------

    def add(self, op: str, *operands: Value, taint: Taint | None = None, **attrs: object) -> Value:
        """Emit a node; its taint is the operands' together unless given."""
        value = self.b.emit(op, *operands, **attrs)  # type: ignore[arg-type]
        taints = [self.taints[operand] for operand in operands]
        together = Taint(sum(t.rounded for t in taints), any(t.zeros for t in taints))
        self.taints[value] = together if taint is None else taint
        return value

    def pick(self, fits: Callable[[Value], bool] = lambda value: True) -> Value | None:
        found = [value for value in self.taints if fits(value)]
        return self.draw(st.sampled_from(found)) if found else None

    def exact(self, value: Value) -> bool:
        return self.taints[value] == Taint()

    def sure(self, value: Value) -> bool:
        """Without different roundings; zeros may have either sign."""
        return self.taints[value].rounded == 0

    def number(self, dtype: DType) -> bool | int | float:
        if dtype == BOOL:
            return self.draw(st.booleans())
        small = self.draw(st.integers(0 if dtype.kind == "uint" else -4, 4))
        return small / 2 if dtype.is_float else small

    def constant(self, dtype: DType, shape: Sequence[Dim], number: float | None = None) -> Value:
        number = self.number(dtype) if number is None else number
        return self.add("full", value=number, dtype=dtype, shape=tuple(shape))

    def clamped(self, x: Value, limit: float) -> Value:
        """A float with NaN as 0 and the rest within [-limit, limit]."""
        zero = self.constant(x.dtype, x.shape, 0.0)
        x = self.add("where", self.add("isnan", x), zero, x)
        x = self.add("minimum", x, self.constant(x.dtype, x.shape, limit))
        return self.add("maximum", x, self.constant(x.dtype, x.shape, -limit))

    def cast(self, x: Value, dtype: DType) -> Value:
        if x.dtype == dtype:
            return x
        if x.dtype.is_float and dtype.is_integer:
            x = self.clamped(x, 100.0)
        return self.add("cast", x, dtype=dtype)

    def partner(self, x: Value, fits: Callable[[Value], bool]) -> Value:
        """Another operand of the dtype and shape of `x`, by broadcasting and casting."""
        other = self.pick(lambda v: fits(v) and self.sure(v) and _broadcasts(v.shape, x.shape))
        if other is None:
            return self.constant(x.dtype, x.shape)
        other = self.cast(other, x.dtype)
        return other if other.shape == x.shape else self.add("expand", other, shape=x.shape)

    def indices(self, shape: tuple[Dim, ...], size: Dim) -> Value:
        """An i64 tensor of this shape with values in [-size, size)."""
        source = self.pick(lambda v: self.sure(v) and _broadcasts(v.shape, shape))
        if source is None and shape:
            source = self.add("iota", dim=self.draw(_dim(shape)), shape=shape)
        elif source is None:
            source = self.constant(I64, shape)
        source = self.cast(source, I64)
        if source.shape != shape:
            source = self.add("expand", source, shape=shape)
        whole = self.add("expand", self.add("dim_value", value=size), shape=shape)
        found = self.add("mod", source, whole)
        return self.add("sub", found, whole) if self.draw(st.booleans()) else found

    # ---- pointwise --------------------------------------------------------------------------

    def unary(self) -> None:
        x = self.pick(self.exact)
        if x is None:
            return
        if not x.dtype.is_float:
            names = (
                ("logical_not", "bit_not", "abs")
                if x.dtype == BOOL
                else ("neg", "bit_not", "abs", "sign")
            )
            self.add(self.draw(st.sampled_from(names)), x)
        elif self.draw(st.booleans()):
            self.add(self.draw(st.sampled_from((*_EXACT_UNARY, "isnan", "isinf", "reciprocal"))), x)
        else:
            self.add(self.draw(st.sampled_from(_INEXACT_UNARY)), x, taint=Taint(1, True))

    def gentle(self) -> None:
        """What keeps the relative error of a rounded value."""
        x = self.pick(lambda v: v.dtype.is_float)
        if x is not None:
            self.add(self.draw(st.sampled_from(("neg", "abs"))), x)

    def product(self) -> None:
        x = self.pick(lambda v: v.dtype.is_float and self.taints[v].rounded < 2)
        if x is None:
            return
        self.add("mul", x, self.partner(x, lambda v: True))

    def binary(self) -> None:
        x = self.pick(self.exact)
        if x is None:
            return
        y = self.partner(x, self.exact)
        if x.dtype == BOOL:
            names = ("add", "mul", "bit_and", "bit_or", "bit_xor", "maximum", "minimum")
        elif x.dtype.is_float:
            names = ("add", "sub", "mul", "div", "rem", "mod", "floordiv", "copysign", "nextafter")
            names += ("maximum", "minimum", "pow", "atan2", "hypot")
        else:
            names = (*_BITWISE, "add", "sub", "mul", "maximum", "minimum")
            names += ("div", "floordiv", "mod", "rem")
        name = self.draw(st.sampled_from(names))
        if name in ("div", "floordiv", "mod", "rem") and x.dtype.is_integer:
            y = self.add("bit_or", y, self.constant(y.dtype, y.shape, 1))
        if name in ("mod", "floordiv", "rem", "maximum", "minimum"):
            self.add(name, x, y, taint=Taint(0, x.dtype.is_float))
        elif name in ("pow", "atan2", "hypot"):
            self.add(name, x, y, taint=Taint(1, True))
        else:
            self.add(name, x, y)

    def compare(self) -> None:
        x = self.pick(self.sure)
        if x is not None:
            y = self.partner(x, self.sure)
            self.add(self.draw(st.sampled_from(_COMPARE)), x, y, taint=Taint())

    def where(self) -> None:
        x = self.pick()
        if x is None:
            return
        condition = self.pick(lambda v: v.dtype == BOOL and _broadcasts(v.shape, x.shape))
        if condition is None:
            condition = self.constant(BOOL, x.shape)
        elif condition.shape != x.shape:
            condition = self.add("expand", condition, shape=x.shape)
        self.add("where", condition, x, self.partner(x, self.sure))

    def convert(self) -> None:
        dtype = self.draw(st.sampled_from(self.dtypes))
        x = self.pick(lambda v: self.sure(v) or _is_coarser(dtype, v.dtype))
        if x is not None:
            self.cast(x, dtype)

    def bitcast(self) -> None:
        """From integers only: not every bit of a NaN has to survive."""
        x = self.pick(lambda v: v.dtype.is_integer and v.dtype.bits > 8)
        same = [d for d in self.dtypes if x is not None and d.bits == x.dtype.bits]
        if x is not None and same:
            self.add("bitcast", x, dtype=self.draw(st.sampled_from(same)))

    # ---- sources and views ------------------------------------------------------------------

    def source(self) -> None:
        shape = self.draw(st.lists(_SIZES, max_size=3).map(tuple).filter(_small))
        if shape and self.draw(st.booleans()):
            self.cast(self.add("iota", dim=self.draw(_dim(shape)), shape=shape), self.dtypes[0])
        else:
            self.constant(self.draw(st.sampled_from(self.dtypes)), shape)

    def expand(self) -> None:
        x = self.pick()
        if x is None:
            return
        shape = tuple(self.draw(_SIZES) if size == 1 else size for size in x.shape)
        shape = (*self.draw(st.lists(_SIZES, max_size=1)), *shape)
        if _small(shape):
            self.add("expand", x, shape=shape)

    def permute(self) -> None:
        x = self.pick(lambda v: v.type.rank > 1)
        if x is not None:
            self.add("permute", x, dims=tuple(self.draw(st.permutations(range(x.type.rank)))))

    def reshape(self) -> None:
        x = self.pick()
        if x is None:
            return
        shape = list(x.shape)
        for _ in range(self.draw(st.integers(1, 2))):
            at = self.draw(st.integers(0, len(shape)))
            split = [f for f in (2, 3, 4) if at < len(shape) and _is_multiple(shape[at], f)]
            if at + 1 < len(shape) and self.draw(st.booleans()):
                shape[at : at + 2] = [shape[at] * shape[at + 1]]
            elif split:
                factor = self.draw(st.sampled_from(split))
                shape[at : at + 1] = [shape[at] // factor, factor]
            else:
                shape.insert(at, 1)
        self.add("reshape", x, shape=tuple(shape))

    def slice(self) -> None:
        x = self.pick(lambda v: v.type.rank > 0)
        if x is None:
            return
        dim = self.draw(_dim(x.shape))
        least = _low(x.shape[dim])
        start = self.draw(st.integers(0, least))
        end = self.draw(st.one_of(st.integers(start, least), st.just(x.shape[dim])))
        step = self.draw(st.sampled_from((1, 1, 2, 3)))
        self.add("slice", x, dim=dim, start=start, end=end, step=step)

    def flip(self) -> None:
        x = self.pick(lambda v: v.type.rank > 0)
        if x is not None:
            dims = self.draw(st.sets(_dim(x.shape), min_size=1))
            self.add("flip", x, dims=tuple(sorted(dims)))

    def pad(self) -> None:
        x = self.pick(lambda v: v.type.rank > 0)
        if x is None:
            return
        amounts = st.tuples(*(st.integers(0, 2) for _ in x.shape))
        low, high = self.draw(amounts), self.draw(amounts)
        if _small([size + lo + hi for size, lo, hi in zip(x.shape, low, high, strict=True)]):
            self.add("pad", x, low=low, high=high, value=self.number(x.dtype))

    def concat(self) -> None:
        x = self.pick(lambda v: v.type.rank > 0)
        if x is None:
            return
        dim = self.draw(_dim(x.shape))

        def fits(v: Value) -> bool:
            pairs = enumerate(zip(v.shape, x.shape, strict=False))
            same = v.type.rank == x.type.rank and v.dtype == x.dtype
            return same and all(a == b for axis, (a, b) in pairs if axis != dim)

        parts = [x, *(self.pick(fits) or x for _ in range(self.draw(st.integers(1, 2))))]
        if _small([_join(parts, axis, dim) for axis in range(x.type.rank)]):
            self.add("concat", *parts, dim=dim)

    def window(self) -> None:
        x = self.pick(lambda v: v.type.rank > 0)
        if x is None:
            return
        dim = self.draw(_dim(x.shape))
        low, high, stride = (self.draw(st.integers(lowest, 2)) for lowest in (0, 0, 1))
        room = _low(x.shape[dim]) + low + high
        if room < 1:
            return
        size = self.draw(st.integers(1, min(room, 3)))
        dilation = 1 if size == 1 else self.draw(st.integers(1, min((room - 1) // (size - 1), 2)))
        if _small((*x.shape[:dim], x.shape[dim] + low + high, *x.shape[dim + 1 :], size)):
            self.add(
                "window", x, dims=(dim,), size=(size,), stride=(stride,), dilation=(dilation,),
                low=(low,), high=(high,), value=self.number(x.dtype),
            )  # fmt: skip

    def as_strided(self) -> None:
        x = self.pick(lambda v: _low(v.type.elements) > 0)
        if x is None:
            return
        room = _low(x.type.elements)
        offset = self.draw(st.integers(0, room - 1))
        shape, strides, left = [], [], room - 1 - offset
        for _ in range(self.draw(st.integers(0, 2))):
            stride = self.draw(st.integers(0, max(left, 1)))
            size = self.draw(st.integers(1, 1 + min(left // stride, 8) if stride else 4))
            shape.append(size)
            strides.append(stride)
            left -= (size - 1) * stride
        self.add("as_strided", x, shape=tuple(shape), strides=tuple(strides), offset=offset)

    def layout(self) -> None:
        x = self.pick(lambda v: v.type.rank > 1)
        if x is not None:
            order = self.draw(st.permutations(range(x.type.rank)))
            self.add("layout", x, strides=_permuted_strides(x.shape, order))

    # ---- reductions, scans, contractions ----------------------------------------------------

    def reduce(self) -> None:
        x = self.pick(lambda v: v.type.rank > 0 and self.sure(v))
        if x is None:
            return
        dims = tuple(sorted(self.draw(st.sets(_dim(x.shape), min_size=1, max_size=2))))
        names = ["reduce_sum", "reduce_prod"] if x.dtype != BOOL else []
        if all(_low(x.shape[d]) > 0 for d in dims):
            names += ["reduce_max", "reduce_min"]
            names += ["reduce_maxnum"] if x.dtype.is_float else []
        name = self.draw(st.sampled_from(names or ["reduce_max"]))
        if name not in names:
            return
        floats = x.dtype.is_float
        sums = name in ("reduce_sum", "reduce_prod")
        x = self.clamped(x, 4.0) if floats and sums else x
        self.add(name, x, dims=dims, taint=Taint(int(floats and sums), floats))

    def arg_reduce(self) -> None:
        x = self.pick(lambda v: v.type.rank > 0 and self.sure(v))
        if x is None:
            return
        dim = self.draw(_dim(x.shape))
        if _low(x.shape[dim]) > 0:
            self.add(self.draw(st.sampled_from(("argmax", "argmin"))), x, dim=dim, taint=Taint())

    def scan(self) -> None:
        x = self.pick(lambda v: v.type.rank > 0 and self.sure(v) and v.dtype != BOOL)
        if x is None:
            return
        floats = x.dtype.is_float
        x = self.clamped(x, 2.0) if floats else x
        name, dim = self.draw(st.sampled_from(("cumsum", "cumprod"))), self.draw(_dim(x.shape))
        self.add(name, x, dim=dim, taint=Taint(int(floats), floats))

    def matmul(self) -> None:
        x = self.pick(lambda v: v.type.rank > 1 and self.sure(v) and v.dtype != BOOL)
        if x is None:
            return
        columns = self.draw(st.integers(0, 9))
        shape = (*x.shape[:-2], x.shape[-1], columns)
        if not (_small(shape) and _small((*x.shape[:-1], columns))):
            return
        y = self.pick(
            lambda v: self.sure(v) and v.type.rank == len(shape) and _broadcasts(v.shape, shape)
        )
        floats = x.dtype.is_float
        x = self.clamped(x, 4.0) if floats else x
        if y is None:
            y = self.constant(x.dtype, shape)
        else:
            y = self.cast(y, x.dtype)
            y = self.clamped(y, 4.0) if floats else y
            y = self.add("expand", y, shape=shape)
        unrounded = x.dtype.compute != x.dtype and self.draw(st.booleans())
        kept: dict[str, object] = {"dtype": x.dtype.compute} if unrounded else {}
        self.add("matmul", x, y, taint=Taint(int(floats), floats), **kept)

    def conv(self) -> None:
        """Groups of one channel each, or one group."""
        x = self.pick(lambda v: v.type.rank in (3, 4) and self.sure(v) and v.dtype.is_float)
        if x is None or not isinstance(x.shape[1], int) or x.shape[1] < 1:
            return
        space = x.type.rank - 2
        padding, stride = (
            tuple(self.draw(st.integers(n, 2)) for _ in range(space)) for n in (0, 1)
        )
        room = [_low(size) + 2 * p for size, p in zip(x.shape[2:], padding, strict=True)]
        if any(_low(size) < 1 for size in x.shape) or not _small((*x.shape, 4)):
            return
        window = tuple(self.draw(st.integers(1, min(most, 3))) for most in room)
        groups = self.draw(st.sampled_from((1, x.shape[1])))
        outputs = groups * self.draw(st.integers(1, 2))
        shape = (outputs, x.shape[1] // groups, *window)
        weight = self.add("mod", *self._counted(shape, x.dtype))
        self.add(
            "conv", self.clamped(x, 4.0), weight, stride=stride, padding=padding,
            dilation=(1,) * space, groups=groups, taint=Taint(1, True),
        )  # fmt: skip

    def _counted(self, shape: tuple[int, ...], dtype: DType) -> tuple[Value, Value]:
        """Numbers that differ along the dims, and the constant 3 to reduce them by."""
        total = self.constant(dtype, shape, 0.5)
        for dim in range(len(shape)):
            total = self.add(
                "add", total, self.add("cast", self.add("iota", dim=dim, shape=shape), dtype=dtype)
            )
        return total, self.constant(dtype, shape, 3.0)

    def attention(self) -> None:
        x = self.pick(lambda v: v.type.rank == 4 and self.sure(v) and v.dtype.is_float)
        if x is None or any(_low(size) < 1 for size in x.shape):
            return
        x = self.clamped(x, 2.0)
        causal = self.draw(st.booleans())
        self.add("attention", x, x, x, scale=0.5, causal=causal, taint=Taint(1, True))

    # ---- gather and scatter -----------------------------------------------------------------

    def index(self) -> None:
        x = self.pick(lambda v: any(_low(size) > 0 for size in v.shape))
        if x is None:
            return
        choices = [d for d, size in enumerate(x.shape) if _low(size) > 0]
        dims = tuple(sorted(self.draw(st.sets(st.sampled_from(choices), min_size=1, max_size=2))))
        inner = self.draw(st.lists(st.integers(0, 4), max_size=2).map(tuple))
        kept = [size for d, size in enumerate(x.shape) if d not in dims]
        if not _small((*kept, *inner)):
            return
        at = self.draw(st.integers(0, len(kept)))
        found = [self.indices(inner, x.shape[d]) for d in dims]
        self.add("index", x, *found, dims=dims, at=at, taint=self.taints[x])

    def gather(self) -> None:
        x = self.pick(lambda v: any(_low(size) > 0 for size in v.shape))
        if x is None:
            return
        dim = self.draw(st.sampled_from([d for d, size in enumerate(x.shape) if _low(size) > 0]))
        shape = list(x.shape)
        shape[dim] = self.draw(st.integers(0, 5))
        if _small(shape):
            index = self.indices(tuple(shape), x.shape[dim])
            self.add("gather", x, index, dim=dim, taint=self.taints[x])

    def scatter(self) -> None:
        """Along one dim: "set" to a run of distinct places, the others anywhere."""
        x = self.pick(lambda v: any(_low(size) > 0 for size in v.shape) and self.sure(v))
        if x is None or x.dtype == BOOL:
            return
        dim = self.draw(st.sampled_from([d for d, size in enumerate(x.shape) if _low(size) > 0]))
        shape = list(x.shape)
        shape[dim] = self.draw(st.integers(0, _low(x.shape[dim])))
        mode = self.draw(st.sampled_from(("set", "add", "mul", "max", "min")))
        if mode == "set":
            index = self.add("iota", dim=dim, shape=tuple(shape))
        else:
            index = self.indices(tuple(shape), x.shape[dim])
        source = self.constant(x.dtype, shape)
        floats = x.dtype.is_float and mode != "set"
        taint = Taint(int(floats and mode in ("add", "mul")), floats)
        self.add("scatter", x, index, source, dim=dim, mode=mode, taint=taint)

    def index_put(self) -> None:
        """Rows of the first dim; distinct ones for "set"."""
        x = self.pick(lambda v: v.type.rank > 0 and _low(v.shape[0]) > 0 and self.sure(v))
        if x is None or x.dtype == BOOL:
            return
        count = self.draw(st.integers(0, _low(x.shape[0])))
        mode = self.draw(st.sampled_from(("set", "add", "max", "min")))
        if mode == "set":
            index = self.add("flip", self.add("iota", dim=0, shape=(count,)), dims=(0,))
        else:
            index = self.indices((count,), x.shape[0])
        values = self.constant(x.dtype, (count, *x.shape[1:]))
        floats = x.dtype.is_float and mode != "set"
        taint = Taint(int(floats and mode == "add"), floats)
        self.add("index_put", x, values, index, dims=(0,), at=0, mode=mode, taint=taint)


_STEPS = (
    _Grower.unary, _Grower.unary, _Grower.binary, _Grower.binary, _Grower.gentle, _Grower.product,
    _Grower.compare, _Grower.where, _Grower.convert, _Grower.source, _Grower.expand,
    _Grower.permute, _Grower.reshape, _Grower.slice, _Grower.flip, _Grower.pad, _Grower.concat,
    _Grower.window, _Grower.as_strided, _Grower.layout, _Grower.reduce, _Grower.reduce,
    _Grower.arg_reduce, _Grower.scan, _Grower.matmul, _Grower.conv, _Grower.attention,
    _Grower.index, _Grower.gather, _Grower.scatter, _Grower.index_put, _Grower.bitcast,
)  # fmt: skip


# ---- shapes ---------------------------------------------------------------------------------


def _is_coarser(dtype: DType, than: DType) -> bool:
    """Whether floats of `dtype` are compared no more strictly than those of the other."""
    order = [F64, F32, F16, BF16]
    return dtype.is_float and than.is_float and order.index(dtype) >= order.index(than)


def _low(dim: Dim) -> int:
    """The least that a size can be."""
    return bounds(dim)[0] or 0


def _small(shape: Sequence[Dim]) -> bool:
    high = bounds(product(shape))[1]
    return high is not None and high <= ELEMENTS


def _dim(shape: Sequence[Dim]) -> st.SearchStrategy[int]:
    return st.integers(0, len(shape) - 1)


def _broadcasts(shape: Sequence[Dim], to: Sequence[Dim]) -> bool:
    aligned = zip(reversed(shape), reversed(to), strict=False)
    return len(shape) <= len(to) and all(have in (1, want) for have, want in aligned)


def _is_multiple(dim: Dim, factor: int) -> bool:
    return isinstance(dim, int) and dim % factor == 0


def _join(parts: Sequence[Value], axis: int, dim: int) -> Dim:
    if axis != dim:
        return parts[0].shape[axis]
    total: Dim = 0
    for part in parts:
        total = total + part.shape[axis]
    return total


def _permuted_strides(shape: Sequence[Dim], order: Sequence[int]) -> tuple[Dim, ...]:
    """Strides of a dense tensor whose dims lie in memory in this order, the outermost first."""
    dense = row_major([shape[d] for d in order])
    return tuple(dense[order.index(d)] for d in range(len(shape)))


def _strides(shape: tuple[Dim, ...]) -> st.SearchStrategy[tuple[Dim, ...] | None]:
    """None, a dense permutation, every other element, or some dims expanded."""
    if not shape:
        return st.none()
    permuted = st.permutations(range(len(shape))).map(lambda order: _permuted_strides(shape, order))
    sparse = permuted.map(lambda strides: tuple(stride * 2 for stride in strides))
    expanded = st.tuples(*(st.sampled_from((0, stride)) for stride in row_major(shape)))
    return st.one_of(st.none(), st.none(), permuted, sparse, expanded)


__all__ = ["ELEMENTS", "Taint", "arguments", "graphs"]
