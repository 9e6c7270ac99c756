"""Random graphs of products, norms and regrouped rows: their kernels have an order in which they
can run, and operators that draw keep theirs."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kernelmill.core.dtype import F32, InputRole
from kernelmill.core.target.machine import profile
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Graph, Value
from kernelmill.lower.driver.program import lower_graph
from kernelmill.plan.ir import AtenCall
from kernelmill.plan.verifier import verify_plan

WIDTH, FACTORS = 16, (2, 7, 4, 3)
ROWS = 2 * 7 * 4 * 3 * 7
MACHINE = profile("x86-64-v3")


def _rows(b: GraphBuilder, x: Value) -> Value:
    return b.emit("reshape", x, shape=(ROWS, WIDTH))


def _linear(b: GraphBuilder, x: Value) -> Value:
    number = len(b.graph.inputs)
    weight = b.input(f"w{number}", F32, (WIDTH, WIDTH), role=InputRole.PARAM)
    bias = b.input(f"b{number}", F32, (WIDTH,), role=InputRole.PARAM)
    return b.emit("add", b.emit("matmul", x, weight), b.emit("expand", bias, shape=(ROWS, WIDTH)))


def _regrouped(draw: st.DrawFn, b: GraphBuilder, x: Value) -> Value:
    """The rows in another order, of which there may be no single stride."""
    for _ in range(draw(st.integers(1, 3))):
        sizes = draw(st.permutations((2, 7, 4, 3, 7)))
        x = b.emit("reshape", x, shape=(*sizes, WIDTH))
        order = draw(st.permutations(range(5)))
        x = b.emit("permute", x, dims=(*order, 5))
        x = _rows(b, x)
    return x


def _norm(b: GraphBuilder, x: Value) -> Value:
    total = b.emit("reshape", b.emit("reduce_sum", x, dims=(1,)), shape=(ROWS, 1))
    centred = b.emit("sub", x, b.emit("expand", total, shape=x.shape))
    squares = b.emit("reduce_sum", b.emit("mul", centred, centred), dims=(1,))
    scale = b.emit("reshape", b.emit("rsqrt", squares), shape=(ROWS, 1))
    return b.emit("mul", centred, b.emit("expand", scale, shape=x.shape))


def _drawn(b: GraphBuilder, x: Value) -> Value:
    (drawn,) = b.emit_many(
        "aten", x, target="aten.bernoulli.default", args=(("tensor", 0),), kwargs=(),
        results=((F32, x.shape, None),), binds=(), reason="random numbers",
    )  # fmt: skip
    return drawn


@st.composite
def programs(draw: st.DrawFn) -> Graph:
    b = GraphBuilder("rows")
    known = [b.input("x", F32, (ROWS, WIDTH))]
    kinds = ("linear", "regroup", "regroup", "norm", "add", "exp", "tail", "draw")
    for kind in draw(st.lists(st.sampled_from(kinds), min_size=2, max_size=16)):
        x = draw(st.sampled_from(known[-3:]))
        if kind == "linear":
            x = _linear(b, x)
        elif kind == "regroup":
            x = _regrouped(draw, b, x)
        elif kind == "norm":
            x = _norm(b, x)
        elif kind == "add":
            x = b.emit("add", x, draw(st.sampled_from(known)))
        elif kind == "exp":
            x = b.emit("exp", x)
        elif kind == "draw":
            x = _drawn(b, x)
        else:
            part = b.emit("slice", x, dim=0, start=1, end=ROWS, step=1)
            x = b.emit("pad", part, low=(1, 0), high=(0, 0), value=0.0)
        known.append(x)
    b.graph.results = list(draw(st.lists(st.sampled_from(known[1:]), min_size=1, max_size=3)))
    b.graph.results = [b.emit("neg", value) for value in {id(r): r for r in _values(b)}.values()]
    return b.graph


def _values(b: GraphBuilder) -> list[Value]:
    return [result for result in b.graph.results if isinstance(result, Value)]


@settings(max_examples=60)
@given(programs())
def test_each_kernel_reads_what_earlier_ones_wrote(graph: Graph) -> None:
    verify_plan(lower_graph(graph, MACHINE).plan)


@settings(max_examples=25)
@given(programs())
def test_draws_are_in_the_order_of_the_program(graph: Graph) -> None:
    drawing = [node for node in graph.nodes if node.op == "aten"]
    for number, node in enumerate(drawing):
        node.origin = str(number)
    plan = lower_graph(graph, MACHINE).plan
    calls = [step for step in plan.steps if isinstance(step, AtenCall)]
    assert [call.origin for call in calls] == [node.origin for node in drawing]


def test_a_projection_added_to_in_another_order_of_its_rows_is_split() -> None:
    """Reading it through the views is too long: they are stored, between what they are of and what
    would be its epilogue."""
    b = GraphBuilder("windows")
    x = _linear(b, b.input("x", F32, (ROWS, WIDTH)))
    y = b.emit("reshape", x, shape=(2, 7, 4, 3, 7, WIDTH))
    y = _rows(b, b.emit("permute", y, dims=(0, 3, 2, 4, 1, 5)))
    y = b.emit("reshape", y, shape=(7, 4, 7, 3, 2, WIDTH))
    y = _rows(b, b.emit("permute", y, dims=(4, 0, 2, 1, 3, 5)))
    b.graph.results = [b.emit("exp", y)]
    verify_plan(lower_graph(b.graph, MACHINE).plan)
