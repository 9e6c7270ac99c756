"""Which products become products of integers."""

from __future__ import annotations

import pytest

from kernelmill.core.dtype import F32, I32
from kernelmill.graph.text import parse_graph
from kernelmill.graph.verifier import verify_graph
from kernelmill.passes import run_pipeline

TEXT = """graph g(
  %a: u8[6, K],
  %w: i8[N, K] ROLE,
  %scales: f32[N] buffer,
  %zeros: i64[N] buffer
) {
  %0 = cast(%a) {dtype=f32} : f32[6, K]
  %1 = full() {dtype=f32, shape=(6, K), value=ZERO} : f32[6, K]
  %2 = sub(%0, %1) : f32[6, K]
  %3 = full() {dtype=f32, shape=(6, K), value=0.1} : f32[6, K]
  %4 = mul(%2, %3) : f32[6, K]
  %5 = cast(%w) {dtype=i64} : i64[N, K]
  %6 = reshape(%zeros) {shape=(N, 1)} : i64[N, 1]
  %7 = expand(%6) {shape=(N, K)} : i64[N, K]
  %8 = sub(%5, %7) : i64[N, K]
  %9 = cast(%8) {dtype=f32} : f32[N, K]
  %10 = reshape(%scales) {shape=(N, 1)} : f32[N, 1]
  %11 = expand(%10) {shape=(N, K)} : f32[N, K]
  %12 = mul(%9, %11) : f32[N, K]
  %13 = permute(%12) {dims=(1, 0)} : f32[K, N]
  %14 = matmul(%4, %13) : f32[6, N]
  return %14
}
"""


def product_type(**parts: object) -> object:
    text = TEXT
    for name, part in {"N": 32, "K": 64, "ROLE": "buffer", "ZERO": 128.0, **parts}.items():
        text = text.replace(name, str(part))
    graph = run_pipeline(parse_graph(text))
    verify_graph(graph)
    (node,) = (node for node in graph.nodes if node.op == "matmul")
    return node.result.dtype


def test_integers_are_multiplied() -> None:
    assert product_type() == I32
    assert product_type(ZERO=0.0) == I32


@pytest.mark.parametrize(
    "parts",
    [{"N": 8}, {"K": 1 << 15}, {"ROLE": ""}, {"ZERO": 0.5}, {"ZERO": 300.0}],
    ids=["few columns", "sums too large", "no weight", "zero is no integer", "zero is no byte"],
)
def test_products_that_stay(parts: dict[str, object]) -> None:
    assert product_type(**parts) == F32
