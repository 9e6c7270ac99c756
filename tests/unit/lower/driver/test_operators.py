"""One operator by itself: the same general form at every size, and the same results."""

import pytest
import torch

from kernelmill.core.dtype import F32, I64, InputRole
from kernelmill.core.target.machine import host
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.interpreter import run_graph
from kernelmill.graph.text import print_graph
from kernelmill.lower.driver.lowered import LoweredOperator
from kernelmill.lower.driver.program import extract_operators, lower_graph, lower_operators
from kernelmill.plan.text import print_plan
from tests.compiled import graph, program
from tests.tolerances import mismatch


def operators(made):
    """The operators that lowering finds in a graph."""
    return list(extract_operators(made, host()).operators.values())


def general(*made):
    """The texts of the general forms of all operators in some graphs."""
    found = [operator.general for each in made for operator in operators(each)]
    return {None if form is None else print_graph(form, names=False) for form in found}


def generalised(made):
    """The graph with the kernel for all sizes of each of its operators."""
    extracted = extract_operators(made, host())
    assert len(extracted.operators) == len(extracted.placed.steps) > 0
    chosen = {}
    for work, operator in extracted.operators.items():
        assert operator.general is not None, print_graph(operator.graph)
        chosen[work] = LoweredOperator(lower_graph(operator.general, host()), operator.values)
    return lower_operators(extracted, chosen, host())


def check_general(made, *inputs):
    """Every operator of the graph has a general form, and those compute what eager does."""
    lowered = generalised(made)
    for kernel in lowered.kernels.values():
        assert kernel.dims
    for mine, theirs in zip(program(lowered)(*inputs), run_graph(made, inputs), strict=True):
        assert mismatch(mine, theirs) is None


FORMS = {
    "add": (lambda b, x, y: b.emit("add", x, y), lambda m, n: ((m, n), (m, n))),
    "matmul": (lambda b, x, y: b.emit("matmul", x, y), lambda m, n: ((m, 8), (8, n))),
    "transposed": (
        lambda b, x, y: b.emit("matmul", x, b.emit("permute", y, dims=(1, 0))),
        lambda m, n: ((m, 8), (n, 8)),
    ),
    "sum": (
        lambda b, x, y: b.emit("reduce_sum", x, dims=(1,)), lambda m, n: ((m, n, 5), (m, 1, 1))
    ),
    "broadcast": (
        lambda b, x, y: b.emit("mul", x, b.emit("expand", y, shape=x.shape)),
        lambda m, n: ((3, m, n), (n,)),
    ),
    "column": (
        lambda b, x, y: b.emit("exp", b.emit("slice", x, dim=1, start=2, end=4, step=1)),
        lambda m, n: ((m, n), (1,)),
    ),
    "conv": (
        lambda b, x, y: b.emit(
            "conv", x, y, stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=1
        ),
        lambda m, n: ((2, 4, m, n), (6, 4, 3, 3)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_the_general_form_is_the_same_at_every_size(name):
    build, shapes = FORMS[name]
    made = [
        graph(build, *((F32, shape) for shape in shapes(*size)))
        for size in ((6, 10), (7, 12), (33, 65))
    ]
    assert len(general(*made)) == 1
    for each in made:
        check_general(each, *(torch.randn(entry.value.shape) for entry in each.tensor_inputs()))


def test_contiguous_pointwise_operators_of_all_ranks_are_one_kernel():
    shapes = ((30,), (5, 6), (2, 3, 5), (1, 4, 1, 9))
    made = [graph(lambda b, x: b.emit("exp", x), (F32, shape)) for shape in shapes]
    assert len(general(*made)) == 1


def test_a_scalar_is_part_of_the_operator():
    def scaled(factor):
        return lambda b, x: b.emit("mul", x, b.emit("full", value=factor, dtype=F32, shape=x.shape))

    two, three = (graph(scaled(factor), (F32, (4, 5))) for factor in (2.0, 3.0))
    assert len(general(two, two)) == 1
    assert len(general(two, three)) == 2
    check_general(two, torch.randn(4, 5))


def test_parameters_are_told_apart_in_the_exact_form_only():
    b = GraphBuilder("g")
    x = b.input("x", F32, (3, 4))
    weight = b.input("w", F32, (4, 5), role=InputRole.PARAM)
    b.graph.results = [b.emit("matmul", x, weight)]
    (operator,) = operators(b.graph)
    assert [entry.role for entry in operator.graph.tensor_inputs()] == ["user", "param"]
    assert [entry.role for entry in operator.general.tensor_inputs()] == ["user", "user"]


def test_an_index_outside_is_an_error_here_too():
    def rows(b, x, i):
        return b.emit("index", x, i, dims=(0,), at=0)

    made = graph(rows, (F32, (5, 3)), (I64, (4,)))
    check_general(made, torch.randn(5, 3), torch.tensor([0, 4, 2, 1]))
    lowered = generalised(made)
    with pytest.raises(IndexError, match="out of range"):
        program(lowered)(torch.randn(5, 3), torch.tensor([0, 5, 2, 1]))


def test_what_updates_its_input_is_lowered_where_it_stands():
    b = GraphBuilder("g")
    x = b.input("x", F32, (3, 4))
    i = b.input("i", I64, (1, 4))
    s = b.input("s", F32, (1, 4))
    fresh = b.emit("scatter", x, i, s, dim=0, mode="set", inplace=True)
    b.graph.updates = [(x, fresh)]
    assert operators(b.graph) == []


def test_what_is_extracted_stays_as_it_is_while_it_is_lowered():
    def build(b, x, y):
        return b.emit("exp", b.emit("add", b.emit("matmul", x, y), b.emit("matmul", x, y)))

    made = graph(build, (F32, (5, 8)), (F32, (8, 3)))
    extracted = extract_operators(made, host())
    chosen = {
        work: LoweredOperator(lower_graph(operator.graph, host()), {})
        for work, operator in extracted.operators.items()
    }
    x, y = torch.randn(5, 8), torch.randn(8, 3)
    for some in ({}, chosen, dict(list(chosen.items())[:1]), {}):
        lowered = lower_operators(extracted, some, host())
        assert mismatch(program(lowered)(x, y)[0], run_graph(made, [x, y])[0]) is None
    again = lower_operators(extracted, {}, host())
    assert print_plan(again.plan) == print_plan(lowered.plan)
