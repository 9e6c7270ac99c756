"""Graphs that between them use every operator and every corner of the text form."""

from __future__ import annotations

from collections.abc import Callable

from kernelmill.config.super_kernel_marks import UNMARKED, Mark
from kernelmill.core.dim import Sym, of_atom, sym
from kernelmill.core.dtype import BF16, BOOL, F16, F32, F64, I8, I32, I64, U8, InputRole
from kernelmill.core.scalar import Apply
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Graph, Held, NumberResult, OpKind
from kernelmill.graph.ops import OPS
from kernelmill.graph.typing import bit_pointwise, float_pointwise, predicate, shift

EXAMPLES: dict[str, Callable[[], Graph]] = {}


def _example(function: Callable[[], Graph]) -> Callable[[], Graph]:
    EXAMPLES[function.__name__] = function
    return function


def _named(arity: int, *rules: object) -> list[str]:
    """Pointwise operators that are typed so."""
    every = [op for op in OPS.values() if op.kind is OpKind.POINTWISE and op.arity == arity]
    return sorted(op.name for op in every if op.rule in rules)


@_example
def pointwise() -> Graph:
    b = GraphBuilder("pointwise")
    x, y = b.input("x", F32, (4, 3)), b.input("y", F32, (4, 3))
    i, j = b.input("i", I32, (4, 3)), b.input("j", I32, (4, 3))
    results = [b.emit(op, x) for op in _named(1, float_pointwise, predicate)]
    results += [b.emit(op, x) for op in ("neg", "abs", "sign")]
    results += [b.emit(op, x, y) for op in _named(2, float_pointwise, predicate)]
    results += [b.emit(op, i, j) for op in _named(2, bit_pointwise, shift)]
    results.append(b.emit("multiply_add", x, y, x))
    numbers = "add sub mul div floordiv mod rem maximum minimum"
    results += [b.emit(op, i, j) for op in numbers.split()]
    results.append(b.emit("bit_not", i))
    results.append(b.emit("where", b.emit("lt", x, y), x, y))
    results.append(b.emit("cast", x, dtype=U8))
    results.append(b.emit("bitcast", x, dtype=I32))
    b.graph.results.extend(results)
    return b.graph


@_example
def bodies() -> Graph:
    inner = GraphBuilder("body_1")
    rows = of_atom(Sym("rows", 2))
    y = inner.input("y", F32, (rows, 3))
    weight = inner.input("w", F32, (3, 3), role=InputRole.PARAM)
    inner.graph.results = [inner.emit("matmul", y, weight)]
    inner.graph.bodies["held_0"] = Held("GraphModule")
    b = GraphBuilder("bodies")
    x, w = b.input("x", F32, (4, 3)), b.input("w", F32, (3, 3), role=InputRole.PARAM)
    b.graph.bodies = {"body_1": inner.graph, "held_1": Held("dict")}
    arguments = (
        ("body", "body_1"),
        "text",
        ("tensor", 0),
        ("tuple", ("tensor", 1)),
        ("body", "held_1"),
    )
    called = b.emit_many(
        "aten", x, w, target="higher_order.invoke_subgraph", args=arguments,
        kwargs=(("test", ("single", "body_1")),), results=((F32, (4, 3), None),), binds=(),
        reason="a higher-order operator",
    )  # fmt: skip
    b.graph.results = list(called)
    return b.graph


@_example
def views() -> Graph:
    b = GraphBuilder("views")
    x = b.input("x", F16, (4, 1, 6))
    wide = b.emit("expand", x, shape=(2, 4, 5, 6))
    turned = b.emit("permute", wide, dims=(3, 0, 1, 2))
    flat = b.emit("reshape", turned, shape=(6, 40))
    part = b.emit("slice", flat, dim=1, start=3, end=40, step=2)
    flipped = b.emit("flip", part, dims=(0, 1))
    padded = b.emit("pad", flipped, low=(1, 0), high=(0, 2), value=-0.0)
    joined = b.emit("concat", padded, padded, dim=0)
    windows = b.emit(
        "window", joined, dims=(0, 1), size=(2, 3), stride=(1, 2), dilation=(3, 1), low=(0, 1),
        high=(1, 0), value=float("-inf"),
    )  # fmt: skip
    strided = b.emit("as_strided", windows, shape=(5, 2), strides=(7, 0), offset=4)
    b.graph.results.append(b.emit("layout", strided, strides=(1, 5)))
    return b.graph


@_example
def reductions() -> Graph:
    b = GraphBuilder("reductions")
    x = b.input("x", BF16, (3, 4, 5))
    for op in ("reduce_sum", "reduce_prod", "reduce_max", "reduce_min"):
        b.graph.results.append(b.emit(op, x, dims=(0, 2)))
    b.graph.results.append(b.emit("reduce_maxnum", x, dims=(1,)))
    for op in ("argmax", "argmin", "cumsum", "cumprod"):
        b.graph.results.append(b.emit(op, x, dim=1))
    every = b.emit("reduce_min", b.emit("isnan", x), dims=(0, 1, 2))
    b.graph.results.append(every)
    return b.graph


@_example
def contractions() -> Graph:
    b = GraphBuilder("contractions")
    x, w = b.input("x", F32, (2, 7, 8)), b.input("w", F32, (2, 8, 9), (72, 1, 8), InputRole.PARAM)
    images = b.input("images", F32, (1, 4, 9, 9), (324, 1, 36, 4))
    filters = b.input("filters", F32, (6, 2, 3, 3), role=InputRole.PARAM)
    query = b.input("query", F32, (2, 4, 5, 16))
    cache = b.input("cache", F32, (2, 2, 7, 16), role=InputRole.BUFFER)
    mask = b.input("mask", BOOL, (5, 7))
    tokens, ends = b.input("tokens", F32, (5, 8)), b.input("ends", I32, (2,))
    geometry = {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 2)}
    b.graph.results = [
        b.emit("matmul", x, w),
        b.emit("conv", images, filters, groups=2, **geometry),
        b.emit("attention", query, cache, cache, mask, scale=0.25, causal=False),
        b.emit("grouped_matmul", tokens, w, ends),
    ]
    return b.graph


@_example
def modified_scores() -> Graph:
    b = GraphBuilder("modified_scores")
    query, key = b.input("query", BF16, (2, 4, 5, 16)), b.input("key", BF16, (2, 2, 7, 16))
    counts, numbers = b.input("counts", BOOL, (1, 4, 2)), b.input("numbers", BOOL, (1, 4, 2, 3))
    lists = [b.emit("cast", x, dtype=I32) for x in (counts, numbers)]
    mask = b.input("mask", BOOL, (2, 1, 1, 7))
    scores = b.emit("attention_scores", query, key, scale=0.25)
    capped = b.emit("tanh", scores)
    b.graph.results = [
        b.emit("flex_attention", scores, key),
        b.emit("flex_attention", capped, key, mask, masked=True, normaliser=True),
        b.emit("flex_attention", scores, key, mask, *lists, masked=True, blocks=(4, 3)),
        b.emit("flex_attention", capped, key, *lists, *lists, blocks=(4, 3)),
    ]
    return b.graph


@_example
def scattered() -> Graph:
    b = GraphBuilder("scattered")
    x, rows = b.input("x", I8, (5, 6, 7)), b.input("rows", I64, (2, 3))
    places = b.input("places", I64, (5, 2, 7))
    found = b.emit("index", x, rows, rows, dims=(0, 2), at=1)
    gathered = b.emit("gather", x, places, dim=1)
    b.graph.results = [
        found,
        b.emit("scatter", x, places, gathered, dim=1, mode="set"),
        b.emit("index_put", x, found, rows, rows, dims=(0, 2), at=1, mode="add"),
    ]
    return b.graph


@_example
def orders() -> Graph:
    b = GraphBuilder("orders")
    x = b.input("x", BF16, (5, 6))
    b.graph.results = [
        b.emit("argsort", x, dim=0, descending=True, stable=False),
        b.emit("argtopk", x, dim=1, k=2, largest=False, sorted=True),
        b.emit("searchsorted", x, x, right=True, dtype=I32),
    ]
    return b.graph


@_example
def recurrent() -> Graph:
    b = GraphBuilder("recurrent")
    gates, weight = b.input("gates", F32, (3, 2, 16)), b.input("weight", F32, (4, 16))
    state = b.input("state", F32, (2, 4))
    states = b.emit("recurrent", gates, weight, state, state, cell="lstm", backward=True)
    b.graph.results = [states]
    return b.graph


@_example
def symbolic() -> Graph:
    """Symbols from an argument, a shape and a result; an update; names that need cleaning."""
    b = GraphBuilder("model.forward (1)")
    length = sym("s77", 2, 4096)
    half = sym("s3")
    b.dim_input(length)
    x = b.input("L['x']", F64, (half, length * 2 + half), (length * 2 + half, 1))
    state = b.input("0", F64, (length, 3), (1, length), InputRole.BUFFER)
    b.origin, b.mark = 'model.py:12: return self.f(x) + "é"', Mark("decoder/layer.0")
    counts = b.emit("dim_value", value=length // 3 + half % 5)
    positions = b.emit("iota", dim=0, shape=(length, 3))
    moved = b.emit("add", b.emit("cast", positions, dtype=F64), state)
    b.origin, b.mark = "", UNMARKED
    b.symbol(Sym("u0", 0, length * half))
    unbacked = of_atom(Sym("u0", 0, length * half))
    (found,) = b.emit_many(
        "aten", x, target="aten.nonzero.default", args=(("tensor", 0),),
        kwargs=(("flag", ("list", True, None, 1.5, length)), ("dtype", I64), ("device", "cpu")),
        results=((I64, (unbacked, 2), (1, unbacked)),), binds=(("u0", 0, 0),),
        reason='data-dependent "size"\n',
    )  # fmt: skip
    b.graph.results = [moved, None, found, length - 1, 7, counts]
    b.graph.updates = [(state, moved)]
    return b.graph


@_example
def computed() -> Graph:
    """Symbols that a call computes, one of them late; numbers as results and arguments."""
    b = GraphBuilder("computed")
    length = sym("s0", 2)
    x = b.input("x", F32, (length,))
    most = Sym("calc0", 0, length, Apply("math.trunc", (Apply("mul", (length, 0.75)),)))
    word = Sym("calc1", -(2**63), None, Apply("bits", (Apply("truediv", (of_atom(most), 3)),)))
    b.symbol(word)
    b.symbol(most)
    part = b.emit("slice", x, dim=0, start=0, end=of_atom(most), step=1)
    b.symbol(Sym("u0", 0, length))
    found = of_atom(Sym("u0", 0, length))
    b.emit_many(
        "aten", part, target="aten.nonzero.default",
        args=(("tensor", 0), ("float", of_atom(word)), ("bool", length)), kwargs=(),
        results=((I64, (found, 1), (1, 1)),), binds=(("u0", 0, 0),), reason="",
    )  # fmt: skip
    late = Sym("calc2", 0, None, Apply("either", (Apply("gt", (found, 3)), True, found)))
    b.symbol(late)
    b.graph.results = [part, of_atom(late), NumberResult("float", of_atom(word))]
    return b.graph


@_example
def constants() -> Graph:
    b = GraphBuilder("constants")
    numbers = [0.0, -0.0, 0.1, 1e22, 5e-324, -2.5, float("inf"), float("-inf"), float("nan")]
    b.graph.results.extend(b.emit("full", value=n, dtype=F64, shape=()) for n in numbers)
    b.graph.results.append(b.emit("full", value=-(2**63), dtype=I64, shape=(0, 2)))
    b.graph.results.append(b.emit("full", value=True, dtype=BOOL, shape=(1,)))
    return b.graph


@_example
def empty() -> Graph:
    return GraphBuilder("empty").graph
