"""Plans over symbols: sizes bound from arguments, checked for consistency, worked out per size."""

import itertools
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest
import torch

from kernelmill.codegen import dims_function
from kernelmill.core.dim import Dim, Sym, evaluate, of_atom, product
from kernelmill.core.dtype import I64
from kernelmill.core.errors import InputError, VerificationError
from kernelmill.core.target.machine import host
from kernelmill.plan.ir import DimResult, Plan, SymbolInput, TensorResult
from kernelmill.plan.text import parse_plan, print_plan
from kernelmill.plan.verifier import verify_plan
from kernelmill.runtime.calls.engine import Engine
from kernelmill.runtime.memory.dims import dims_needed
from kernelmill.runtime.program import DIMS_OBJECT, Program, load
from tests.unit.runtime.kernels import (
    add,
    buffer,
    double,
    each_task,
    launch,
    ref,
    tensor_input,
)

S0, S1 = Sym("s0", 0), Sym("s1", 1, 64)
s0, s1 = of_atom(S0), of_atom(S1)


def dynamic_plan() -> Plan:
    """out[s0, s1] = 2 * a + b[s0 * s1], with the doubled a behind 64 bytes for each of s1."""
    n = s0 * s1
    return Plan(
        name="dynamic",
        symbols=(S0, S1),
        inputs=(SymbolInput("s0"), tensor_input("a", s0, s1), tensor_input("b", n)),
        buffers=(
            buffer("input", s0, s1, source=1),
            buffer("input", n, source=2),
            buffer("arena", s0, s1, offset=s1 * 64),
            buffer("tensor", s0, s1),
        ),
        prepare=(),
        steps=(launch("double", (0, 2), n, work=n), launch("add", (2, 1, 3), n, work=n * 1000)),
        results=(TensorResult(3), DimResult(n + 1)),
        kernels=(ref("add"), ref("double")),
        arena_bytes=s1 * 64 + n * 4,
    )


@pytest.fixture(params=["python", "native"])
def program(request: pytest.FixtureRequest) -> Program:
    plan, objects = dynamic_plan(), {"add": add(), "double": double()}
    if request.param == "native":
        needed = dims_needed(plan)
        objects[DIMS_OBJECT] = dims_function(DIMS_OBJECT, plan.symbols, needed, host().isa)
    return load(plan, objects)


def check(program: Program, rows: int, columns: int) -> None:
    a, b = torch.randn(rows, columns), torch.randn(rows * columns)
    result, count = program(rows, a, b)
    assert torch.equal(result, 2 * a + b.view(rows, columns))
    assert result.stride() == (columns, 1)
    assert count == rows * columns + 1


def test_one_program_serves_every_size(program: Program) -> None:
    for rows, columns in [(3, 5), (100, 64), (3, 5), (0, 7), (1, 1), (7, 3), (1000, 64)]:
        check(program, rows, columns)
    assert program.report()["copies"] == 0


@pytest.mark.parametrize("native", [False, True])
def test_layouts_that_differ_in_symbols_alone_are_told_apart(native: bool) -> None:
    symbols = [Sym(f"s{number}", 1) for number in range(4)]
    a, b, c, d = map(of_atom, symbols)
    shapes = [(a, 2), (b, 2), (3, 2), (a, b), (c, 2), (d, c), (b, a), (d, 2)]
    inputs = [tensor_input(f"x{number}", *shape) for number, shape in enumerate(shapes)]
    given = [buffer("input", *shape, source=number) for number, shape in enumerate(shapes)]
    made = [buffer("tensor", *shape) for shape in shapes]
    count = len(shapes)
    steps = [
        launch("double", (n, count + n), product(shape), work=product(shape))
        for n, shape in enumerate(shapes)
    ]
    results = tuple(TensorResult(count + n) for n in range(count))
    plan = Plan(
        "alike", tuple(symbols), tuple(inputs), (*given, *made), (), tuple(steps), results,
        (ref("double"),),
    )  # fmt: skip
    objects = {"double": double()}
    if native:
        needed = dims_needed(plan)
        objects[DIMS_OBJECT] = dims_function(DIMS_OBJECT, plan.symbols, needed, host().isa)
    program = load(plan, objects)
    for values in [(5, 5, 5, 5), (5, 6, 5, 6), (1, 2, 3, 4), (4, 3, 2, 1), (5, 6, 5, 6)]:
        named = {symbol.name: value for symbol, value in zip(symbols, values, strict=True)}
        sizes = [tuple(evaluate(dim, named) for dim in shape) for shape in shapes]
        tensors = [torch.randn(size) for size in sizes]
        for result, tensor in zip(program(*tensors), tensors, strict=True):
            assert isinstance(result, torch.Tensor)
            assert result.stride() == tensor.stride()
            assert torch.equal(result, 2 * tensor)


def test_sizes_that_contradict_each_other_are_refused(program: Program) -> None:
    check(program, 3, 5)
    with pytest.raises(InputError, match=r"'a' \(number 1\): expected shape \[4, 5\] from \[s0"):
        program(4, torch.randn(3, 5), torch.randn(15))
    with pytest.raises(InputError, match=r"'b' \(number 2\): expected shape \[15\] from"):
        program(3, torch.randn(3, 5), torch.randn(16))
    with pytest.raises(InputError, match=r"expected shape \[s0, s1\], got shape \[15\]"):
        program(3, torch.randn(15), torch.randn(15))
    with pytest.raises(InputError, match=r"expected a tensor, got NoneType"):
        program(3, None, torch.randn(15))
    check(program, 3, 5)


def test_a_size_outside_the_range_compiled_for_is_refused(program: Program) -> None:
    with pytest.raises(InputError, match=r"symbol s1 is 65, .* in \[1, 64\]"):
        program(2, torch.randn(2, 65), torch.randn(130))
    with pytest.raises(InputError, match=r"symbol s0 is -1, .* in \[0, inf\]"):
        program(-1, torch.randn(2, 6), torch.randn(12))
    with pytest.raises(InputError, match=r"symbol s0 is 1180591620717411303424"):
        program(2**70, torch.randn(2, 6), torch.randn(12))
    with pytest.raises(InputError, match=r"symbol s0 is 1180591620717411303424"):
        program(2**70, torch.randn(2, 6), torch.randn(12))


def test_a_symbol_must_be_an_integer(program: Program) -> None:
    with pytest.raises(InputError, match="number 0: expected an integer for s0, got Tensor"):
        program(torch.tensor(3), torch.randn(3, 5), torch.randn(15))
    with pytest.raises(InputError, match="number 0: expected an integer for s0, got str"):
        program("3", torch.randn(3, 5), torch.randn(15))


def test_dims_needed_are_distinct_and_symbolic() -> None:
    n = s0 * s1
    expected: set[Dim] = {s0, s1, n, s1 * 64, n * 1000, n + 1, s1 * 64 + n * 4}
    needed = dims_needed(dynamic_plan())
    assert set(needed) == expected and len(needed) == len(expected)


def test_threads_may_call_with_different_sizes(program: Program) -> None:
    def work(columns: int) -> None:
        for rows in range(1, 80):
            check(program, rows, columns)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, [1, 7, 33, 64]))


def test_many_sizes_are_forgotten_again(program: Program) -> None:
    for rows in range(600):
        check(program, rows, 2)
    assert len(program.engine.sizes) <= 256


DIMS = """
  %d0 = load i64, ptr %dims
  %d1.at = getelementptr i64, ptr %dims, i64 1
  %d1 = load i64, ptr %d1.at
  %sum = add i64 %d0, %d1
  %value = add i64 %sum, %task
  %out = getelementptr i64, ptr %b0, i64 %task
  store i64 %value, ptr %out
"""


def test_others_may_add_sizes_at_any_instruction(program: Program) -> None:
    engine = program.engine
    for rows in range(1, 257):
        engine.new_sizes((rows, 2))
    for instruction in range(1000):
        left = itertools.count(-instruction)
        added = False

        def trace(frame: FrameType, event: str, _: object, left: Any = left) -> Any:
            nonlocal added
            if frame.f_code is not Engine.new_sizes.__code__:
                return None
            frame.f_trace_opcodes = True
            if event == "opcode" and not next(left):
                added = True
                engine.sizes[(-1,)] = engine.sizes[[*engine.sizes][-1]]
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            engine.new_sizes((1000 + instruction, 2))
        finally:
            sys.settrace(before)
        if not added:
            assert instruction > 20
            return
        engine.sizes.pop((-1,), None)
        engine.new_sizes((3000 + instruction, 2))


def test_kernels_get_their_dims_and_scratch_grows() -> None:
    plan = Plan(
        "dims", (S0,), (SymbolInput("s0"),), (buffer("tensor", s0, dtype=I64),), (),
        (launch("dims_kernel", (0,), s0, s0 * 10, 1000, scratch=s0 * 64),),
        (TensorResult(0),), (ref("dims_kernel"),),
    )  # fmt: skip
    program = load(plan, {"dims_kernel": each_task("dims_kernel", 1, DIMS)})
    for size in (3, 50, 4):
        (result,) = program(size)
        assert torch.equal(result, torch.arange(size) + size * 10 + 1000)


@pytest.mark.parametrize("native", [False, True])
def test_parameters_are_packed_before_sizes_are_known(native: bool) -> None:
    rest = Sym("s0", 2)
    n = of_atom(rest)
    tasks = 4 + n // (n - 1) // 9
    plan = Plan(
        "packing", (rest,),
        (SymbolInput("s0"), tensor_input("x", n * 4), tensor_input("w", 4, role="param")),
        (buffer("input", n * 4, source=1), buffer("input", 4, source=2), buffer("packed", 4),
         buffer("tensor", 4)),
        (launch("double", (1, 2), 4, scratch=100),), (launch("add", (0, 2, 3), tasks),),
        (TensorResult(3),), (ref("add"), ref("double")),
    )  # fmt: skip
    objects = {"add": add(), "double": double()}
    if native:
        needed = dims_needed(plan)
        objects[DIMS_OBJECT] = dims_function(DIMS_OBJECT, plan.symbols, needed, host().isa)
    program = load(plan, objects)
    w = torch.nn.Parameter(torch.randn(4))
    for size in (2, 3):
        x = torch.randn(size * 4)
        assert torch.equal(program(size, x, w)[0], x[:4] + 2 * w.detach())
    assert program.report()["repacks"] == 1


@pytest.mark.parametrize("native", [True, False])
def test_a_divisor_that_is_zero_counts_as_one(native: bool) -> None:
    shares = DimResult((s0 + 7) // s0 * 4), DimResult((s0 + 7) % s0)
    plan = Plan("share", (S0,), (SymbolInput("s0"),), (), (), (), shares, ())
    needed = dims_needed(plan)
    objects = {DIMS_OBJECT: dims_function(DIMS_OBJECT, plan.symbols, needed, host().isa)}
    program = load(plan, objects if native else {})
    assert program(3) == [12, 1]
    assert program(0) == [32, 0]


def test_dims_that_the_plan_takes_for_equal_have_to_be() -> None:
    plan = replace(dynamic_plan(), equations=((s0 % 4, 0), (s1 * 2, s0)))
    assert parse_plan(print_plan(plan)) == plan
    program = load(plan, {"add": add(), "double": double()})
    check(program, 8, 4)
    with pytest.raises(InputError, match=r"s1\*2 is 6 and s0 is 8"):
        program(8, torch.zeros(8, 3), torch.zeros(24))
    with pytest.raises(InputError, match=r"\(s0 % 4\) is 2 and 0 is 0"):
        program(6, torch.zeros(6, 3), torch.zeros(18))
    with pytest.raises(VerificationError, match="an equation"):
        verify_plan(replace(plan, equations=((of_atom(Sym("s9")), s0),)))
