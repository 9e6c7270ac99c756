"""Hypothesis strategy for kernels whose results have one right answer, bit for bit.

Every access is inside its buffer by construction. Functions that may differ in the last place are
left out, and so are the bits of a NaN: no float is reinterpreted as an integer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from hypothesis import strategies as st

from kernelmill.core.dim import Dim, Sym, bounds, maximum, minimum, of_atom
from kernelmill.core.dtype import BF16, BOOL, COMPUTABLE, F32, F64, I32, I64, DType
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import COMPARE, SCRATCH, STATUS, Kernel, Value, VType
from kernelmill.kernel.numeric import Array, numpy_dtype

ELEMENTS = 100
DIM = "n"
SCRATCH_BYTES = ELEMENTS * 8
LARGEST = 5
"""What the one dim can be, from 1 on."""
_UNARY = {
    "float": ("neg", "abs", "sqrt", "floor", "ceil", "trunc", "round"),
    "bool": ("not", "abs"),
    "int": ("neg", "abs", "not"),
}
_BINARY = {
    "float": ("add", "sub", "mul", "div", "rem", "min", "max", "copysign"),
    "bool": ("and", "or", "xor", "min", "max"),
    "int": ("add", "sub", "mul", "div", "rem", "min", "max", "and", "or", "xor", "shl", "shr"),
}
_LANES = st.sampled_from((1, 1, 2, 3, 4, 8, 16))
_DTYPES = st.sampled_from(COMPUTABLE)


@st.composite
def kernels(draw: st.DrawFn, max_statements: int = 20) -> Kernel:
    """A kernel with a few in, inout and out buffers of `ELEMENTS` elements and the dim `DIM`."""
    grower = _Grower(draw)
    grower.block(draw(st.integers(1, max_statements)), 0)
    grower.store()
    return grower.b.kernel


def memory(kernel: Kernel, seed: int) -> dict[str, Array]:
    """Buffers to run the kernel on: the same for the same seed."""
    rng = np.random.default_rng(seed)
    return {buffer.name: _memory(buffer.dtype, rng) for buffer in kernel.buffers}


def _memory(dtype: DType, rng: np.random.Generator) -> Array:
    if dtype == BOOL:
        return rng.random(ELEMENTS) < 0.5
    if dtype == BF16:
        # Upper halves of f32 numbers.
        numbers = (rng.standard_normal(ELEMENTS) * 4).astype(np.float32)
        return (numbers.view(np.uint32) >> 16).astype(np.uint16)
    if dtype.is_float:
        numbers = rng.standard_normal(ELEMENTS) * 4
        special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e9, -3.0, 0.5]
        numbers[rng.integers(0, ELEMENTS, 8)] = special
        with np.errstate(over="ignore"):
            return numbers.astype(numpy_dtype(dtype))
    limits = np.iinfo(numpy_dtype(dtype))
    small = rng.integers(max(limits.min, -9), 10, ELEMENTS)
    edges = rng.choice([limits.min, limits.max], ELEMENTS)
    return np.where(rng.random(ELEMENTS) < 0.15, edges, small).astype(numpy_dtype(dtype))


class _Grower:
    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        size = of_atom(Sym(DIM, 1, LARGEST))
        self.b = KernelBuilder("random", "Random", tasks=draw(st.sampled_from((1, 3, size))))
        self.b.kernel.dims.append(Sym(DIM, 1, LARGEST))
        self.b.kernel.scratch = SCRATCH_BYTES
        self.indices: list[Dim] = [size, self.b.task]
        self.values: list[Value] = []
        self.outputs: list[str] = []
        for number, access in enumerate(("in", "in", "inout", "out")):
            name = self.b.buffer(f"b{number}", draw(_DTYPES), ELEMENTS, access)
            self.outputs += [name] if access != "in" else []
        self.b.buffer(STATUS, I64, ELEMENTS, "out")
        self.load()

    # ---- choosing ---------------------------------------------------------------------------

    def pick(self, fits: Callable[[Value], bool] = lambda value: True) -> Value | None:
        found = [value for value in self.values if fits(value)]
        return self.draw(st.sampled_from(found)) if found else None

    def literal(self, dtype: DType) -> bool | int | float:
        if dtype == BOOL:
            return self.draw(st.booleans())
        if dtype.is_float:
            return self.draw(st.sampled_from((0.0, -0.0, 1.0, -2.5, 0.1, 1e9, float("inf"))))
        return self.draw(st.integers(0 if dtype.kind == "uint" else -9, 9))

    def operand(self, kind: VType) -> Value | bool | int | float:
        """A register of the dtype with the lanes or one lane, or a literal."""
        register = self.pick(
            lambda v: v.type.dtype == kind.dtype and v.type.lanes in (1, kind.lanes)
        )
        return self.literal(kind.dtype) if register is None else register

    def keep(self, value: Value) -> None:
        self.values.append(value)

    def place(self, span: int) -> Dim:
        """An index from which `span` more elements exist."""
        room = ELEMENTS - span
        index: Dim = self.draw(st.integers(0, 9))
        for part in self.draw(st.lists(st.sampled_from(self.indices), max_size=2)):
            shape = self.draw(st.integers(0, 4))
            divisor = self.draw(st.sampled_from((2, 3, 4, self.indices[0])))
            part = (part, part * 8, part // divisor, part % divisor, minimum(part, 3))[shape]
            index = index + part * self.draw(st.sampled_from((1, 1, 2, -1)))
        low, high = bounds(index)
        inside = low is not None and low >= 0 and high is not None and high <= room
        return index if inside else maximum(index, 0) % (room + 1)

    # ---- memory -----------------------------------------------------------------------------

    def mask(self, lanes: int) -> Value | None:
        if self.draw(st.booleans()):
            return None
        found = self.pick(lambda v: v.type == VType(BOOL, lanes))
        if found is not None and self.draw(st.booleans()):
            return found
        return self.b.op("lane_mask", self.b.index(self.place(0) - 3), lanes=lanes)

    def strided(self, lanes: int) -> tuple[Dim, int]:
        stride = self.draw(st.sampled_from((1, 1, 2, 3, -1, -2)))
        span = (lanes - 1) * abs(stride) + 1
        start = self.place(span)
        return (start if stride > 0 else start + span - 1), stride

    def load(self) -> None:
        buffer = self.draw(st.sampled_from(self.b.kernel.buffers[:3]))
        lanes = self.draw(_LANES)
        mask = self.mask(lanes)
        index, stride = self.strided(lanes)
        self.keep(self.b.load(buffer.name, index, buffer.dtype, lanes, mask, stride))

    def store(self) -> None:
        name = self.draw(st.sampled_from(self.outputs))
        dtype = next(b.dtype for b in self.b.kernel.buffers if b.name == name)
        value = self.pick(lambda v: v.type.dtype == dtype)
        if value is None:
            source = self.pick()
            assert source is not None
            value = self.b.op("cast", source, dtype=dtype)
        mask = self.mask(value.type.lanes)
        index, stride = self.strided(value.type.lanes)
        self.b.store(name, index, value, mask, stride)

    def offsets(self, lanes: int) -> Value:
        dtype = self.draw(st.sampled_from((I32, I64)))
        found = self.pick(lambda v: v.type == VType(dtype, lanes))
        source = self.b.op("iota", dtype=dtype, lanes=lanes) if found is None else found
        return self.b.op("and", source, 7)

    def gather(self) -> None:
        buffer = self.draw(st.sampled_from(self.b.kernel.buffers[:3]))
        lanes = self.draw(_LANES)
        mask, offsets = self.mask(lanes), self.offsets(lanes)
        self.keep(self.b.gather(buffer.name, self.place(8), offsets, buffer.dtype, mask))

    def scatter(self) -> None:
        name = self.draw(st.sampled_from(self.outputs))
        dtype = next(b.dtype for b in self.b.kernel.buffers if b.name == name)
        value = self.pick(lambda v: v.type.dtype == dtype)
        if value is not None:
            lanes = self.draw(_LANES) if value.type.lanes == 1 else value.type.lanes
            mask, offsets = self.mask(lanes), self.offsets(lanes)
            self.b.scatter(name, self.place(8), offsets, value, mask)

    def scratch(self) -> None:
        value = self.pick()
        if value is not None:
            dtype, lanes = value.type.dtype, value.type.lanes
            index = self.place(lanes)
            self.b.store(SCRATCH, index, value)
            self.keep(self.b.load(SCRATCH, index, dtype, lanes))

    # ---- operators --------------------------------------------------------------------------

    def arithmetic(self) -> None:
        x = self.pick()
        if x is None:
            return
        dtype = x.type.dtype
        if dtype.bits == 16 and dtype.is_float:
            self.keep(self.b.op("cast", x, dtype=self.draw(st.sampled_from((F32, F64)))))
            return
        unary, binary = (table.get(dtype.kind, table["int"]) for table in (_UNARY, _BINARY))
        op = self.draw(st.sampled_from((*binary, *unary, "fma")))
        if op in unary:
            self.keep(self.b.op(op, x))
        elif op == "fma" and dtype != BOOL:
            others = self.operand(x.type), self.operand(x.type)
            self.keep(self.b.op(op, x, *others, lanes=x.type.lanes))
        elif op != "fma":
            pair = (x, self.operand(x.type))
            pair = pair[::-1] if self.draw(st.booleans()) else pair
            self.keep(self.b.op(op, *pair, dtype=dtype, lanes=x.type.lanes))

    def compare(self) -> None:
        x = self.pick(lambda v: v.type.dtype.compute == v.type.dtype)
        if x is not None:
            op = self.draw(st.sampled_from(sorted(COMPARE)))
            self.keep(self.b.op(op, x, self.operand(x.type), lanes=x.type.lanes))

    def select(self) -> None:
        x = self.pick()
        if x is not None:
            condition = self.operand(VType(BOOL, x.type.lanes))
            other = self.operand(x.type)
            self.keep(
                self.b.op("select", condition, x, other, dtype=x.type.dtype, lanes=x.type.lanes)
            )

    def cast(self) -> None:
        x = self.pick()
        if x is not None:
            self.keep(self.b.op("cast", x, dtype=self.draw(_DTYPES)))

    def bitcast(self) -> None:
        x = self.pick(lambda v: v.type.dtype.is_integer)
        if x is not None:
            same = [d for d in COMPUTABLE if d.bits == x.type.dtype.bits and d != BOOL]
            self.keep(self.b.op("bitcast", x, dtype=self.draw(st.sampled_from(same))))

    def vector(self) -> None:
        x = self.pick()
        if x is None:
            return
        lanes = x.type.lanes
        which = self.draw(st.integers(0, 3))
        if which == 0:
            self.keep(self.b.op("extract", x, self.draw(st.integers(0, lanes - 1))))
        elif which == 1:
            start = self.draw(st.integers(0, lanes - 1))
            count = self.draw(st.integers(1, lanes - start))
            self.keep(self.b.op("slice", x, lanes=count, start=start))
        elif which == 2 and lanes <= 16:
            other = self.pick(lambda v: v.type.dtype == x.type.dtype and v.type.lanes <= 16) or x
            self.keep(self.b.op("concat2", x, other))
        elif lanes == 1:
            self.keep(self.b.op("splat", x, lanes=self.draw(_LANES)))

    def reduce(self) -> None:
        x = self.pick(lambda v: v.type.dtype.compute == v.type.dtype)
        if x is None:
            return
        names = ["reduce_max", "reduce_min"]
        names += ["reduce_and", "reduce_or"] if not x.type.dtype.is_float else []
        names += ["reduce_add", "reduce_mul"] if x.type.dtype != BOOL else []
        self.keep(self.b.op(self.draw(st.sampled_from(names)), x))

    def check(self) -> None:
        x = self.pick(lambda v: v.type.dtype == BOOL)
        if x is not None:
            self.keep(self.b.op("check", x, code=self.draw(st.integers(1, 3))))

    # ---- control ----------------------------------------------------------------------------

    def let(self) -> None:
        x = self.pick(lambda v: v.type.lanes == 1 and v.type.dtype.is_integer)
        if x is not None:
            wide = self.b.op("cast", x, dtype=I64)
            self.indices.append(self.b.let(self.b.op("and", wide, 7), 0, 7))

    def loop(self, depth: int) -> None:
        stop: Dim = self.draw(st.sampled_from((0, 1, 3, 4, *self.indices)))
        start = self.draw(st.integers(0, 2))
        step = self.draw(st.integers(1, 3))
        kinds = [v.type for v in self.draw(st.lists(st.sampled_from(self.values), max_size=2))]
        carry = [(kind, self.operand(kind)) for kind in kinds]
        unroll = isinstance(stop, int) and self.draw(st.booleans())
        indices, values = list(self.indices), list(self.values)
        with self.b.loop(start, stop, step, carry, unroll=unroll) as loop:
            self.indices.append(loop.index)
            self.values.extend(loop.carried)
            self.block(self.draw(st.integers(0, 4)), depth + 1)
            loop.carry(*(self.operand(kind) for kind in kinds))
        self.indices, self.values = indices, [*values, *loop.results]

    def branch(self, depth: int) -> None:
        condition = self.pick(lambda v: v.type == VType(BOOL))
        if condition is None:
            return
        kinds = [v.type for v in self.draw(st.lists(st.sampled_from(self.values), max_size=2))]
        yields: list[tuple[Value | bool | int | float, ...]] = []
        with self.b.when(condition) as branch:
            yields.append(self.side(kinds, depth))
        if kinds or self.draw(st.booleans()):
            with self.b.otherwise(branch):
                yields.append(self.side(kinds, depth))
            branch.otherwise_yields = yields[1]
        branch.then_yields = yields[0]
        branch.results = tuple(self.b.fresh(kind.dtype, kind.lanes) for kind in kinds)
        self.values.extend(branch.results)

    def side(self, kinds: Sequence[VType], depth: int) -> tuple[Value | bool | int | float, ...]:
        indices, values = list(self.indices), list(self.values)
        self.block(self.draw(st.integers(0, 3)), depth + 1)
        found = tuple(self.operand(kind) for kind in kinds)
        self.indices, self.values = indices, values
        return found

    def block(self, count: int, depth: int) -> None:
        for _ in range(count):
            step = self.draw(st.sampled_from(_STEPS))
            if step in (_Grower.loop, _Grower.branch):
                if depth < 3:
                    step(self, depth)
            else:
                step(self)


_STEPS = (
    _Grower.load, _Grower.load, _Grower.store, _Grower.store, _Grower.gather, _Grower.scatter,
    _Grower.scratch, _Grower.arithmetic, _Grower.arithmetic, _Grower.arithmetic, _Grower.compare,
    _Grower.select, _Grower.cast, _Grower.bitcast, _Grower.vector, _Grower.reduce, _Grower.check,
    _Grower.let, _Grower.loop, _Grower.branch,
)  # fmt: skip
