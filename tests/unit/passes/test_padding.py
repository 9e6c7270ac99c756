"""Each rule by which padding is accepted or refused, on a graph of a few nodes."""

from __future__ import annotations

import pytest
import torch

from kernelmill.core.dim import evaluate
from kernelmill.core.dtype import to_torch
from kernelmill.core.errors import PaddingError
from kernelmill.graph.ir import DimInput, Graph, Input, OpKind
from kernelmill.graph.ops import OPS
from kernelmill.graph.text import parse_graph
from kernelmill.graph.verifier import verify_graph
from kernelmill.passes.padding.analysis import padding_of
from kernelmill.passes.padding.rules import RULES
from kernelmill.plan.ir import Padding
from tests.padded import blind_padding, padded_difference

BOTH = frozenset(("s0", "s1"))
HEAD = "graph g(s0: dim, s1: dim, {inputs}) symbols(s0 in [2, inf], s1 in [2, 12]) {{\n"
X = "%x: f32[s0, s1, 4]"


def graph_of(inputs: str, body: str) -> Graph:
    graph = parse_graph(HEAD.format(inputs=inputs) + body.strip() + "\n}\n")
    verify_graph(graph)
    return graph


def differs(graph: Graph, padding: Padding) -> str | None:
    """What differs for some of a few sizes and gears."""
    for seed, (true, larger) in enumerate((((2, 3), (4, 8)), ((3, 2), (3, 5)), ((2, 5), (6, 5)))):
        sizes = dict(zip(("s0", "s1"), true, strict=True))
        gear = dict(zip(("s0", "s1"), larger, strict=True))
        values = [_argument(entry, sizes, seed) for entry in graph.inputs]
        wrong = padded_difference(graph, padding, values, sizes, gear)
        if wrong is not None:
            return wrong
    return None


def _argument(entry: Input | DimInput, sizes: dict[str, int], seed: int) -> torch.Tensor | int:
    """A size, or a tensor: normal floats; zeros and ones as integers, which are also indices."""
    if isinstance(entry, DimInput):
        return sizes[entry.symbol.name]
    generator = torch.Generator().manual_seed(seed)
    shape = [evaluate(size, sizes) for size in entry.value.shape]
    dtype = to_torch(entry.value.dtype)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator, dtype=dtype)
    return torch.randint(0, 2, shape, generator=generator).to(dtype)


ACCEPTED = {
    "pointwise": (X, """
        %0 = exp(%x) : f32[s0, s1, 4]
        return %0"""),
    "a view over batch and length and back": (f"{X}, %w: f32[4, 6]", """
        %0 = reshape(%x) {shape=(<s0*s1>, 4)} : f32[s0*s1, 4]
        %1 = matmul(%0, %w) : f32[s0*s1, 6]
        %2 = reshape(%1) {shape=(<s0>, <s1>, 6)} : f32[s0, s1, 6]
        return %2"""),
    "a view that is returned": (X, """
        %0 = neg(%x) : f32[s0, s1, 4]
        %1 = reshape(%0) {shape=(<s0*s1*4>)} : f32[s0*s1*4]
        return %1"""),
    "heads split and permuted": (X, """
        %0 = reshape(%x) {shape=(<s0>, <s1>, 2, 2)} : f32[s0, s1, 2, 2]
        %1 = permute(%0) {dims=(0, 2, 1, 3)} : f32[s0, 2, s1, 2]
        %2 = reshape(%1) {shape=(<s0*2>, <s1>, 2)} : f32[s0*2, s1, 2]
        return %2"""),
    "a reduction over a whole dim": (X, """
        %0 = reduce_sum(%x) {dims=(2)} : f32[s0, s1]
        return %0"""),
    "a sum over zeros": (X, """
        %0 = reduce_sum(%x) {dims=(0, 1)} : f32[4]
        return %0"""),
    "a sum of what is zero where x is": (X, """
        %0 = mul(%x, %x) : f32[s0, s1, 4]
        %1 = reduce_sum(%0) {dims=(1)} : f32[s0, 4]
        return %1"""),
    "a sum behind a multiplication by zeros": (f"{X}, %m: f32[s0, s1, 4]", """
        %0 = full() {dtype=f32, shape=(<s0>, <s1>, 4), value=1.0} : f32[s0, s1, 4]
        %1 = add(%x, %0) : f32[s0, s1, 4]
        %2 = mul(%1, %m) : f32[s0, s1, 4]
        %3 = reduce_sum(%2) {dims=(1)} : f32[s0, 4]
        return %3"""),
    "a maximum over what a mask has made -inf": (f"{X}, %m: bool[s0, s1, 4]", """
        %0 = full() {dtype=f32, shape=(<s0>, <s1>, 4), value=-inf} : f32[s0, s1, 4]
        %1 = where(%m, %x, %0) : f32[s0, s1, 4]
        %2 = reduce_max(%1) {dims=(1)} : f32[s0, 4]
        %3 = argmax(%1) {dim=1} : i64[s0, 4]
        return %2, %3"""),
    "a scan along a padded dim": (X, """
        %0 = cumsum(%x) {dim=1} : f32[s0, s1, 4]
        return %0"""),
    "the first element": (X, """
        %0 = slice(%x) {dim=1, end=1, start=0, step=1} : f32[s0, 1, 4]
        return %0"""),
    "all but the last, all but the first": (X, """
        %0 = slice(%x) {dim=1, end=<s1-1>, start=0, step=1} : f32[s0, s1-1, 4]
        %1 = slice(%x) {dim=1, end=<s1>, start=1, step=1} : f32[s0, s1-1, 4]
        return %0, %1"""),
    "a table cut to the length": (f"{X}, %t: f32[12, 4]", """
        %0 = slice(%t) {dim=0, end=<s1>, start=0, step=1} : f32[s1, 4]
        %1 = expand(%0) {shape=(<s0>, <s1>, 4)} : f32[s0, s1, 4]
        %2 = add(%x, %1) : f32[s0, s1, 4]
        return %2"""),
    "something in front of a padded dim": (f"{X}, %t: f32[s0, 2, 4]", """
        %0 = concat(%t, %x) {dim=1} : f32[s0, s1+2, 4]
        %1 = pad(%0) {high=(0, 0, 1), low=(0, 2, 0), value=3.0} : f32[s0, s1+4, 5]
        return %1"""),
    "zeros behind zeros": (X, """
        %0 = pad(%x) {high=(0, 3, 0), low=(0, 0, 0), value=0.0} : f32[s0, s1+3, 4]
        return %0"""),
    "causal windows": (X, """
        %0 = window(%x) {dilation=(1), dims=(1), high=(0), low=(2), size=(3), stride=(1),
            value=0.0} : f32[s0, s1, 4, 3]
        %1 = reduce_max(%0) {dims=(3)} : f32[s0, s1, 4]
        return %1"""),
    "a convolution of zeros": ("%x: f32[s0, 3, s1], %w: f32[5, 3, 3]", """
        %0 = conv(%x, %w) {dilation=(1), groups=1, padding=(1), stride=(1)} : f32[s0, 5, s1]
        return %0"""),
    "an embedding": ("%i: i64[s0, s1], %t: f32[7, 4]", """
        %0 = index(%t, %i) {at=0, dims=(0), unsigned=true} : f32[s0, s1, 4]
        return %0"""),
    "positions looked up": (f"{X}, %t: f32[12, 4]", """
        %0 = iota() {dim=0, shape=(<s1>)} : i64[s1]
        %1 = index(%t, %0) {at=0, dims=(0)} : f32[s1, 4]
        %2 = expand(%1) {shape=(<s0>, <s1>, 4)} : f32[s0, s1, 4]
        %3 = add(%x, %2) : f32[s0, s1, 4]
        return %3"""),
    "causal attention": ("%x: f32[s0, 2, s1, 4]", """
        %0 = attention(%x, %x, %x) {causal=true, scale=0.5} : f32[s0, 2, s1, 4]
        return %0"""),
    "attention behind a causal mask of indices": ("%x: f32[s0, 2, s1, 4]", """
        %0 = iota() {dim=0, shape=(<s1>, <s1>)} : i64[s1, s1]
        %1 = iota() {dim=1, shape=(<s1>, <s1>)} : i64[s1, s1]
        %2 = le(%1, %0) : bool[s1, s1]
        %3 = attention(%x, %x, %x, %2) {causal=false, scale=0.5} : f32[s0, 2, s1, 4]
        return %3"""),
    "attention behind a mask that is zero": ("%x: f32[s0, 2, s1, 4], %m: i64[s0, s1]", """
        %0 = cast(%m) {dtype=bool} : bool[s0, s1]
        %1 = reshape(%0) {shape=(<s0>, 1, 1, <s1>)} : bool[s0, 1, 1, s1]
        %2 = full() {dtype=f32, shape=(<s0>, 1, 1, <s1>), value=0.0} : f32[s0, 1, 1, s1]
        %3 = full() {dtype=f32, shape=(<s0>, 1, 1, <s1>), value=-inf} : f32[s0, 1, 1, s1]
        %4 = where(%1, %2, %3) : f32[s0, 1, 1, s1]
        %5 = attention(%x, %x, %x, %4) {causal=false, scale=0.5} : f32[s0, 2, s1, 4]
        return %5"""),
    "scatter within rows": ("%x: f32[s0, 4], %i: i64[s0, 2], %y: f32[s0, 2]", """
        %0 = scatter(%x, %i, %y) {dim=1, mode="add"} : f32[s0, 4]
        return %0"""),
    "scatter into the first of many": ("%x: f32[s0, 10, 4], %i: i64[s0, 5, 2]", """
        %0 = full() {dtype=f32, shape=(<s0>, 5, 2), value=1.0} : f32[s0, 5, 2]
        %1 = scatter(%x, %i, %0) {dim=2, mode="add"} : f32[s0, 10, 4]
        %2 = reshape(%1) {shape=(<s0>, 40)} : f32[s0, 40]
        return %2"""),
    "a size that is returned": (X, """
        %0 = neg(%x) : f32[s0, s1, 4]
        return %0, <s0*s1>"""),
    "an unread node that would be refused": (X, """
        %0 = flip(%x) {dims=(1)} : f32[s0, s1, 4]
        %1 = neg(%x) : f32[s0, s1, 4]
        return %1"""),
    "a norm with a guard against zero": (X, """
        %0 = mul(%x, %x) : f32[s0, s1, 4]
        %1 = reduce_sum(%0) {dims=(2)} : f32[s0, s1]
        %2 = full() {dtype=f32, shape=(<s0>, <s1>), value=1e-05} : f32[s0, s1]
        %3 = add(%1, %2) : f32[s0, s1]
        %4 = rsqrt(%3) : f32[s0, s1]
        %5 = reshape(%4) {shape=(<s0>, 1, <s1>, 1)} : f32[s0, 1, s1, 1]
        %6 = attention(%5, %5, %5) {causal=true, scale=0.5} : f32[s0, 1, s1, 1]
        return %6"""),
}  # fmt: skip
"""Name: (inputs, body). Right with both sizes padded."""


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted_and_equal(name: str) -> None:
    graph = graph_of(*ACCEPTED[name])
    padding = padding_of(graph, BOTH, frozenset())
    assert padding.inputs and (padding.results or name == "a sum over zeros")
    assert differs(graph, padding) is None


# Zeros where exactly one of two dims is padded, and ones where both are: on the diagonal.
CORNER = """
        %0 = iota() {dim=0, shape=(<s1>, <s1>)} : i64[s1, s1]
        %1 = iota() {dim=1, shape=(<s1>, <s1>)} : i64[s1, s1]
        %2 = ne(%0, %1) : bool[s1, s1]
        %3 = full() {dtype=f32, shape=(<s1>, <s1>), value=0.0} : f32[s1, s1]
        %4 = exp(%x) : f32[s1, s1]
        %5 = where(%2, %3, %4) : f32[s1, s1]"""

REFUSED = {
    "a sum over ones": (X, """
        %0 = exp(%x) : f32[s0, s1, 4]
        %1 = reduce_sum(%0) {dims=(1)} : f32[s0, 4] at "model.py:7 in forward"
        return %1""", "reduce_sum (model.py:7 in forward) adds up the elements of a padded dim"),
    "a maximum": (X, """
        %0 = reduce_max(%x) {dims=(1)} : f32[s0, 4]
        return %0""", "compares the elements of a padded dim of size s1"),
    "a size as a divisor": (X, """
        %0 = reduce_sum(%x) {dims=(1)} : f32[s0, 4]
        %1 = dim_value() {value=<s1>} : i64[]
        %2 = cast(%1) {dtype=f32} : f32[]
        %3 = expand(%2) {shape=(<s0>, 4)} : f32[s0, 4]
        %4 = div(%0, %3) : f32[s0, 4]
        return %4""", "dim_value computes with the size s1"),
    "the last element": (X, """
        %0 = slice(%x) {dim=1, end=<s1>, start=<s1-1>, step=1} : f32[s0, 1, 4]
        return %0""", "counted from the end"),
    "a flip": (X, """
        %0 = flip(%x) {dims=(1)} : f32[s0, s1, 4]
        return %0""", "turns a padded dim round"),
    "something behind a padded dim": (f"{X}, %t: f32[s0, 2, 4]", """
        %0 = concat(%x, %t) {dim=1} : f32[s0, s1+2, 4]
        return %0""", "joins something behind a padded dim"),
    "ones behind zeros": (X, """
        %0 = pad(%x) {high=(0, 3, 0), low=(0, 0, 0), value=1.0} : f32[s0, s1+3, 4]
        return %0""", "pads the end of a dim that is padded itself"),
    "centred windows": (X, """
        %0 = exp(%x) : f32[s0, s1, 4]
        %1 = window(%0) {dilation=(1), dims=(1), high=(1), low=(1), size=(3), stride=(1),
            value=0.0} : f32[s0, s1, 4, 3]
        %2 = reduce_sum(%1) {dims=(3)} : f32[s0, s1, 4]
        return %2""", "windows that reach over the end"),
    "a convolution of ones": ("%x: f32[s0, 3, s1], %w: f32[5, 3, 3]", """
        %0 = exp(%x) : f32[s0, 3, s1]
        %1 = conv(%0, %w) {dilation=(1), groups=1, padding=(1), stride=(1)} : f32[s0, 5, s1]
        return %1""", "windows that reach over the end"),
    "products over the length": (f"{X}, %y: f32[s0, s1, 3]", """
        %0 = exp(%x) : f32[s0, s1, 4]
        %1 = exp(%y) : f32[s0, s1, 3]
        %2 = permute(%0) {dims=(0, 2, 1)} : f32[s0, 4, s1]
        %3 = matmul(%2, %1) : f32[s0, 4, 3]
        return %3""", "adds up products over a padded dim"),
    "attention that sees everything": ("%x: f32[s0, 2, s1, 4]", """
        %0 = attention(%x, %x, %x) {causal=false, scale=0.5} : f32[s0, 2, s1, 4]
        return %0""", "that no mask hides"),
    "causal attention to NaN": ("%x: f32[s0, 2, s1, 4]", """
        %0 = div(%x, %x) : f32[s0, 2, s1, 4]
        %1 = attention(%x, %x, %0) {causal=true, scale=0.5} : f32[s0, 2, s1, 4]
        return %1""", "may hold infinities or NaN"),
    "a mask the wrong way round": ("%x: f32[s0, 2, s1, 4]", """
        %0 = iota() {dim=0, shape=(<s1>, <s1>)} : i64[s1, s1]
        %1 = iota() {dim=1, shape=(<s1>, <s1>)} : i64[s1, s1]
        %2 = ge(%1, %0) : bool[s1, s1]
        %3 = attention(%x, %x, %x, %2) {causal=false, scale=0.5} : f32[s0, 2, s1, 4]
        return %3""", "that no mask hides"),
    "rows of another length": (X, """
        %0 = neg(%x) : f32[s0, s1, 4]
        %1 = reshape(%0) {shape=(<s1>, <s0>, 4)} : f32[s1, s0, 4]
        return %1""", "reshape"),
    "a flat argument taken apart": ("%x: f32[s0*s1], %y: f32[s0, s1]", """
        %0 = reshape(%x) {shape=(<s0>, <s1>)} : f32[s0, s1]
        %1 = add(%0, %y) : f32[s0, s1]
        return %1""", "takes apart a dim of size s0*s1"),
    "indices from the end": ("%x: f32[s1, 4], %y: f32[s0], %i: i64[3]", """
        %0 = neg(%i) : i64[3]
        %1 = index(%x, %0) {at=0, dims=(0)} : f32[3, 4]
        return %1""", "may count indices from the end"),
    "writing into a padded dim": ("%x: f32[s0, s1], %i: i64[s0, 2], %y: f32[s0, 2]", """
        %0 = neg(%i) : i64[s0, 2]
        %1 = scatter(%x, %0, %y) {dim=1, mode="set"} : f32[s0, s1]
        return %1""", "writes into or from a padded dim"),
    "zeros behind a padded corner": ("%x: f32[s1, s1]", CORNER + """
        %6 = pad(%5) {high=(1, 1), low=(0, 0), value=0.0} : f32[s1+1, s1+1]
        return %6""", "pads the end of a dim that is padded itself"),
    "windows over a padded corner": ("%x: f32[s1, s1]", CORNER + """
        %6 = window(%5) {dilation=(1, 1), dims=(0, 1), high=(1, 1), low=(1, 1), size=(3, 3),
            stride=(1, 1), value=0.0} : f32[s1, s1, 3, 3]
        %7 = reduce_sum(%6) {dims=(2, 3)} : f32[s1, s1]
        return %7""", "windows that reach over the end"),
    "a convolution over a padded corner": ("%x: f32[s1, s1], %w: f32[1, 1, 3, 3]", CORNER + """
        %6 = reshape(%5) {shape=(1, 1, <s1>, <s1>)} : f32[1, 1, s1, s1]
        %7 = conv(%6, %w) {dilation=(1, 1), groups=1, padding=(1, 1), stride=(1, 1)}
            : f32[1, 1, s1, s1]
        return %7""", "windows that reach over the end"),
}  # fmt: skip
"""Name: (inputs, body, part of the reason). Truly wrong with both sizes padded."""


@pytest.mark.parametrize("name", REFUSED)
def test_refused_and_different(name: str) -> None:
    inputs, body, reason = REFUSED[name]
    graph = graph_of(inputs, body)
    with pytest.raises(PaddingError) as caught:
        padding_of(graph, BOTH, frozenset())
    assert reason in str(caught.value)
    assert differs(graph, blind_padding(graph, BOTH)) is not None


UNPROVEN = {
    "an ATen operator": (X, """
        %0 = aten(%x) {args=(("tensor", 0)), binds=(), kwargs=(), reason="",
            results=((f32, (<s0>, <s1>, 4), none)),
            target="aten.sin.default"} : f32[s0, s1, 4]
        return %0""", "(aten.sin.default) sees a padded dim"),
    "computed indices": ("%i: i64[s0], %t: f32[7, 4]", """
        %0 = full() {dtype=i64, shape=(<s0>), value=9} : i64[s0]
        %1 = sub(%0, %i) : i64[s0]
        %2 = index(%t, %1) {at=0, dims=(0), unsigned=true} : f32[s0, 4]
        return %2""", "may be out of range in the padding"),
    "an expanded argument": ("%x: f32[s0, s1]{0, 1}", """
        %0 = neg(%x) : f32[s0, s1]
        return %0""", "is expanded"),
    "a weight of a padded size": ("%x: f32[s0, s1] param", """
        %0 = neg(%x) : f32[s0, s1]
        return %0""", "the model's own tensor x"),
    "an argument that is a result": (X, "return %x", "is a result itself"),
    "an argument that is written to": (X, """
        %0 = neg(%x) : f32[s0, s1, 4]
        return update(%x <- %0)""", "is written to"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNPROVEN)
def test_refused_for_want_of_a_proof(name: str) -> None:
    inputs, body, reason = UNPROVEN[name]
    with pytest.raises(PaddingError) as caught:
        padding_of(graph_of(inputs, body), BOTH, frozenset())
    assert reason in str(caught.value)


SOFTMAX = """
        %0 = full() {dtype=f32, shape=(<s0>, <s1>, 4), value=-1e30} : f32[s0, s1, 4]
        %1 = where(%m, %x, %0) : f32[s0, s1, 4]
        %2 = reduce_max(%1) {dims=(1)} : f32[s0, 4]
        %3 = reshape(%2) {shape=(<s0>, 1, 4)} : f32[s0, 1, 4]
        %4 = expand(%3) {shape=(<s0>, <s1>, 4)} : f32[s0, s1, 4]
        %5 = sub(%1, %4) : f32[s0, s1, 4]
        %6 = exp(%5) : f32[s0, s1, 4]
        %7 = reduce_sum(%6) {dims=(1)} : f32[s0, 4]
        return %7
"""


def test_a_named_mask_is_taken_at_its_word() -> None:
    graph = graph_of(f"{X}, %m: bool[s0, s1, 4]", SOFTMAX)
    with pytest.raises(PaddingError, match="or name the argument that masks padding"):
        padding_of(graph, BOTH, frozenset())
    padding_of(graph, BOTH, frozenset(("m",)))


def test_a_named_mask_must_have_gone_into_the_value() -> None:
    body = """
        %0 = exp(%x) : f32[s0, s1, 4]
        %1 = reduce_sum(%0) {dims=(1)} : f32[s0, 4]
        %2 = logical_not(%m) : bool[s0, s1, 4]
        return %1, %2"""
    graph = graph_of(f"{X}, %m: bool[s0, s1, 4]", body)
    with pytest.raises(PaddingError, match="adds up the elements"):
        padding_of(graph, BOTH, frozenset(("m",)))


def test_a_large_negative_mask_hides_padding_by_the_users_word() -> None:
    body = """
        %0 = iota() {dim=0, shape=(<s1>, <s1>)} : i64[s1, s1]
        %1 = iota() {dim=1, shape=(<s1>, <s1>)} : i64[s1, s1]
        %2 = le(%1, %0) : bool[s1, s1]
        %3 = full() {dtype=f32, shape=(<s1>, <s1>), value=0.0} : f32[s1, s1]
        %4 = full() {dtype=f32, shape=(<s1>, <s1>), value=-3e38} : f32[s1, s1]
        %5 = where(%2, %3, %4) : f32[s1, s1]
        %6 = attention(%x, %x, %x, %5) {causal=false, scale=0.5} : f32[s0, 2, s1, 4]
        %7 = logical_not(%m) : bool[s0]
        return %6, %7"""
    graph = graph_of("%x: f32[s0, 2, s1, 4], %m: bool[s0]", body)
    with pytest.raises(PaddingError, match="no mask hides"):
        padding_of(graph, BOTH, frozenset())
    assert differs(graph, padding_of(graph, BOTH, frozenset(("m",)))) is None


def test_a_mask_must_be_an_argument() -> None:
    graph = graph_of(X, "%0 = neg(%x) : f32[s0, s1, 4]\nreturn %0")
    with pytest.raises(PaddingError, match=r"no argument is called mask: .* one of x"):
        padding_of(graph, BOTH, frozenset(("mask",)))


def test_only_what_depends_on_the_symbols_is_padded() -> None:
    inputs = f"{X}, %y: f32[s1]"
    graph = graph_of(inputs, "%0 = neg(%x) : f32[s0, s1, 4]\n%1 = neg(%y) : f32[s1]\nreturn %0, %1")
    padding = padding_of(graph, frozenset(("s0",)), frozenset())
    assert [entry.number for entry in padding.inputs] == [2]
    assert [entry.number for entry in padding.results] == [0]
    assert padding.sizes == ((0, "s0"),)
    assert padding.ranges == (("s0", 2, None),)


def test_every_operator_has_a_rule() -> None:
    without = {
        name for name, op in OPS.items() if op.kind is not OpKind.POINTWISE and name not in RULES
    }
    assert without == {"aten"}
