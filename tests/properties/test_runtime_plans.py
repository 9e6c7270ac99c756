"""Random plans of small kernels over one arena compute what torch computes step by step."""

from dataclasses import dataclass

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelmill.core.dim import Dim, Sym, evaluate, of_atom
from kernelmill.plan.arena import ArenaBuffer, assign
from kernelmill.plan.ir import BufferSpec, Launch, Plan, SymbolInput, TensorResult
from kernelmill.plan.text import parse_plan, print_plan
from kernelmill.runtime.program import load
from tests.unit.runtime.kernels import add, buffer, double, launch, ref, tensor_input

OBJECTS = {"add": add(), "double": double()}
SYMBOL = Sym("s0", 1)
SIZES: list[Dim] = [1, 7, 300, of_atom(SYMBOL), of_atom(SYMBOL) * 3 + 1]


@dataclass(frozen=True)
class Step:
    """What is made from which earlier values (numbers; the first are the arguments)."""

    kernel: str
    operands: tuple[int, ...]
    size: Dim
    work: int


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[Dim], list[Step], list[int]]:
    """Sizes of the arguments, steps, and which values are results."""
    sizes = draw(st.lists(st.sampled_from(SIZES), min_size=1, max_size=3))
    inputs = list(sizes)
    steps: list[Step] = []
    for _ in range(draw(st.integers(1, 12))):
        first = draw(st.integers(0, len(sizes) - 1))
        second = draw(st.sampled_from([i for i, s in enumerate(sizes) if s == sizes[first]]))
        binary = draw(st.booleans())
        operands = (first, second) if binary else (first,)
        work = draw(st.sampled_from([10, 100_000]))
        steps.append(Step("add" if binary else "double", operands, sizes[first], work))
        sizes.append(sizes[first])
    made = range(len(inputs), len(sizes))
    return inputs, steps, draw(st.lists(st.sampled_from(made), min_size=1, max_size=4))


def plan_of(inputs: list[Dim], steps: list[Step], results: list[int]) -> Plan:
    """Buffer n holds value n; argument 0 is the symbol."""
    count = len(inputs)
    last_use = {n: i for i, step in enumerate(steps) for n in (*step.operands, count + i)}
    inner = [i for i in range(len(steps)) if count + i not in results]
    arena = assign([ArenaBuffer(steps[i].size * 4, i, last_use[count + i]) for i in inner])
    offsets = dict(zip(inner, arena.offsets, strict=True))
    buffers: list[BufferSpec] = [buffer("input", n, source=i + 1) for i, n in enumerate(inputs)]
    launches: list[Launch] = []
    for i, step in enumerate(steps):
        inside = i in offsets
        kind, offset = ("arena", offsets[i]) if inside else ("tensor", 0)
        buffers.append(buffer(kind, step.size, offset=offset))
        operands = (*step.operands, count + i)
        launches.append(launch(step.kernel, operands, step.size, work=step.work))
    return Plan(
        "random", (SYMBOL,),
        (SymbolInput("s0"), *(tensor_input(f"x{i}", n) for i, n in enumerate(inputs))),
        tuple(buffers), (), tuple(launches), tuple(TensorResult(n) for n in results),
        (ref("add"), ref("double")), arena.bytes,
    )  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(programs(), st.lists(st.integers(1, 50), min_size=1, max_size=3))
def test_random_plans(program: tuple[list[Dim], list[Step], list[int]], sizes: list[int]) -> None:
    inputs, steps, results = program
    plan = plan_of(inputs, steps, results)
    assert parse_plan(print_plan(plan)) == plan
    loaded = load(plan, OBJECTS)
    for s0 in sizes:
        values = [torch.randint(-9, 9, (evaluate(n, {"s0": s0}),)).float() for n in inputs]
        got = loaded(s0, *values)
        for step in steps:
            operands = [values[n] for n in step.operands]
            values.append(operands[0] + operands[-1])
        for number, result in zip(results, got, strict=True):
            assert torch.equal(result, values[number])
