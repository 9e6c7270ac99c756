"""Products with weights become products of small integers, by the formulas of the pass."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from kernelmill.config.schemes import SCHEMES, Quantize
from kernelmill.core.dim import sym
from kernelmill.core.dtype import BF16, F16, F32, F64, DType, InputRole, to_torch
from kernelmill.core.target.machine import profile
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.interpreter import run_graph
from kernelmill.graph.ir import Graph
from kernelmill.graph.text import parse_graph, print_graph
from kernelmill.graph.verifier import verify_graph
from kernelmill.passes.quantize import Quantize as Pass
from tests.compiled import check, interpreted, lowered, program
from tests.machine_code import runs_here

SMALL = 2.0**-100
M, K, N = 5, 128, 37
TARGETS = ("x86-64-v2", "x86-64-v3", "x86-64-v3-vnni", "x86-64-v4-vnni", "x86-64-v4-amx")


def layer(
    dtype: DType = F32, stored: DType | None = None, m: object = M, k: int = K, n: int = N,
    transposed: bool = True, name: str = "a.weight", role: InputRole = InputRole.PARAM,
) -> Graph:  # fmt: skip
    """One product with a weight that is stored (n, k), or else (k, n)."""
    b = GraphBuilder("g")
    x = b.input("x", dtype, (m, k))  # type: ignore[reportArgumentType]
    w = b.input(name, stored or dtype, (n, k) if transposed else (k, n), role=role)
    weight = w if stored in (None, dtype) else b.emit("cast", w, dtype=dtype)
    b.graph.results = [
        b.emit("matmul", x, b.emit("permute", weight, dims=(1, 0)) if transposed else weight)
    ]
    return b.graph


def quantised(graph: Graph, schemes: Quantize) -> Graph:
    made = Pass(schemes).apply(graph)
    verify_graph(made)
    assert print_graph(parse_graph(print_graph(made))) == print_graph(made)
    return made


def by_definition(x: Tensor, w: Tensor, scheme: str) -> Tensor:
    """Of a weight (n, k), element by element, in float64 but for scales and what is rounded."""
    x, w = x.float(), w.float()
    result = torch.zeros(x.shape[0], w.shape[0], dtype=torch.float64)
    group = {"int4-weights": 32, "int4-weights-128": 128}.get(scheme, w.shape[1])
    for n, row in enumerate(w):
        made: list[Tensor] = []
        for part in row.split(group):
            if scheme.startswith("int4"):
                farthest = part[part.abs().argmax()]
                scale = farthest / -8 if abs(farthest / -8) >= SMALL else torch.tensor(SMALL)
                made.append((part * scale.reciprocal()).round().clamp(max=7) * scale)
            else:
                scale = (part.abs().max() / 127).clamp(min=SMALL)
                made.append((part * scale.reciprocal()).round() * scale.double())
        result[:, n] = (x.double() if scheme != "int8" else rounded(x)) @ torch.cat(made).double()
    return result


def rounded(x: Tensor) -> Tensor:
    """Rows as 255 steps have them, zero among these."""
    found = torch.zeros(x.shape, dtype=torch.float64)
    for m, row in enumerate(x):
        low, high = row.min().clamp(max=0), row.max().clamp(min=0)
        step = ((high - low) / 255).clamp(min=SMALL)
        zero = (low * step.reciprocal()).round() + 128
        number = ((row * step.reciprocal()).round() - zero).clamp(max=127)
        found[m] = (number + zero).double() * step.double()
    return found


def assert_near(found: Tensor, wanted: Tensor, dtype: DType) -> None:
    digits = torch.finfo(to_torch(dtype)).eps
    scale = max(wanted.abs().flatten().tolist(), default=0.0) + 1e-30
    assert found.shape == wanted.shape
    assert (
        max((found.double() - wanted).abs().flatten().tolist(), default=0.0)
        <= 4 * max(digits, 2e-6) * scale
    )


@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=str)
@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_formula_of_each_scheme(scheme: str, transposed: bool, dtype: DType) -> None:
    torch.manual_seed(0)
    graph = layer(dtype, transposed=transposed)
    x = torch.randn(M, K).to(to_torch(dtype))
    w = torch.randn(N, K).to(to_torch(dtype))
    made = quantised(graph, scheme)
    assert made is not graph
    (found,) = run_graph(made, [x, w if transposed else w.t().contiguous()])
    assert isinstance(found, Tensor) and found.dtype == x.dtype
    assert_near(found, by_definition(x, w, scheme), dtype)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_code_agrees_on_every_processor(scheme: str, target: str) -> None:
    """As machine code where this processor has the instructions, else by the kernel interpreter."""
    torch.manual_seed(1)
    machine = profile(target)
    for m, k, n in ((M, K, N), (1, 128, 16), (0, 128, 33)):
        made = lowered(quantised(layer(m=m, k=k, n=n), scheme), machine)
        values = [torch.randn(m, k), torch.randn(n, k)]
        runs = runs_here(machine.isa)
        (found,) = program(made, machine)(*values) if runs else interpreted(made, values)
        assert isinstance(found, Tensor)
        assert_near(found, by_definition(values[0], values[1], scheme), F32)


@pytest.mark.parametrize("k", [1, 3, 33, 100])
def test_inputs_that_fill_no_word(k: int) -> None:
    torch.manual_seed(k)
    for scheme in ("int8", "int8-weights"):
        graph = quantised(layer(k=k), scheme)
        check(graph, torch.randn(M, k), torch.randn(N, k), interpret=k < 50)


def test_any_number_of_rows() -> None:
    rows = sym("s", 0)
    graph = quantised(layer(m=rows), "int8")
    for m in (0, 1, 7, 40):
        check(graph, torch.randn(m, K), torch.randn(N, K))


def test_rows_and_weights_of_extremes() -> None:
    x = torch.randn(6, K)
    x[0], x[1], x[2, 3], x[3, 4] = 0.0, 3.0, math.nan, 1e30
    x[4] = x[4].abs() * -1
    x[5] = 1e-38
    w = torch.randn(N, K)
    w[0], w[1, 5], w[2] = 0.0, math.nan, 1e-39
    for scheme in SCHEMES:
        made = quantised(layer(m=6), scheme)
        (found,) = run_graph(made, [x, w])
        assert isinstance(found, Tensor)
        assert found[2].isnan().all() and found[:, 1].isnan().all()
        good = [0, 1, 3, 4, 5]
        assert (found[0, 2:] == 0).all() and (found[good, 0] == 0).all()
        wanted = by_definition(x[good], w[3:], scheme)
        for row, expected in zip(found[good, 3:], wanted, strict=True):
            assert_near(row, expected, F32)
        check(made, x, w)


def test_rows_at_the_ends_of_their_steps() -> None:
    """What is halfway between two steps never becomes a number of more than eight bits."""
    torch.manual_seed(2)
    for _ in range(40):
        low, width = torch.rand(2).tolist()
        x = torch.linspace(-low, width, K).repeat(4, 1) * torch.rand(4, 1)
        (found,) = run_graph(quantised(layer(m=4, n=16), "int8"), [x, torch.eye(16, K)])
        assert isinstance(found, Tensor)
        steps = (x.amax(1) - x.amin(1)) / 255
        assert ((found - x[:, :16]).abs() <= 0.51 * steps[:, None] + 0.005 * x[:, :16].abs()).all()


@pytest.mark.parametrize(
    ("schemes", "expected"),
    [
        ("int8", True),
        ({"a": "int8"}, True),
        ({"*": "int8"}, True),
        ({"a": None, "*": "int8"}, False),
        ({"b*": "int8"}, False),
        ({"b": "int8", "a*": None}, False),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["a.weight", "model.a.weight", "a_weight"])
def test_layers_by_name(name: str, schemes: Quantize, expected: bool) -> None:
    graph = layer(name=name)
    assert (Pass(schemes).apply(graph) is not graph) == expected


def test_what_stays_as_it_is() -> None:
    for graph in (
        layer(n=15),
        layer(role=InputRole.USER),
        layer(F64),
        layer(k=2**16 + 32),
    ):
        assert Pass("int8").apply(graph) is graph
    assert Pass("int4-weights").apply(odd := layer(k=48)) is odd
    assert Pass("int4-weights-128").apply(odd := layer(k=64)) is odd


def test_a_weight_that_the_graph_writes_stays() -> None:
    graph = layer()
    weight = next(e.value for e in graph.tensor_inputs() if e.role is InputRole.PARAM)
    b = GraphBuilder("g")
    b.graph = graph
    graph.updates = [(weight, b.emit("neg", weight))]
    assert Pass("int8").apply(graph) is graph


def test_rows_that_several_layers_read_are_made_once() -> None:
    b = GraphBuilder("g")
    x = b.input("x", F32, (M, K))
    weights = [b.input(f"{n}.weight", F32, (N, K), role=InputRole.PARAM) for n in "qkv"]
    b.graph.results = [b.emit("matmul", x, b.emit("permute", w, dims=(1, 0))) for w in weights]
    made = quantised(b.graph, "int8")
    assert sum(node.op == "reduce_min" for node in made.nodes) == 1
    values = [torch.randn(M, K), *(torch.randn(N, K) for _ in weights)]
    for found, w in zip(run_graph(made, values), values[1:], strict=True):
        assert isinstance(found, Tensor)
        assert_near(found, by_definition(values[0], w, "int8"), F32)


def test_a_weight_of_another_type_than_the_product() -> None:
    graph = layer(BF16, stored=F32)
    x, w = torch.randn(M, K).bfloat16(), torch.randn(N, K)
    (found,) = run_graph(quantised(graph, "int8"), [x, w])
    assert isinstance(found, Tensor)
    assert_near(found, by_definition(x, w, "int8"), BF16)
