"""Each pass on small graphs in text, and all of them together on graphs of models."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass

import pytest
import torch
import torch.nn.functional as F

from kernelmill.core.errors import VerificationError
from kernelmill.graph.interpreter import run_graph
from kernelmill.graph.ir import Graph
from kernelmill.graph.text import parse_graph, print_graph
from kernelmill.graph.verifier import verify_graph
from kernelmill.passes import DEFAULT, Pass, run_pipeline
from kernelmill.passes.constants import FoldConstants
from kernelmill.passes.dce import EliminateCommonSubexpressions, EliminateDeadCode
from kernelmill.passes.heads import FoldRepeatedKV
from kernelmill.passes.identities import RemoveIdentities
from kernelmill.passes.views import MergeViews
from tests.arguments import arguments
from tests.unit.frontend.tracing import trace


def body(inputs: str, nodes: str, results: str) -> str:
    listed = "\n".join(f"  {line.strip()}" for line in nodes.strip().splitlines())
    return f"graph g(\n  {inputs}\n) {{\n{listed}\n  return {results}\n}}\n"


def rewritten(rewrite: Pass, text: str) -> str:
    """The text after the pass, which left its argument as it was and the meaning too."""
    graph = parse_graph(text)
    verify_graph(graph)
    after = rewrite.apply(graph)
    verify_graph(after, rewrite.name)
    assert print_graph(graph) == print_graph(parse_graph(text))
    values = arguments(graph, seed=1, specials=True)
    for have, want in zip(run_graph(after, values), run_graph(graph, values), strict=True):
        torch.testing.assert_close(have, want, rtol=0, atol=0, equal_nan=True)
    return print_graph(after)


def operators(text: str) -> list[str]:
    return [node.op for node in parse_graph(text).nodes]


def test_unused_nodes_go_and_random_ones_stay() -> None:
    text = body(
        "%x: f32[2]",
        """%0 = exp(%x) : f32[2]
        %1 = aten(%x) {args=(("tensor", 0), 0.5), binds=(), kwargs=(), reason="", \
results=((f32, (2), none)), target="aten.bernoulli.p"} : f32[2]
        %2 = aten(%x) {args=(("tensor", 0)), binds=(), kwargs=(), reason="", \
results=((f32, (2), none)), target="aten.sort.default"} : f32[2]
        %3 = sin(%x) : f32[2]""",
        "%3",
    )
    kept = EliminateDeadCode().apply(parse_graph(text))
    assert [node.attrs.get("target", node.op) for node in kept.nodes] == ["aten.bernoulli.p", "sin"]


def test_equal_nodes_are_computed_once() -> None:
    text = body(
        "%x: f32[2]",
        """%0 = exp(%x) : f32[2]
        %1 = exp(%x) : f32[2]
        %2 = full() {dtype=f32, shape=(2), value=0.0} : f32[2]
        %3 = full() {dtype=f32, shape=(2), value=-0.0} : f32[2]
        %4 = mul(%0, %1) : f32[2]
        %5 = mul(%1, %0) : f32[2]""",
        "%4, %5, %2, %3",
    )
    after = rewritten(EliminateCommonSubexpressions(), text)
    # The two zeros differ, and multiplications are left in their order.
    assert operators(after).count("exp") == 1
    assert operators(after).count("full") == 2
    assert operators(after).count("mul") == 1


def test_random_calls_are_not_shared() -> None:
    call = """aten(%x) {args=(("tensor", 0), 0.5), binds=(), kwargs=(), reason="", \
results=((f32, (2), none)), target="aten.bernoulli.p"} : f32[2]"""
    text = body("%x: f32[2]", f"%0 = {call}\n%1 = {call}", "%0, %1")
    assert len(EliminateCommonSubexpressions().apply(parse_graph(text)).nodes) == 2


@pytest.mark.parametrize(
    ("nodes", "left"),
    [
        ("%0 = reshape(%x) {shape=(6)} : f32[6]\n%1 = reshape(%0) {shape=(2, 3)} : f32[2, 3]", []),
        (
            "%0 = reshape(%x) {shape=(6)} : f32[6]\n%1 = reshape(%0) {shape=(3, 2)} : f32[3, 2]",
            ["reshape"],
        ),
        (
            "%0 = permute(%x) {dims=(1, 0)} : f32[3, 2]\n"
            "%1 = permute(%0) {dims=(1, 0)} : f32[2, 3]",
            [],
        ),
        (
            "%0 = reshape(%x) {shape=(1, 2, 3)} : f32[1, 2, 3]\n"
            "%1 = permute(%0) {dims=(1, 0, 2)} : f32[2, 1, 3]",
            ["reshape"],
        ),
        (
            "%0 = expand(%x) {shape=(4, 2, 3)} : f32[4, 2, 3]\n"
            "%1 = expand(%0) {shape=(5, 4, 2, 3)} : f32[5, 4, 2, 3]",
            ["expand"],
        ),
        (
            "%0 = slice(%x) {dim=1, end=3, start=1, step=1} : f32[2, 2]\n"
            "%1 = slice(%0) {dim=1, end=2, start=1, step=1} : f32[2, 1]",
            ["slice"],
        ),
        (
            "%0 = layout(%x) {strides=(1, 2)} : f32[2, 3]{1, 2}\n"
            "%1 = layout(%0) {strides=(3, 1)} : f32[2, 3]{3, 1}",
            ["layout"],
        ),
    ],
)
def test_views_merge(nodes: str, left: list[str]) -> None:
    after = rewritten(MergeViews(), body("%x: f32[2, 3]", nodes, "%1"))
    assert operators(print_graph(EliminateDeadCode().apply(parse_graph(after)))) == left


@pytest.mark.parametrize(
    ("op", "number", "goes"),
    [
        ("mul", 1.0, True),
        ("div", 1.0, True),
        ("sub", 0.0, True),
        ("sub", -0.0, False),
        ("add", 0.0, False),  # -0.0 + 0.0 is 0.0
        ("add", -0.0, True),
        ("mul", 0.0, False),  # NaN stays NaN
        ("pow", 1.0, True),
    ],
)
def test_arithmetic_that_changes_nothing(op: str, number: float, goes: bool) -> None:
    full = f"%0 = full() {{dtype=f32, shape=(8), value={number}}} : f32[8]"
    text = body("%x: f32[8]", f"{full}\n%1 = {op}(%x, %0) : f32[8]", "%1")
    assert (op not in operators(rewritten(RemoveIdentities(), text))) == goes


@pytest.mark.parametrize(
    ("source", "between", "to", "left"),
    [
        ("bf16", "f32", "bf16", 0),
        ("f32", "bf16", "f32", 2),  # rounds
        ("i32", "f32", "i32", 2),  # f32 has 24 bits
        ("i16", "f32", "i16", 0),
        ("u8", "i32", "f32", 1),
        ("i64", "u8", "i64", 2),
        ("bool", "i64", "f32", 1),
    ],
)
def test_casts_there_and_back(source: str, between: str, to: str, left: int) -> None:
    nodes = (
        f"%0 = cast(%x) {{dtype={between}}} : {between}[4]\n%1 = cast(%0) {{dtype={to}}} : {to}[4]"
    )
    graph = parse_graph(body(f"%x: {source}[4]", nodes, "%1"))
    after = EliminateDeadCode().apply(RemoveIdentities().apply(graph))
    assert len(after.nodes) == left


def test_constants_fold_and_spread() -> None:
    text = body(
        "%x: f32[2, 3]",
        """%0 = full() {dtype=bf16, shape=(), value=3.0} : bf16[]
        %1 = expand(%0) {shape=(2, 3)} : bf16[2, 3]
        %2 = sqrt(%1) : bf16[2, 3]
        %3 = cast(%2) {dtype=f32} : f32[2, 3]
        %4 = mul(%x, %3) : f32[2, 3]""",
        "%4",
    )
    after = EliminateDeadCode().apply(parse_graph(rewritten(FoldConstants(), text)))
    assert [node.op for node in after.nodes] == ["full", "mul"]
    assert after.nodes[0].attrs["value"] == torch.tensor(3.0).bfloat16().sqrt().item()


def test_repeated_heads_are_read_once() -> None:
    def function(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        wide = k[:, :, None].expand(2, 2, 3, 7, 8).reshape(2, 6, 7, 8)
        return F.scaled_dot_product_attention(q, wide, wide)

    graph = trace(function, torch.randn(2, 6, 5, 8), torch.randn(2, 2, 7, 8)).graph
    after = EliminateDeadCode().apply(FoldRepeatedKV().apply(graph))
    (node,) = after.nodes
    assert node.op == "attention"
    assert node.operands[1].shape == (2, 2, 7, 8)


# ---- the pipeline -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Breaks:
    """Loses a node that is needed."""

    name: str = "breaks"

    def apply(self, graph: Graph) -> Graph:
        return Graph(graph.name, graph.inputs, graph.nodes[:-1], graph.results)


def test_a_pass_that_breaks_the_graph_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = parse_graph(body("%x: f32[2]", "%0 = exp(%x) : f32[2]", "%0"))
    monkeypatch.setenv("KERNELMILL_DEBUG", "1")
    with pytest.raises(VerificationError, match="after breaks") as caught:
        run_pipeline(graph, (Breaks(), EliminateDeadCode()))
    assert caught.value.stage == "breaks"


def test_a_broken_graph_is_not_the_passes_fault() -> None:
    graph = parse_graph(body("%x: f32[2]", "%0 = exp(%x) : f32[2]", "%0"))
    graph.nodes.clear()
    with pytest.raises(VerificationError, match="after the importer"):
        run_pipeline(graph)


def test_passes_are_frozen_and_have_names() -> None:
    names = [rewrite.name for rewrite in DEFAULT]
    assert all(names)
    with pytest.raises(FrozenInstanceError):
        DEFAULT[0].name = "other"  # type: ignore[misc]


def test_all_passes_keep_a_models_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELMILL_DEBUG", "1")

    def model(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        hidden = F.layer_norm(F.gelu(x @ w), (8,))
        return F.softmax(hidden.view(2, 3, 4, 2).transpose(1, 2).reshape(2, 4, 6), -1)

    graph = trace(model, torch.randn(2, 3, 5), torch.randn(5, 8)).graph
    values = arguments(graph, seed=2)
    after = run_pipeline(graph)
    assert len(after.nodes) < len(graph.nodes)
    torch.testing.assert_close(run_graph(after, values), run_graph(graph, values), rtol=0, atol=0)


def _split(operand: str) -> str:
    return f"""aten({operand}) {{args=(("tensor", 0), ("list", 2, 1), 0), binds=(), kwargs=(), \
reason="", results=((f32, (2), none), (f32, (1), none)), target="aten.split_with_sizes.default"}} \
: f32[2], f32[1]"""


def test_views_that_are_returned_are_not_views_of_an_argument_that_they_did_not_view() -> None:
    text = body(
        "%x: f32[3]",
        f"""%0 = reshape(%x) {{shape=(3, 1)}} : f32[3, 1]
        %1 = reshape(%0) {{shape=(3)}} : f32[3]
        %2, %3 = {_split("%1")}""",
        "%2, %3",
    )
    after = run_pipeline(parse_graph(text))
    copy, split = after.nodes
    assert copy.op == "layout" and copy.operands[0].name == "x"
    assert split.operands == (copy.result,)


def test_views_that_are_returned_keep_apart_from_another_result() -> None:
    text = body(
        "%x: f32[3]",
        f"""%0 = exp(%x) : f32[3]
        %1 = exp(%x) : f32[3]
        %2, %3 = {_split("%1")}""",
        "%0, %2, %3",
    )
    after = run_pipeline(parse_graph(text))
    assert [node.op for node in after.nodes] == ["exp", "layout", "aten"]
    computed, copy, split = after.nodes
    assert after.results == [computed.result, *split.results]
    assert split.operands == (copy.result,)


def test_views_of_an_argument_stay_views_of_it() -> None:
    text = body("%x: f32[3]", f"%0, %1 = {_split('%x')}", "%0, %1, %x")
    after = run_pipeline(parse_graph(text))
    assert [node.op for node in after.nodes] == ["aten"]


def test_what_aten_reads_keeps_its_strides() -> None:
    text = body(
        "%x: f32[3, 2]{8, 2}",
        """%0 = reshape(%x) {shape=(1, 3, 2)} : f32[1, 3, 2]
        %1 = reshape(%0) {shape=(3, 2)} : f32[3, 2]
        %2 = aten(%1) {args=(("tensor", 0), f64), binds=(), kwargs=(), reason="", \
results=((f64, (3, 1), none)), target="aten.view.dtype"} : f64[3, 1]""",
        "%2",
    )
    after = rewritten(MergeViews(), text)
    *_, layout, _ = parse_graph(after).nodes
    assert layout.op == "layout" and layout.attrs["strides"] == (2, 1)
