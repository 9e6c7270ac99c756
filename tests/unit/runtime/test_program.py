"""Static plans: results, arena, scratch, status word, sharing between threads."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch

from kernelmill.core.dtype import F32, I64
from kernelmill.plan.ir import DimResult, Plan, TensorResult
from kernelmill.runtime.program import load
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


def add_plan(n: int = 8, work: int = 100) -> Plan:
    return Plan(
        name="add",
        symbols=(),
        inputs=(tensor_input("a", n), tensor_input("b", n)),
        buffers=(buffer("input", n, source=0), buffer("input", n, source=1), buffer("tensor", n)),
        prepare=(),
        steps=(launch("add", (0, 1, 2), n, work=work),),
        results=(TensorResult(2),),
        kernels=(ref("add"),),
    )


def chain_plan(n: int, length: int) -> Plan:
    """x doubled `length` times through two arena buffers."""
    buffers = [buffer("input", n, source=0), buffer("tensor", n)]
    buffers += [buffer("arena", n, offset=i * 1024) for i in range(2)]
    places = [0, *(2 + i % 2 for i in range(length - 1)), 1]
    steps = [launch("double", (places[i], places[i + 1]), n) for i in range(length)]
    return Plan(
        "chain", (), (tensor_input("x", n),), tuple(buffers), (), tuple(steps),
        (TensorResult(1),), (ref("double"),), 2048,
    )  # fmt: skip


def test_a_kernel_runs_on_tensors() -> None:
    program = load(add_plan(), {"add": add()})
    a, b = torch.randn(8), torch.randn(8)
    (result,) = program(a, b)
    assert torch.equal(result, a + b)
    assert result.shape == (8,) and result.stride() == (1,)


def test_launches_again_on_the_memory_of_the_last_call() -> None:
    """The kernel counts its runs in its result."""
    plan = replace(add_plan(), steps=(launch("add", (2, 1, 2), 8, work=100),))
    program = load(plan, {"add": add()})
    one = torch.ones(8)
    (result,) = program(one, one)
    result.zero_()
    program.launch_again(5)
    assert torch.equal(result, torch.full((8,), 5.0))


def test_every_call_gets_its_own_result() -> None:
    program = load(add_plan(), {"add": add()})
    a = torch.randn(8)
    (first,), (second,) = program(a, a), program(a, -a)
    assert torch.equal(first, a + a) and torch.equal(second, torch.zeros(8))


def test_values_pass_through_the_arena() -> None:
    program = load(chain_plan(16, 7), {"double": double()})
    x = torch.randn(16)
    (result,) = program(x)
    assert torch.equal(result, x * 2**7)
    report = program.report()
    assert report["launches"] == 7 and report["arena_bytes"] == 2048 and report["calls"] == 1


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_split_over_threads_changes_nothing(threads: int) -> None:
    program = load(add_plan(1001, work=10**6), {"add": add()})
    a, b = torch.randn(1001), torch.randn(1001)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        (result,) = program(a, b)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(result, a + b)


SCRATCH = """
  store i64 %task, ptr %scratch
  %misplaced.bits = ptrtoint ptr %scratch to i64
  %misplaced = and i64 %misplaced.bits, 63
  %again = load volatile i64, ptr %scratch
  %value = add i64 %again, %misplaced
  %out = getelementptr i64, ptr %b0, i64 %task
  store i64 %value, ptr %out
"""


def test_each_thread_has_aligned_scratch() -> None:
    plan = Plan(
        "scratch", (), (), (buffer("tensor", 4000, dtype=I64),), (),
        (launch("scratch", (0,), 4000, scratch=8, work=10**6),), (TensorResult(0),),
        (ref("scratch"),),
    )  # fmt: skip
    (result,) = load(plan, {"scratch": each_task("scratch", 1, SCRATCH)})()
    assert torch.equal(result, torch.arange(4000))


CHECK = """
  %p = getelementptr i64, ptr %b0, i64 %task
  %index = load i64, ptr %p
  %good = icmp ult i64 %index, 10
  br i1 %good, label %done, label %bad
bad:
  store i64 2, ptr %b1
"""


def test_a_status_becomes_an_index_error() -> None:
    plan = Plan(
        "check", (), (tensor_input("index", 4, dtype=I64),),
        (buffer("input", 4, dtype=I64, source=0),), (), (launch("check", (0, -1), 4),), (),
        (ref("check"),), checks=("other", "index out of range for a dim of size 10"),
    )  # fmt: skip
    program = load(plan, {"check": each_task("check", 2, CHECK)})
    assert program(torch.tensor([0, 1, 2, 9])) == []
    with pytest.raises(IndexError, match="size 10"):
        program(torch.tensor([0, 1, 2, 10]))
    assert program(torch.tensor([0, 1, 2, 9])) == []


def test_empty_and_0d_tensors() -> None:
    a = torch.empty(0)
    (result,) = load(add_plan(0), {"add": add()})(a, a)
    assert result.shape == (0,)
    plan = Plan(
        "scalar", (), (tensor_input("x"),), (buffer("input", source=0), buffer("tensor")), (),
        (launch("double", (0, 1), 1),), (TensorResult(1),), (ref("double"),),
    )  # fmt: skip
    (result,) = load(plan, {"double": double()})(torch.tensor(3.0))
    assert result.shape == () and result.item() == 6.0


def test_results_may_be_arguments_integers_and_none() -> None:
    plan = Plan(
        "results", (), (tensor_input("x", 4),), (buffer("input", 4, source=0), buffer("tensor", 4)),
        (), (launch("double", (0, 1), 4),),
        (None, TensorResult(0), DimResult(7), TensorResult(1), TensorResult(1)), (ref("double"),),
    )  # fmt: skip
    x = torch.ones(4)
    none, same, seven, doubled, again = load(plan, {"double": double()})(x)
    assert none is None and same is x and seven == 7 and doubled is again
    assert torch.equal(doubled, x * 2)


def test_updated_arguments_are_written_and_their_version_counts() -> None:
    plan = Plan(
        "update", (), (tensor_input("x", 4), tensor_input("state", 4, updated=True)),
        (buffer("input", 4, source=0), buffer("input", 4, source=1)), (),
        (launch("add", (0, 1, 1), 4),), (), (ref("add"),),
    )  # fmt: skip
    x, state = torch.ones(4), torch.zeros(4)
    program = load(plan, {"add": add()})
    version = state._version
    program(x, state)
    program(x, state)
    assert torch.equal(state, torch.full((4,), 2.0))
    assert state._version == version + 2


def test_calls_from_many_threads_at_once_are_right() -> None:
    program = load(chain_plan(16, 5), {"double": double()})
    barrier = threading.Barrier(4)

    def work(seed: int) -> int:
        x = torch.full((16,), float(seed))
        barrier.wait()
        return sum(bool((program(x)[0] == x * 32).all()) for _ in range(500))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [500] * 4
    assert program.report()["calls"] == 2000


def test_libm_and_sleef_are_found() -> None:
    kernel = elementwise(
        "uses_libm", "call float @expf(float %x0)", declarations="declare float @expf(float)"
    )
    plan = Plan(
        "m", (), (tensor_input("x", 4),), (buffer("input", 4, source=0), buffer("tensor", 4)), (),
        (launch("uses_libm", (0, 1), 4),), (TensorResult(1),), (ref("uses_libm"),),
    )  # fmt: skip
    x = torch.randn(4)
    (result,) = load(plan, {"uses_libm": kernel})(x)
    torch.testing.assert_close(result, x.exp())
    from kernelmill.torch_internals.libraries import address_of

    assert address_of("Sleef_expf8_u10") and address_of("no_such_function") is None


def test_a_program_is_freed_with_its_memory() -> None:
    import gc
    import weakref

    program = load(add_plan(), {"add": add()})
    program(torch.ones(8), torch.ones(8))
    gone = weakref.ref(program.engine)
    gc.disable()
    try:
        del program
        assert gone() is None
    finally:
        gc.enable()


def test_dtype_names_are_dlpacks() -> None:
    from kernelmill.core.dtype import COMPUTABLE, to_torch

    for dtype in COMPUTABLE:
        plan = Plan(
            "dtype", (), (tensor_input("x", 4, dtype=dtype),), (), (), (), (), (),
        )  # fmt: skip
        assert load(plan, {})(torch.zeros(4, dtype=to_torch(dtype))) == []
    assert F32 in COMPUTABLE
