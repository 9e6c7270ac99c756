"""Plans with ATen steps between launches."""

import gc
import sys
from dataclasses import replace
from typing import Any

import pytest
import torch

from kernelmill.core.dim import Sym, of_atom
from kernelmill.core.dtype import BOOL, BY_NAME, F32, I64, DType
from kernelmill.core.errors import InputError, KernelmillError
from kernelmill.plan.ir import AtenCall, BufferSpec, DimResult, Plan, TensorInput, TensorResult
from kernelmill.runtime.program import Program, load
from tests.unit.runtime.kernels import (
    add,
    buffer,
    double,
    each_task,
    elementwise,
    launch,
    ref,
    tensor_input,
)

OBJECTS = {"add": add(), "double": double()}
C64 = BY_NAME["c64"]


def aten(target: str, *args: Any, results: tuple[int, ...], **kwargs: Any) -> AtenCall:
    return AtenCall(target, args, tuple(kwargs.items()), results, origin="model.py:7")


def t(number: int) -> tuple[str, int]:
    return ("tensor", number)


def topk_plan() -> Plan:
    """values, indices = topk(2 * x, 2); returns (values + values, indices)."""
    return Plan(
        "topk", (), (tensor_input("x", 6),),
        (
            buffer("input", 6, source=0), buffer("tensor", 6), buffer("tensor", 2),
            buffer("tensor", 2, dtype=I64), buffer("tensor", 2),
        ),
        (),
        (
            launch("double", (0, 1), 6),
            aten("aten.topk.default", t(1), 2, results=(2, 3)),
            launch("double", (2, 4), 2),
        ),
        (TensorResult(4), TensorResult(3)), (ref("double"),),
    )  # fmt: skip


def test_operators_between_launches() -> None:
    program = load(topk_plan(), OBJECTS)
    x = torch.randn(6)
    for _ in range(3):
        values, indices = program(x)
        wanted = (2 * x).topk(2)
        assert torch.equal(values, 2 * wanted.values) and torch.equal(indices, wanted.indices)
    report = program.report()
    assert report["launches"] == 2 and report["aten_calls"] == 1 and report["calls"] == 3


def test_dropped_results() -> None:
    plan = topk_plan()
    steps = (plan.steps[0], aten("aten.topk.default", t(1), 2, results=(2, -1)), plan.steps[2])
    program = load(replace(plan, steps=steps, results=(TensorResult(4),)), OBJECTS)
    x = torch.randn(6)
    assert torch.equal(program(x)[0], 2 * (2 * x).topk(2).values)


def unary_plan(step: AtenCall, entry: TensorInput, *buffers: BufferSpec) -> Plan:
    """Returns the last buffer; buffer 0 is the argument."""
    first = BufferSpec("input", entry.dtype, entry.shape, entry.strides, 0)
    return Plan(
        "unary", (), (entry,), (first, *buffers), (), (step,), (TensorResult(len(buffers)),), ()
    )


def test_arguments_of_every_kind() -> None:
    step = aten(
        "aten._to_copy.default", t(0), results=(1,), dtype=("dtype", "f64"),
        layout=("layout", "strided"), device=("device", "cpu"), non_blocking=False,
        memory_format=("memory_format", "contiguous_format"),
    )  # fmt: skip
    program = load(
        unary_plan(step, tensor_input("x", 3), BufferSpec("tensor", BY_NAME["f64"], (3,), (1,))), {}
    )
    x = torch.randn(3)
    (result,) = program(x)
    assert result.dtype == torch.float64 and torch.equal(result, x.double())


def test_lists_of_tensors_and_none() -> None:
    step = aten("aten.index.Tensor", t(0), ("list", None, t(1)), results=(2,))
    plan = Plan(
        "index", (), (tensor_input("x", 3, 4), tensor_input("i", 2, dtype=I64)),
        (buffer("input", 3, 4, source=0), buffer("input", 2, dtype=I64, source=1),
         buffer("tensor", 3, 2)), (), (step,), (TensorResult(2),), (),
    )  # fmt: skip
    x, i = torch.randn(3, 4), torch.tensor([3, 0])
    assert torch.equal(load(plan, {})(x, i)[0], x[:, i])


def test_list_results_are_flattened() -> None:
    step = aten("aten.split.Tensor", t(0), 2, results=(1, -1, 2))
    plan = unary_plan(step, tensor_input("x", 6), buffer("tensor", 2), buffer("tensor", 2))
    x = torch.randn(6)
    assert torch.equal(load(plan, {})(x)[0], x[4:])


def test_a_result_with_other_strides_is_brought_into_the_plans() -> None:
    step = aten("aten.t.default", t(0), results=(1,))
    plan = unary_plan(step, tensor_input("x", 2, 3), buffer("tensor", 3, 2), buffer("tensor", 3, 2))
    plan = replace(plan, steps=(step, launch("double", (1, 2), 6)), kernels=(ref("double"),))
    x = torch.randn(2, 3)
    (result,) = load(plan, OBJECTS)(x)
    assert torch.equal(result, 2 * x.t()) and result.stride() == (2, 1)


def test_a_result_of_another_shape_is_an_error_that_names_the_place() -> None:
    step = aten("aten.t.default", t(0), results=(1,))
    plan = unary_plan(step, tensor_input("x", 2, 3), buffer("tensor", 2, 3))
    message = (
        r"aten.t.default \(model.py:7\): expected torch.float32 \[2, 3\] for buffer 1, torch gave"
    )
    with pytest.raises(KernelmillError, match=message):
        load(plan, {})(torch.randn(2, 3))


def test_complex_values_pass_through_operators() -> None:
    """y = imag(conj(c)): a lazily conjugated tensor, whose imaginary part is lazily negated."""
    conj = BufferSpec("tensor", C64, (3,), (1,))
    steps = (
        aten("aten._conj.default", t(0), results=(1,)),
        aten("aten.imag.default", t(1), results=(2,)),
        launch("double", (2, 3), 3),
    )
    entry = tensor_input("c", 3, dtype=C64)
    plan = Plan(
        "imag", (), (entry,),
        (BufferSpec("input", C64, (3,), (1,), 0), conj, buffer("tensor", 3), buffer("tensor", 3)),
        (), steps, (TensorResult(1), TensorResult(3)), (ref("double"),),
    )  # fmt: skip
    c = torch.randn(3, dtype=torch.complex64)
    for argument in (c, c.conj()):
        conjugate, result = load(plan, OBJECTS)(argument)
        assert torch.equal(conjugate, argument.conj())
        assert torch.equal(result, 2 * argument.conj().imag)


def nonzero_plan() -> Plan:
    """i = nonzero(x); y = x[i] doubled; returns (y, count, i as found)."""
    symbol = Sym("u0", 0)
    u0 = of_atom(symbol)
    steps = (
        AtenCall("aten.nonzero.default", (t(0),), (), (1,), (("u0", 0, 0),)),
        AtenCall("aten.view.default", (t(1), ("list", ("dim", "u0"))), (), (2,)),
        AtenCall("aten.index.Tensor", (t(0), ("list", t(2))), (), (3,)),
        launch("double", (3, 4), u0, work=u0),
    )
    return Plan(
        "nonzero", (symbol,), (tensor_input("x", 8),),
        (
            buffer("input", 8, source=0), BufferSpec("tensor", I64, (u0, 1), (1, u0)),
            buffer("tensor", u0, dtype=I64), buffer("tensor", u0), buffer("tensor", u0),
        ),
        (), steps, (TensorResult(4), DimResult(u0 * 2), TensorResult(1)), (ref("double"),),
    )  # fmt: skip


def test_sizes_found_by_operators() -> None:
    program = load(nonzero_plan(), OBJECTS)
    for x in (torch.tensor([0.0, 1, 0, 2, 3, 0, 0, 4]), torch.zeros(8), torch.ones(8)):
        result, count, found = program(x)
        assert torch.equal(result, 2 * x[x != 0])
        assert count == 2 * int((x != 0).sum())
        assert torch.equal(found, x.nonzero())


SCRATCH = """
  %own = getelementptr i64, ptr %scratch, i64 %task
  store i64 %task, ptr %own
  %again = load volatile i64, ptr %own
  %out = getelementptr i64, ptr %b0, i64 %task
  store i64 %again, ptr %out
"""


def test_scratch_may_depend_on_what_operators_find() -> None:
    plan = nonzero_plan()
    (symbol,) = plan.symbols
    u0 = of_atom(symbol)
    steps = (plan.steps[0], launch("late_scratch", (2,), u0, scratch=u0 * 8))
    plan = replace(
        plan, inputs=(tensor_input("x", 5000),), buffers=(buffer("input", 5000, source=0),
        *plan.buffers[1:]), steps=steps, results=(TensorResult(2),), kernels=(ref("late_scratch"),),
    )  # fmt: skip
    program = load(plan, {"late_scratch": each_task("late_scratch", 1, SCRATCH)})
    for count in (1, 5000, 3):
        x = torch.zeros(5000)
        x[:count] = 1
        assert torch.equal(program(x)[0], torch.arange(count))


def test_a_symbol_from_the_value_of_a_result() -> None:
    symbol = Sym("u0", 0, 6)
    u0 = of_atom(symbol)
    steps = (
        AtenCall("aten.sum.default", (t(0),), (), (1,), (("u0", 0, -1),)),
        AtenCall("aten.arange.default", (("dim", "u0"),), (("dtype", ("dtype", "f32")),), (2,)),
    )
    plan = Plan(
        "count", (symbol,), (tensor_input("x", 4, dtype=I64),),
        (buffer("input", 4, dtype=I64, source=0), buffer("tensor", dtype=I64),
         buffer("tensor", u0)),
        (), steps, (TensorResult(2),), (),
    )  # fmt: skip
    program = load(plan, {})
    assert torch.equal(program(torch.tensor([1, 0, 2, 1]))[0], torch.arange(4.0))
    with pytest.raises(InputError, match=r"symbol u0 is 7, .*\[0, 6\]"):
        program(torch.tensor([7, 0, 0, 0]))


def test_a_symbol_from_an_integer_result() -> None:
    symbol = Sym("u0")
    steps = (AtenCall("aten._local_scalar_dense.default", (t(0),), (), (), (("u0", 0, -1),)),)
    plan = Plan(
        "item", (symbol,), (tensor_input("x", dtype=I64),), (buffer("input", dtype=I64, source=0),),
        (), steps, (DimResult(of_atom(symbol) + 1),), (),
    )  # fmt: skip
    assert load(plan, {})(torch.tensor(41)) == [42]


CHECK = """
  %p = getelementptr float, ptr %b0, i64 %task
  %x = load float, ptr %p
  %good = fcmp ogt float %x, 0.0
  br i1 %good, label %done, label %bad
bad:
  store i64 1, ptr %b1
"""


def test_a_status_stops_the_call_before_the_next_operator() -> None:
    plan = unary_plan(aten("aten.neg.default", t(0), results=(1,)), tensor_input("x", 4))
    plan = replace(
        plan,
        buffers=(*plan.buffers, buffer("tensor", 4)),
        steps=(launch("positive", (0, -1), 4), *plan.steps),
        results=(TensorResult(1),), kernels=(ref("positive"),), checks=("x is not positive",),
    )  # fmt: skip
    program = load(plan, {"positive": each_task("positive", 2, CHECK)})
    x = torch.rand(4) + 1
    assert torch.equal(program(x)[0], -x)
    with pytest.raises(IndexError, match="x is not positive"):
        program(-x)
    assert torch.equal(program(x)[0], -x)


def test_packed_buffers_reach_operators() -> None:
    plan = Plan(
        "packed", (), (tensor_input("x", 2, 2), tensor_input("w", 2, 2, role="param")),
        (buffer("input", 2, 2, source=0), buffer("input", 2, 2, source=1), buffer("packed", 2, 2),
         buffer("tensor", 2, 2)),
        (launch("double", (1, 2), 4),), (aten("aten.mm.default", t(0), t(2), results=(3,)),),
        (TensorResult(3),), (ref("double"),),
    )  # fmt: skip
    program = load(plan, OBJECTS)
    x, w = torch.randn(2, 2), torch.nn.Parameter(torch.randn(2, 2))
    for _ in range(2):
        assert torch.equal(program(x, w)[0], x @ (2 * w))
        with torch.no_grad():
            w.add_(1)
    with pytest.raises(InputError, match=r"'x' \(number 0\)"):
        program(None, w)


def test_neither_autograd_nor_autocast_touches_operators() -> None:
    plan = Plan(
        "mm", (), (tensor_input("x", 2, 2),), (buffer("input", 2, 2, source=0),
        buffer("tensor", 2, 2)), (), (aten("aten.mm.default", t(0), t(0), results=(1,)),),
        (TensorResult(1),), (),
    )  # fmt: skip
    x = torch.randn(2, 2, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (result,) = load(plan, {})(x)
    assert result.dtype == torch.float32 and not result.requires_grad
    assert torch.is_grad_enabled()


def test_random_numbers_are_those_of_eager() -> None:
    step = aten("aten.rand_like.default", t(0), results=(1,))
    program = load(unary_plan(step, tensor_input("x", 5), buffer("tensor", 5)), {})
    x = torch.zeros(5)
    torch.manual_seed(3)
    (result,) = program(x)
    torch.manual_seed(3)
    assert torch.equal(result, torch.rand_like(x))


def test_lazily_negated_and_strided_arguments_are_put_right() -> None:
    program = load(topk_plan(), OBJECTS)
    for x in (torch._neg_view(torch.randn(6)), torch.randn(12)[::2]):
        values, _ = program(x)
        assert torch.equal(values, 2 * (2 * x).topk(2).values)
    assert program.report()["copies"] == 2


def test_what_has_no_elements_needs_no_step() -> None:
    steps = (
        launch("double", (0, 1), 4),
        aten("aten.cat.default", ("list", t(1), t(2), t(3)), results=(4,)),
    )
    plan = Plan(
        "empty", (), (tensor_input("x", 4),),
        (buffer("input", 4, source=0), buffer("tensor", 4), buffer("tensor", 0),
         buffer("packed", 0), buffer("tensor", 4), buffer("tensor", 3, 0)), (), steps,
        (TensorResult(4), TensorResult(5), TensorResult(2)), (ref("double"),),
    )  # fmt: skip
    x = torch.randn(4)
    result, wide, narrow = load(plan, OBJECTS)(x)
    assert torch.equal(result, 2 * x) and wide.shape == (3, 0) and narrow.shape == (0,)


def test_an_undefined_result_is_nobodys() -> None:
    """The gradient of the bias is not asked for: torch leaves the result undefined."""
    step = AtenCall(
        "aten.native_layer_norm_backward.default",
        (t(0), t(0), ("list", 4), t(1), t(1), None, None, ("list", True, False, False)), (),
        (2, 3, 4),
    )  # fmt: skip
    nothing = BufferSpec("tensor", BOOL, (0,), (1,))
    plan = Plan(
        "norm", (), (tensor_input("x", 2, 4), tensor_input("m", 2, 1)),
        (buffer("input", 2, 4, source=0), buffer("input", 2, 1, source=1), buffer("tensor", 2, 4),
         nothing, nothing), (), (step,), (TensorResult(2),), (),
    )  # fmt: skip
    x, m = torch.randn(2, 4), torch.ones(2, 1)
    (result,) = load(plan, {})(x, m)
    wanted = torch.ops.aten.native_layer_norm_backward(
        x, x, [4], m, m, None, None, [True, False, False]
    )
    assert torch.equal(result, wanted[0])


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("os.system", "does not name an operator overload"),
        ("aten.add.Tensor; import os", "does not name an operator overload"),
        ("aten.no_such_thing.default", "has no operator aten.no_such_thing.default"),
        ("aten.add.no_such_overload", "has no operator"),
        ("aten.__class__.__name__", "has no operator"),
        ("aten.add.__class__", "has no operator"),
    ],
)
def test_only_operators_can_be_named(target: str, message: str) -> None:
    plan = unary_plan(aten(target, results=(1,)), tensor_input("x", 1), buffer("tensor", 1))
    with pytest.raises(KernelmillError, match=message):
        load(plan, {})


def test_missing_and_broken_objects_are_named() -> None:
    with pytest.raises(KernelmillError, match="no object for kernel double"):
        load(topk_plan(), {})
    with pytest.raises(KernelmillError, match="object of double: not a 64-bit"):
        load(topk_plan(), {"double": b"nonsense"})
    with pytest.raises(KernelmillError, match="object of double"):
        load(topk_plan(), {"double": double()[:-40]})
    with pytest.raises(KernelmillError, match="double does not link"):
        load(topk_plan(), {"double": add()})
    unknown = elementwise(
        "double", "call float @no_such(float %x0)", declarations="declare float @no_such(float)"
    )
    with pytest.raises(KernelmillError, match="needs 'no_such', which torch does not have"):
        load(topk_plan(), {"double": unknown})


def test_dtype_of_a_result_is_checked() -> None:
    wrong: DType = F32
    step = aten("aten.eq.Scalar", t(0), 0, results=(1,))
    plan = unary_plan(step, tensor_input("x", 2), BufferSpec("tensor", wrong, (2,), (1,)))
    with pytest.raises(KernelmillError, match=r"torch gave torch\.bool"):
        load(plan, {})(torch.zeros(2))


def chain(steps: int) -> Plan:
    """A running sum of a running sum, so many times."""
    numbers = range(steps)
    return Plan(
        "chain", (), (tensor_input("x", 4),),
        (buffer("input", 4, source=0), *(buffer("tensor", 4) for _ in numbers)), (),
        tuple(aten("aten.cumsum.default", t(i), 0, results=(i + 1,)) for i in numbers),
        (TensorResult(steps),), (),
    )  # fmt: skip


def calls_made(program: Program, *args: torch.Tensor) -> int:
    """How many functions, Python's and built-in ones, a call of the program calls. What a garbage
    collection calls is not counted."""
    calls = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    program(*args)
    gc.collect()
    gc.disable()
    sys.setprofile(note)
    try:
        program(*args)
    finally:
        sys.setprofile(None)
        gc.enable()
    return calls


def test_an_operator_costs_few_calls_more_than_itself() -> None:
    x = torch.randn(4)
    once, often = (calls_made(load(chain(steps), {}), x) for steps in (1, 11))
    assert once <= 35
    assert (often - once) / 10 <= 11


def test_constant_arguments_cost_nothing() -> None:
    ones, zeros = ("list", 1, 1), ("list", 0, 0)
    step = aten(
        "aten.convolution.default", t(0), t(1), None, ones, ones, ones, False, zeros, 1,
        results=(2,),
    )  # fmt: skip
    plan = Plan(
        "convolution", (), (tensor_input("x", 1, 2, 3, 3), tensor_input("w", 2, 2, 3, 3)),
        (buffer("input", 1, 2, 3, 3, source=0), buffer("input", 2, 2, 3, 3, source=1),
         buffer("tensor", 1, 2, 3, 3)), (), (step,), (TensorResult(2),), (),
    )  # fmt: skip
    x, w = torch.randn(1, 2, 3, 3), torch.randn(2, 2, 3, 3)
    program = load(plan, {})
    assert torch.equal(program(x, w)[0], torch.conv2d(x, w, padding=1))
    assert calls_made(program, x, w) <= calls_made(load(chain(1), {}), torch.randn(4)) + 2
