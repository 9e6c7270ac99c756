"""Small graphs for every template, each with one dynamic size, and the sizes at which kernels have
left their buffers or would: none, a few, around a vector and a block, vectors times odd numbers.

`KINDS` are functions of a dtype and the dynamic size, which is a symbol or a multiple of one: what
divides a size decides which masks a kernel has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kernelmill.core.dim import Dim, Sym, ceildiv, of_atom
from kernelmill.core.dtype import BF16, BOOL, F16, F32, F64, I8, I32, I64, U8, DType, InputRole
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import DimInput, Graph, Value

FLOATS = (F32, F64, BF16, F16)
PRODUCTS = (F32, F64, BF16, F16, I8)
ALL = (F32, F64, BF16, F16, I8, I64)

Make = Callable[[DType, Dim], Graph]


@dataclass(frozen=True)
class Kind:
    """A kind of graph: what it is called, for which dtypes there is one, and its least and largest
    sizes."""

    name: str
    dtypes: Sequence[DType]
    make: Make
    least: int = 0
    most: int = 1 << 30

    def graph(self, dtype: DType, multiple: int) -> Graph:
        """With a dynamic size that is a `multiple` of the symbol s0, which is an argument too."""
        symbol = Sym("s0", -(-self.least // multiple))
        made = self.make(dtype, of_atom(symbol) * multiple)
        made.inputs.append(DimInput(symbol))
        return made


def sizes(kind: Kind, lanes: int, block: int, multiple: int) -> list[int]:
    """Values of s0, for a dynamic size that is a multiple of it, up to behind two blocks."""
    around = (0, 1, 2, lanes - 1, lanes, lanes + 1, 3 * lanes, 5 * lanes, block, block + 1,
              2 * block + 1, 2 * block + 3 * lanes)  # fmt: skip
    return sorted({n // multiple for n in around
                   if kind.least <= n // multiple * multiple <= kind.most})  # fmt: skip


def multiples(lanes: int) -> tuple[int, ...]:
    """What the dynamic size is a multiple of: what masks may be left out for, and what not."""
    return (1, lanes // 2, lanes, 2 * lanes) if lanes > 2 else (1, lanes, 2 * lanes)


# ---- products -------------------------------------------------------------------------------


def product(
    m: int = 0, k: int = 0, n: int = 0, *, turned: str = "", role: InputRole = InputRole.USER,
    batch: Sequence[int] = (), followed: bool = False, wide: bool = False,
) -> Make:  # fmt: skip
    """x @ y, where the size that is 0 is the dynamic one. `turned` operands lie transposed."""

    def make(dtype: DType, size: Dim) -> Graph:
        rows, depth, columns = (one or size for one in (m, k, n))
        b = GraphBuilder("product")
        x = _matrix(b, "x", dtype, (*batch, rows, depth), "x" in turned, InputRole.USER)
        y = _matrix(b, "y", dtype, (*batch, depth, columns), "y" in turned, role)
        sums = {"dtype": {I8: I32, BF16: F32, F16: F32}.get(dtype, dtype)} if wide else {}
        found = b.emit("matmul", x, y, **sums)
        if followed:
            bias = b.input("bias", found.dtype, (columns,))
            found = b.emit("add", found, b.emit("expand", bias, shape=found.shape))
        b.graph.results = [found]
        return b.graph

    return make


def _matrix(
    b: GraphBuilder, name: str, dtype: DType, shape: tuple[Dim, ...], turned: bool, role: InputRole
) -> Value:
    if not turned:
        return b.input(name, dtype, shape, role=role)
    value = b.input(name, dtype, (*shape[:-2], shape[-1], shape[-2]), role=role)
    rank = len(shape)
    return b.emit("permute", value, dims=(*range(rank - 2), rank - 1, rank - 2))


def grouped(dtype: DType, size: Dim) -> Graph:
    b = GraphBuilder("grouped")
    x, w = b.input("x", dtype, (size, 5)), b.input("w", dtype, (3, 5, 9), role=InputRole.PARAM)
    # Ends that descend are an error.
    b.graph.results = [b.emit("grouped_matmul", x, w, b.emit("cumsum", _counts(b), dim=0))]
    return b.graph


def _counts(b: GraphBuilder) -> Value:
    ends = b.input("ends", U8, (3,))
    return b.emit("cast", b.emit("bit_and", ends, b.emit("full", value=7, dtype=U8, shape=(3,))),
                  dtype=I64)  # fmt: skip


def four_bits(dtype: DType, size: Dim) -> Graph:
    """Rows by numbers of four bits with a scale for each group of 16."""
    b = GraphBuilder("four_bits")
    x = b.input("x", dtype, (size, 32))
    q = b.input("q", U8, (20, 16), role=InputRole.PARAM)
    low = b.emit("bit_and", q, b.emit("full", value=15, dtype=U8, shape=(20, 16)))
    high = b.emit("shr", q, b.emit("full", value=4, dtype=U8, shape=(20, 16)))
    parts = [b.emit("reshape", part, shape=(20, 16, 1)) for part in (low, high)]
    number = b.emit("reshape", b.emit("concat", *parts, dim=2), shape=(20, 32))
    s = b.input("s", dtype, (20, 2, 1), role=InputRole.PARAM)
    spread = b.emit("reshape", b.emit("expand", s, shape=(20, 2, 16)), shape=(20, 32))
    weight = b.emit("mul", b.emit("cast", number, dtype=dtype), spread)
    b.graph.results = [b.emit("matmul", x, b.emit("permute", weight, dims=(1, 0)), dtype=dtype)]
    return b.graph


def by_pieces(dtype: DType, size: Dim) -> Graph:
    """Of f32, each one by three products of bf16."""
    b = GraphBuilder("pieces")
    x, y = b.input("x", dtype, (size, 40)), b.input("y", dtype, (40, 33))
    b.graph.results = [b.emit("matmul", x, y, products=3)]
    return b.graph


# ---- convolutions and attention -------------------------------------------------------------


def convolution(
    image: Sequence[int], weight: Sequence[int], *, groups: int = 1, stride: int = 1,
    padding: int = 1, last: bool = False, followed: bool = False,
) -> Make:  # fmt: skip
    """A convolution, of an image whose size that is 0 is the dynamic one."""

    def make(dtype: DType, size: Dim) -> Graph:
        shape = tuple(one or size for one in image)
        space = len(shape) - 2
        b = GraphBuilder("convolution")
        turned = (0, *range(2, space + 2), 1)
        if last:
            x = b.input("x", dtype, tuple(shape[axis] for axis in turned))
            x = b.emit("permute", x, dims=(0, space + 1, *range(1, space + 1)))
        else:
            x = b.input("x", dtype, shape)
        w = b.input("w", dtype, weight, role=InputRole.PARAM)
        attrs = {"stride": (stride,) * space, "padding": (padding,) * space,
                 "dilation": (1,) * space, "groups": groups}  # fmt: skip
        found = b.emit("conv", x, w, **attrs)
        if followed:
            found = b.emit("neg", found)
        b.graph.results = [b.emit("permute", found, dims=turned) if last else found]
        return b.graph

    return make


def attention(
    queries: int = 0, keys: int = 0, depth: int = 8, batch: int = 1, *, causal: bool = False,
    masked: bool = False, heads: tuple[int, int] = (2, 1),
) -> Make:  # fmt: skip
    """Attention of two heads that share their keys; sizes that are 0 are the dynamic one."""

    def make(dtype: DType, size: Dim) -> Graph:
        m, n, d, many = (one or size for one in (queries, keys, depth, batch))
        b = GraphBuilder("attention")
        q = b.input("q", dtype, (many, heads[0], m, d))
        k = b.input("k", dtype, (many, heads[1], n, d))
        v = b.input("v", dtype, (many, heads[1], n, d))
        masks = [b.input("mask", BOOL, (m, n))] if masked else []
        b.graph.results = [b.emit("attention", q, k, v, *masks, scale=0.5, causal=causal)]
        return b.graph

    return make


def flex_attention(
    queries: int = 0, keys: int = 0, *, blocks: tuple[int, int] = (1, 1), lists: int = 0,
    normaliser: bool = False, heads: tuple[int, int] = (2, 1),
) -> Make:  # fmt: skip
    """Attention with scores that are tilted, and masked by position, over as many lists of one
    block of keys each: the first, and the last where there is another one."""

    def make(dtype: DType, size: Dim) -> Graph:
        m, n = queries or size, keys or size
        b = GraphBuilder("flex")
        q = b.input("q", dtype, (1, heads[0], m, 8))
        k, v = (b.input(name, dtype, (1, heads[1], n, 8)) for name in "kv")
        tilt = b.input("tilt", F32, (heads[0], n))
        scores = b.emit("attention_scores", q, k, scale=0.5)
        tilt = b.emit("reshape", tilt, shape=(1, heads[0], 1, n))
        tilt = b.emit("cast", b.emit("expand", tilt, shape=scores.shape), dtype=scores.dtype)
        row, column = (b.emit("iota", dim=d, shape=(1, 1, m, n)) for d in (2, 3))
        mask = b.emit("ne", b.emit("add", row, _full(b, 2, row)), column)
        listed = _lists(b, m, n, *blocks)[: 2 * lists] if lists else ()
        b.graph.results = [
            b.emit(
                "flex_attention", b.emit("add", scores, tilt), v, mask, *listed, masked=True,
                normaliser=normaliser, **({"blocks": blocks} if lists else {}),
            )
        ]  # fmt: skip
        return b.graph

    return make


def _lists(b: GraphBuilder, m: Dim, n: Dim, rows: int, keys: int) -> list[Value]:
    shape = (1, 1, ceildiv(m, rows))
    one, across = b.emit("dim_value", value=1), b.emit("dim_value", value=ceildiv(n, keys))
    another = b.emit("cast", b.emit("gt", across, one), dtype=I32)
    last = b.emit("cast", b.emit("sub", across, one), dtype=I32)
    first = [_full(b, value, another) for value in (1, 0)]
    found = zip((*first, another, last), (shape, (*shape, 1)) * 2, strict=True)
    return [b.emit("expand", x, shape=wanted) for x, wanted in found]


def _full(b: GraphBuilder, value: int, like: Value) -> Value:
    return b.emit("full", value=value, dtype=like.dtype, shape=like.shape)


# ---- elements, sums, orders, places ---------------------------------------------------------


def over(shape: Sequence[int], build: Callable[[GraphBuilder, Value], Value | list[Value]]) -> Make:
    """What `build` makes of one input, whose size that is 0 is the dynamic one."""

    def make(dtype: DType, size: Dim) -> Graph:
        b = GraphBuilder("elements")
        x = b.input("x", dtype, tuple(one or size for one in shape))
        found = build(b, x)
        b.graph.results = list(found) if isinstance(found, list) else [found]
        return b.graph

    return make


def reduced(op: str, *dims: int) -> Callable[[GraphBuilder, Value], Value]:
    return lambda b, x: b.emit(op, x, dims=dims)


def along(op: str, dim: int, **attrs: object) -> Callable[[GraphBuilder, Value], Value]:
    return lambda b, x: b.emit(op, x, dim=dim, **attrs)  # type: ignore[arg-type]


def _turned(b: GraphBuilder, x: Value) -> Value:
    turned = b.emit("permute", x, dims=(1, 0))
    return b.emit("layout", turned, strides=(turned.shape[1], 1))


def _softmax(b: GraphBuilder, x: Value) -> Value:
    def spread(row: Value) -> Value:
        return b.emit("expand", b.emit("reshape", row, shape=(x.shape[0], 1)), shape=x.shape)

    e = b.emit("exp", b.emit("sub", x, spread(b.emit("reduce_maxnum", x, dims=(1,)))))
    return b.emit("div", e, spread(b.emit("reduce_sum", e, dims=(1,))))


def _doubled(b: GraphBuilder, x: Value) -> Value:
    return b.emit("concat", x, b.emit("neg", x), x, dim=len(x.shape) - 1)


def _padded(b: GraphBuilder, x: Value) -> Value:
    flipped = b.emit("flip", x, dims=(1,))
    return b.emit("pad", flipped, low=(1, 3), high=(0, 2), value=1)


def _pooled(b: GraphBuilder, x: Value) -> Value:
    window = b.emit("window", x, dims=(1,), size=(3,), stride=(2,), dilation=(1,),
                    low=(1,), high=(1,), value=0)  # fmt: skip
    return b.emit("reduce_sum", window, dims=(2,))


def _places(b: GraphBuilder, shape: tuple[Dim, ...], size: Dim) -> Value:
    """Places in [0, size), or 0 where there is none."""
    found = b.input("at", U8, shape)
    wide = b.emit("cast", found, dtype=I64)
    return b.emit("mod", wide, b.emit("expand", b.emit("dim_value", value=size), shape=shape))


def indexed(dtype: DType, size: Dim) -> Graph:
    b = GraphBuilder("indexed")
    x = b.input("x", dtype, (7, size))
    rows = b.emit("index", x, _places(b, (5,), 7), dims=(0,), at=0)
    b.graph.results = [rows]
    return b.graph


def looked_up(dtype: DType, size: Dim) -> Graph:
    b = GraphBuilder("looked_up")
    x = b.input("x", dtype, (size, 7))
    b.graph.results = [b.emit("gather", x, _places(b, (size, 7), size), dim=0)]
    return b.graph


def scattered(dtype: DType, size: Dim) -> Graph:
    b = GraphBuilder("scattered")
    x, source = b.input("x", dtype, (6, size)), b.input("source", dtype, (4, size))
    at = _places(b, (4, size), 6)
    b.graph.results = [b.emit("scatter", x, at, source, dim=0, mode="add")]
    return b.graph


def put(dtype: DType, size: Dim) -> Graph:
    b = GraphBuilder("put")
    x, values = b.input("x", dtype, (6, size)), b.input("values", dtype, (4, size))
    b.graph.results = [
        b.emit("index_put", x, values, _places(b, (4,), 6), dims=(0,), at=0, mode="add")
    ]
    return b.graph


def searched(dtype: DType, size: Dim) -> Graph:
    b = GraphBuilder("searched")
    edges, x = b.input("edges", dtype, (size,)), b.input("x", dtype, (3, size))
    b.graph.results = [b.emit("searchsorted", edges, x, right=True, dtype=I64)]
    return b.graph


def updated(dtype: DType, size: Dim) -> Graph:
    """An input that is written in place."""
    b = GraphBuilder("updated")
    x, y = b.input("x", dtype, (3, size)), b.input("y", dtype, (3, size))
    b.graph.results = [b.emit("reduce_sum", x, dims=(1,))]
    b.graph.updates = [(x, b.emit("add", x, y))]
    return b.graph


PARAM = InputRole.PARAM

KINDS: Mapping[str, Kind] = {kind.name: kind for kind in (
    Kind("rows by one column", PRODUCTS, product(k=5, n=1)),
    Kind("rows by one constant column", PRODUCTS, product(k=5, n=1, role=PARAM)),
    Kind("rows by a long constant column", PRODUCTS, product(k=40, n=1, role=PARAM)),
    Kind("rows by three columns", PRODUCTS, product(k=40, n=3, role=PARAM, turned="y")),
    Kind("rows by columns", PRODUCTS, product(k=5, n=19, followed=True)),
    Kind("rows by constant columns", PRODUCTS, product(k=5, n=24, role=PARAM, turned="y")),
    Kind("rows by many columns", (F32, BF16, I8), product(k=33, n=40, wide=True)),
    Kind("rows that lie transposed", PRODUCTS, product(k=5, n=7, turned="x")),
    Kind("one row", PRODUCTS, product(m=1, k=5)),
    Kind("one row, followed", PRODUCTS, product(m=1, k=5, followed=True)),
    Kind("one row by columns along k", PRODUCTS, product(m=1, k=40, turned="y")),
    Kind("columns", PRODUCTS, product(m=7, k=5)),
    Kind("columns that lie transposed", PRODUCTS, product(m=13, k=5, turned="y")),
    Kind("columns, with sums wider", (I8, BF16, F16), product(m=3, k=9, wide=True)),
    Kind("depth", PRODUCTS, product(m=5, n=9)),
    Kind("depth of transposed operands", PRODUCTS, product(m=5, n=9, turned="xy")),
    Kind("depth of one column", PRODUCTS, product(m=9, n=1)),
    Kind("depth of one number", PRODUCTS, product(m=1, n=1)),
    Kind("batches of rows", PRODUCTS, product(k=3, n=1, batch=(2,))),
    Kind("batches of columns", PRODUCTS, product(m=2, k=3, batch=(3,))),
    Kind("grouped rows", (F32, BF16), grouped, 21),
    Kind("numbers of four bits", (F32, BF16), four_bits),
    Kind("pieces", (F32,), by_pieces),
    Kind("planar images", FLOATS, convolution((0, 2, 4, 5), (3, 2, 3, 3)), most=3),
    Kind("lines", FLOATS, convolution((1, 3, 0), (4, 3, 3))),
    Kind("wide images", FLOATS, convolution((1, 2, 3, 0), (3, 2, 3, 3)), most=40),
    Kind("high images", FLOATS, convolution((1, 2, 0, 5), (3, 2, 3, 3), stride=2), 1, 40),
    Kind("wide images, strided", FLOATS, convolution((1, 2, 3, 0), (2, 2, 3, 3), stride=2), 1, 40),
    Kind("wide images, each channel", FLOATS,
         convolution((1, 2, 3, 0), (2, 1, 3, 3), groups=2), most=40),
    Kind("images of pixels", FLOATS, convolution((1, 5, 2, 0), (9, 5, 1, 1), padding=0)),
    Kind("images channels last", FLOATS,
         convolution((0, 5, 4, 4), (9, 5, 3, 3), last=True), most=3),
    Kind("wide images channels last", FLOATS,
         convolution((1, 5, 3, 0), (9, 5, 3, 3), last=True), most=20),
    Kind("pixels channels last", FLOATS,
         convolution((1, 5, 2, 0), (9, 5, 1, 1), padding=0, last=True)),
    Kind("each channel last", FLOATS,
         convolution((0, 20, 4, 4), (20, 1, 3, 3), groups=20, last=True), most=3),
    Kind("queries", FLOATS, attention(keys=9), 1),
    Kind("keys", FLOATS, attention(queries=5), 1),
    Kind("one query", FLOATS, attention(queries=1, masked=True), 1),
    Kind("queries and keys", (F32, BF16), attention(causal=True), 1),
    Kind("queries, modified", FLOATS, flex_attention(keys=9), 1),
    Kind("keys, modified", FLOATS, flex_attention(queries=5, heads=(2, 2)), 1),
    Kind("queries of listed keys", FLOATS,
         flex_attention(keys=21, blocks=(16, 8), lists=2, normaliser=True), 1),
    Kind("listed keys", FLOATS, flex_attention(queries=13, blocks=(4, 40), lists=1), 1),
    Kind("queries and listed keys", (F32, BF16), flex_attention(blocks=(128, 128), lists=2), 1),
    Kind("batches of attention", (F32, BF16), attention(3, 5, batch=0), 1, 9),
    Kind("elements", ALL, over((0,), lambda b, x: b.emit("add", x, x))),
    Kind("rows of elements", ALL, over((3, 0), lambda b, x: b.emit("mul", x, x))),
    Kind("casts", ALL, over((0,), lambda b, x: [b.emit("cast", x, dtype=d) for d in (F32, I8)])),
    Kind("turned", ALL, over((5, 0), _turned)),
    Kind("turned, the other way", ALL, over((0, 5), _turned)),
    Kind("joined", ALL, over((2, 0), _doubled)),
    Kind("padded", ALL, over((2, 0), _padded)),
    Kind("pooled", ALL, over((2, 0), _pooled), 1),
    Kind("sums of rows", ALL, over((3, 0), reduced("reduce_sum", 1))),
    Kind("sums of columns", ALL, over((3, 0), reduced("reduce_sum", 0))),
    Kind("sums of long columns", ALL, over((0, 5), reduced("reduce_sum", 0))),
    Kind("sums in the middle", ALL, over((2, 0, 3), reduced("reduce_sum", 1))),
    Kind("sums of all", ALL, over((0,), reduced("reduce_sum", 0))),
    Kind("largest", ALL, over((3, 0), reduced("reduce_max", 1)), 1),
    Kind("places of the largest", ALL, over((3, 0), along("argmax", 1)), 1),
    Kind("places of the largest in columns", ALL, over((3, 0), along("argmax", 0))),
    Kind("softmax", FLOATS, over((3, 0), _softmax)),
    Kind("running sums", (F32, F64, I64), over((3, 0), along("cumsum", 1))),
    Kind("running sums down", (F32, F64, I64), over((3, 0), along("cumsum", 0))),
    Kind("sorted", ALL, over((2, 0), along("argsort", 1, descending=False, stable=True))),
    Kind("sorted down", ALL, over((0, 3), along("argsort", 0, descending=True, stable=True))),
    Kind("the first", ALL, over((2, 0), along("argtopk", 1, k=2, largest=True, sorted=True)), 2),
    Kind("indexed", ALL, indexed),
    Kind("looked up", ALL, looked_up, 1),
    Kind("scattered", ALL, scattered),
    Kind("put", ALL, put),
    Kind("searched", (F32, F64, I64), searched),
    Kind("updated", ALL, updated),
)}  # fmt: skip
