"""LLVM is promised nothing of memory that an output shares with an input, and all else is kept."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from kernelmill.codegen import llvm_ir
from kernelmill.core.target.isa import NAMED, Isa
from kernelmill.core.target.machine import profile
from kernelmill.graph.text import parse_graph
from kernelmill.kernel.interpreter import run_kernel
from kernelmill.kernel.ir import Kernel
from kernelmill.kernel.text import parse_kernel
from kernelmill.kernel.verifier import verify_kernel
from kernelmill.lower.driver.program import lower_graph
from tests.unit.codegen.native import TARGETS, Native

GRAPHS = sorted(Path("tests/golden/lower").glob("*.graph"))
ISAS = ("x86-64-v2", "x86-64-v3", "x86-64-v4", "x86-64-v4-amx", "aarch64-neon", "aarch64-v8.6")


def two_results(load: str = "", store: str = "", lanes: int = 8) -> Kernel:
    """Both may lie over x, which is needed after the first of them is written."""
    kernel = parse_kernel(
        f"""kernel two(x: f32[128] in, w: f32[{lanes}] in, y: f32[128] out over(x),
          z: f32[128] out over(x)) tasks(1) {{
          %n: i64 = index(<{lanes - 1}>)
          %m: boolx{lanes} = lane_mask(%n)
          for i = 0 to {128 // lanes} step 1 {{
            %w: f32x{lanes} = load w[0]
            %x: f32x{lanes} = load x[i*{lanes}]{load}
            %y: f32x{lanes} = sqrt(%w)
            store y[i*{lanes}], %y{store}
            %z: f32x{lanes} = mul(%x, %w)
            store z[i*{lanes}], %z{store}
          }}
        }}"""
    )
    verify_kernel(kernel)
    return kernel


GATES = """graph gates(
  %x: f32[2, 2, 32],
  %W: f32[4, 8, 8],
  %V: f32[4, 8, 8]
) {
  %0 = reshape(%x) {shape=(4, 4, 8)} : f32[4, 4, 8]
  %1 = permute(%0) {dims=(1, 0, 2)} : f32[4, 4, 8]
  %2 = matmul(%1, %W) : f32[4, 4, 8]
  %3 = permute(%2) {dims=(1, 0, 2)} : f32[4, 4, 8]
  %4 = reshape(%3) {shape=(2, 2, 32)} : f32[2, 2, 32]
  %5 = matmul(%1, %V) : f32[4, 4, 8]
  %6 = permute(%5) {dims=(1, 0, 2)} : f32[4, 4, 8]
  %7 = reshape(%6) {shape=(2, 2, 32)} : f32[2, 2, 32]
  %8 = mul(%4, %7) : f32[2, 2, 32]
  %9 = sin(%7) : f32[2, 2, 32]
  %10 = slice(%8) {dim=1, end=1, start=0, step=1} : f32[2, 1, 32]
  %11 = reshape(%10) {shape=(2, 32)} : f32[2, 32]
  %12 = slice(%9) {dim=1, end=2, start=1, step=1} : f32[2, 1, 32]
  %13 = reshape(%12) {shape=(2, 32)} : f32[2, 32]
  %14 = mul(%13, %11) : f32[2, 32]
  %15 = slice(%8) {dim=1, end=2, start=1, step=1} : f32[2, 1, 32]
  %16 = reshape(%15) {shape=(2, 32)} : f32[2, 32]
  %17 = add(%14, %16) : f32[2, 32]
  %18 = reshape(%17) {shape=(2, 1, 32)} : f32[2, 1, 32]
  %19 = concat(%10, %18) {dim=1} : f32[2, 2, 32]
  return %19
}"""
"""Of a recurrent model: products for each head, the second one's multiplied with the first, and
the first steps of a scan. Both results of the second may lie over the first."""

KERNELS = {
    "plain": two_results(),
    "masked": two_results(" mask %m", " mask %m"),
    "pairs": two_results(lanes=2),
    "many": two_results(" mask %m", " mask %m", 64),
}


def roots(name: str, definitions: dict[str, str]) -> set[str]:
    """The parameters that an address is found from."""
    if name not in definitions:
        return {name}
    sources = re.findall(r"ptr(?:>)? (%[\w.]+)", definitions.pop(name))
    return {root for source in sources for root in roots(source, definitions)}


def loads(text: str) -> dict[str, set[bool]]:
    """By the name of a parameter, whether loads from it are said to be of constant memory."""
    found: dict[str, set[bool]] = {}
    for function in re.findall(r"define internal void @\S+\.tasks.*?\n}", text, re.DOTALL):
        lines = re.findall(r"(%[\w.]+) = (.*)", function)
        definitions = dict(lines)
        for _, line in lines:
            if re.match(r"load |call .*@(llvm\.masked\.(load|gather)|masked_load)", line):
                address = re.findall(r"ptr(?:>)? (%[\w.]+)", line)[0]
                for root in roots(address, dict(definitions)):
                    found.setdefault(root, set()).add("!invariant.load" in line)
    return found


def shared(kernel: Kernel) -> set[str]:
    outputs = {buffer.name for buffer in kernel.buffers if buffer.over}
    return outputs.union(*(buffer.over for buffer in kernel.buffers))


def assert_promises(kernel: Kernel, isa: Isa) -> None:
    text = llvm_ir(kernel, isa)
    constant = loads(text)
    for head in re.findall(r"define internal void @\S+\.tasks.*\((.*)\)", text):
        parameters = head.split(", ")[: len(kernel.buffers)]
        for number, (buffer, told) in enumerate(zip(kernel.buffers, parameters, strict=True)):
            alone = buffer.name not in shared(kernel)
            assert ("noalias" in told) == alone, (buffer, told)
            assert ("readonly" in told) == (buffer.access == "in")
            marks = constant.get(f"%b{number}", set())
            assert True not in marks or (alone and buffer.access == "in"), (buffer, isa)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_loads_under_an_output_are_no_constants(kernel: Kernel, isa: str) -> None:
    assert_promises(kernel, NAMED[isa])
    assert False in loads(llvm_ir(kernel, NAMED[isa]))["%b0"]
    assert loads(llvm_ir(kernel, NAMED[isa]))["%b1"] == {True}


@pytest.mark.parametrize("path", GRAPHS, ids=lambda path: path.stem)
def test_of_lowered_graphs(path: Path) -> None:
    graph = parse_graph(path.read_text())
    for isa in ISAS:
        for kernel in lower_graph(graph, profile(isa)).kernels.values():
            assert_promises(kernel, NAMED[isa])


def test_of_two_gates_one_of_which_is_written_over_what_the_other_reads() -> None:
    for isa in ISAS:
        made = lower_graph(parse_graph(GATES), profile(isa))
        lying = [kernel for kernel in made.kernels.values() if shared(kernel)]
        assert [len(shared(kernel)) for kernel in lying] == [3]
        places = [buffer.offset for buffer in made.plan.buffers if buffer.kind == "arena"]
        assert len(set(places)) < len(places)
        assert_promises(lying[0], NAMED[isa])
        assert False in loads(llvm_ir(lying[0], NAMED[isa]))["%b2"]


@pytest.mark.parametrize("target", TARGETS.values(), ids=str)
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("over", ["y", "z"])
def test_what_is_read_is_what_was_there(kernel: Kernel, target: Isa, over: str) -> None:
    def memory() -> dict[str, np.ndarray]:
        values = np.random.default_rng(1).random((3, 128), np.float32)
        arrays = dict(zip("xyz", values, strict=True))
        return {**arrays, "w": values[0, : kernel.buffers[1].elements].copy()}

    apart, ours = memory(), memory()
    apart[over] = apart["x"].copy()  # for what masks leave as it was
    run_kernel(kernel, apart)
    Native(kernel, target)({**ours, over: ours["x"]})
    ours[over] = ours["x"]
    for name in "yz":
        np.testing.assert_array_equal(ours[name], apart[name])
