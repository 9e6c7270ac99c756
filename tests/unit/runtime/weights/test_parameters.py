"""Long-lived arguments: bound once, packed once, and noticed whenever they change."""

import gc
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from torch.nn import Parameter

from kernelmill.core.errors import InputError
from kernelmill.plan.ir import Plan, TensorResult
from kernelmill.runtime.program import Program, load
from tests.unit.runtime.kernels import add, buffer, double, launch, ref, tensor_input


def packing_plan() -> Plan:
    """x + 4 * weight + 2 * bias + scale: weight packed in two steps, of which calls read the
    second, bias in one, scale read."""
    return Plan(
        name="packing",
        symbols=(),
        inputs=(
            tensor_input("x", 4),
            tensor_input("weight", 4, role="param"),
            tensor_input("bias", 4, role="param"),
            tensor_input("scale", 4, role="buffer"),
        ),
        buffers=(
            *(buffer("input", 4, source=i) for i in range(4)),
            buffer("packed", 4),
            buffer("packed", 4),
            buffer("packed", 4),
            buffer("arena", 4, offset=0),
            buffer("arena", 4, offset=64),
            buffer("tensor", 4),
        ),
        prepare=(
            launch("double", (1, 4), 4),
            launch("double", (4, 5), 4),
            launch("double", (2, 6), 4),
        ),
        steps=(
            launch("add", (0, 5, 7), 4),
            launch("add", (7, 6, 8), 4),
            launch("add", (8, 3, 9), 4),
        ),
        results=(TensorResult(9),),
        kernels=(ref("add"), ref("double")),
        arena_bytes=128,
    )


Params = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@pytest.fixture
def program() -> Program:
    return load(packing_plan(), {"add": add(), "double": double()})


def params() -> Params:
    return Parameter(torch.randn(4)), Parameter(torch.randn(4)), torch.randn(4)


def check(program: Program, p: Params) -> None:
    x = torch.randn(4)
    (result,) = program(x, *p)
    weight, bias, scale = (t.detach() for t in p)
    assert torch.equal(result, x + 4 * weight + 2 * bias + scale)


def test_packed_once_for_many_calls(program: Program) -> None:
    p = params()
    for _ in range(5):
        check(program, p)
    report = program.report()
    assert report["repacks"] == 2 and report["packed_bytes"] == 2 * 16
    assert report["calls"] == 5


def in_place(t: torch.Tensor) -> None:
    with torch.no_grad():
        t.add_(1)


def in_inference_mode(t: torch.Tensor) -> None:
    with torch.inference_mode():
        t.add_(1)


def new_data(t: torch.Tensor) -> None:
    t.data = torch.randn(4)


def through_detach(t: torch.Tensor) -> None:
    t.detach().mul_(3)


def load_state(t: torch.Tensor) -> None:
    with torch.no_grad():
        t.copy_(torch.randn(4))


def same_data_reversed(t: torch.Tensor) -> None:
    """The same memory and version, other strides."""
    storage = torch.randn(8)
    t.data = storage[::2]
    version = t._version
    t.data = storage[:4]
    assert t._version == version


CHANGES = [in_place, in_inference_mode, new_data, through_detach, load_state, same_data_reversed]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_noticed_and_only_what_comes_from_it_is_packed_again(
    program: Program, change: Callable[[torch.Tensor], None]
) -> None:
    p = params()
    check(program, p)
    assert program.report()["repacks"] == 2
    change(p[0])
    check(program, p)
    assert program.report()["repacks"] == 3
    change(p[1])
    check(program, p)
    check(program, p)
    assert program.report()["repacks"] == 4
    change(p[2])
    check(program, p)
    assert program.report()["repacks"] == 4


def test_a_layout_that_changes_under_the_same_address_is_noticed(program: Program) -> None:
    p = params()
    storage = torch.randn(8)
    p[0].data = storage[:4]
    check(program, p)
    p[0].data = storage[::2]
    check(program, p)
    in_place(p[0])
    check(program, p)
    assert program.report()["copies"] == 2


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_lazy_negation_under_the_same_address_is_noticed(program: Program, number: int) -> None:
    """The same memory, strides and version: packed weights, and a buffer that kernels read."""
    p = params()
    numbers = torch.randn(4, dtype=torch.complex64)
    p[number].data = numbers.imag
    check(program, p)
    for other in (numbers.conj().imag, numbers.imag):
        before = p[number].data_ptr(), p[number]._version
        p[number].data = other
        assert (p[number].data_ptr(), p[number]._version) == before
        for _ in range(2):
            check(program, p)
        copies = program.report()["copies"]
        check(program, p)
        assert program.report()["copies"] == copies  # as it is, and known


def test_a_parameter_of_another_dtype_is_refused_after_the_fact_too(program: Program) -> None:
    p = params()
    check(program, p)
    p[0].data = p[0].data.double()
    with pytest.raises(
        InputError, match=r"'weight' \(number 1\): expected dtype f32, got dtype f64"
    ):
        program(torch.randn(4), *p)


def test_another_parameter_in_its_place(program: Program) -> None:
    p = params()
    check(program, p)
    other = (p[0], Parameter(torch.randn(4)), p[2])
    check(program, other)
    check(program, p)


def test_each_layer_keeps_its_own_packed_buffers(program: Program) -> None:
    layers = [params() for _ in range(6)]
    for _ in range(3):
        for layer in layers:
            check(program, layer)
    assert program.report()["repacks"] == 12
    assert program.report()["packed_bytes"] == 6 * 2 * 16
    del layers[2:], layer
    assert program.report()["packed_bytes"] == 2 * 2 * 16


def test_layers_that_share_the_weight_which_keys_them_keep_what_they_pack(
    program: Program,
) -> None:
    shared = Parameter(torch.randn(4))
    layers = [(shared, Parameter(torch.randn(4)), torch.randn(4)) for _ in range(4)]
    for _ in range(3):
        for layer in layers:
            check(program, layer)
    assert program.report()["repacks"] == 1 + 4
    assert program.report()["packed_bytes"] == (1 + 4) * 16
    in_place(layers[1][1])
    in_place(shared)
    for _ in range(2):
        for layer in layers:
            check(program, layer)
    assert program.report()["repacks"] == 1 + 4 + 2
    del layers[1:], layer
    assert program.report()["packed_bytes"] == (1 + 1) * 16
    for _ in range(2):
        check(program, layers[0])
    assert program.report()["repacks"] == 1 + 4 + 2
    layers.clear()
    del shared
    assert program.report()["packed_bytes"] == 0


def test_parameters_are_not_kept_alive(program: Program) -> None:
    p = params()
    check(program, p)
    gone = [weakref.ref(t) for t in p]
    del p
    assert all(reference() is None for reference in gone)
    assert program.report()["packed_bytes"] == 0
    gc.collect()
    check(program, params())


def test_inference_tensors_are_packed_once_and_when_they_change(program: Program) -> None:
    with torch.inference_mode():
        weight = torch.randn(4)
    p = (weight, Parameter(torch.randn(4)), torch.randn(4))
    for _ in range(3):
        check(program, p)
    assert program.report()["repacks"] == 2
    with torch.inference_mode():
        weight.add_(1)
    for _ in range(3):
        check(program, p)
    assert program.report()["repacks"] == 2 + 1


def test_programs_share_what_they_pack_alike(program: Program) -> None:
    other = load(packing_plan(), {"add": add(), "double": double()})
    p = params()
    check(program, p)
    check(other, p)
    assert (program.report()["repacks"], other.report()["repacks"]) == (2, 0)
    in_place(p[0])
    check(other, p)
    check(program, p)
    assert (program.report()["repacks"], other.report()["repacks"]) == (2, 1)


def test_programs_that_read_other_parts_of_the_same_packing(program: Program) -> None:
    """The other one reads what both packing launches of the weight write."""
    plan = packing_plan()
    plan = replace(plan, steps=(*plan.steps, launch("add", (9, 4, 9), 4)))
    other = load(plan, {"add": add(), "double": double()})
    p = params()
    for _ in range(3):
        check(program, p)
        x = torch.randn(4)
        (result,) = other(x, *p)
        weight, bias, scale = (t.detach() for t in p)
        assert torch.equal(result, x + 4 * weight + 2 * bias + scale + 2 * weight)
        in_place(p[0])
    assert program.report()["packed_bytes"] == 2 * 16
    assert other.report()["packed_bytes"] == 3 * 16


def test_swapped_parameters(program: Program) -> None:
    a, b = params(), params()
    check(program, a)
    torch.utils.swap_tensors(a[0], b[0])
    check(program, a)
    check(program, a)
    assert program.report()["repacks"] == 3
    check(program, b)
    torch.utils.swap_tensors(a[0], b[0])
    check(program, a)
    check(program, b)


def test_an_object_and_its_tensor_impl_may_have_the_places_of_dead_ones(program: Program) -> None:
    storage = torch.randn(4)
    rest = params()[1:]
    for mode in (torch.no_grad, torch.inference_mode, torch.no_grad):
        for _ in range(20):
            with mode():
                weight = torch.empty(0).set_(storage)  # the memory lives on, the object does not
            check(program, (weight, *rest))
            del weight
    assert program.report()["packed_bytes"] <= 2 * 16


def test_a_parameter_may_be_updated() -> None:
    plan = Plan(
        "count", (), (tensor_input("x", 4), tensor_input("state", 4, role="buffer", updated=True)),
        (buffer("input", 4, source=0), buffer("input", 4, source=1), buffer("packed", 4),
         buffer("tensor", 4)), (launch("double", (1, 2), 4),),
        (launch("add", (0, 2, 3), 4), launch("add", (0, 1, 1), 4)), (TensorResult(3),),
        (ref("add"), ref("double")),
    )  # fmt: skip
    program = load(plan, {"add": add(), "double": double()})
    x, state = torch.ones(4), torch.zeros(4)
    version = state._version
    for step in range(3):
        (result,) = program(x, state)
        assert torch.equal(result, torch.full((4,), 1.0 + 2 * step))
        assert torch.equal(state, torch.full((4,), 1.0 + step))
    assert state._version > version + 2
    with pytest.raises(InputError, match=r"'state' \(number 1\): expected a tensor, got int 3"):
        program(x, 3)


def test_calls_in_flight_keep_what_they_began_with(program: Program) -> None:
    p = params()
    with torch.no_grad():
        for t in p:
            t.fill_(1)
    stop = threading.Event()
    zero = torch.zeros(4)

    def call() -> bool:
        seen: set[float] = set()
        while not stop.is_set():
            (result,) = program(zero, *p)
            seen.update(result.tolist())
        # 4 * weight + 2 + 1 for whole weights 1, 2, ...: nothing in between.
        return all((value - 3) % 4 == 0 for value in seen)

    with ThreadPoolExecutor(3) as pool:
        running = [pool.submit(call) for _ in range(3)]
        for _ in range(200):
            p[0].data = p[0].data + 1
        stop.set()
        assert all(future.result() for future in running)
