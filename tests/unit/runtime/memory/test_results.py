"""Memory of large results: used again when, and only when, nobody has it any more."""

import threading
import weakref

import numpy as np
import pytest
import torch

from kernelmill.core.dtype import F32
from kernelmill.plan.ir import Plan, TensorResult
from kernelmill.runtime.memory import allocation as module
from kernelmill.runtime.memory.allocation import LARGE_BYTES, ResultMemory, result_tensor
from kernelmill.runtime.program import load
from kernelmill.runtime.weights.write_watch import WriteWatch
from tests.compiled import graph, lowered, program
from tests.unit.runtime.kernels import add, buffer, double, launch, ref, tensor_input

COUNT = 1024
KIND = ((COUNT,), (1,), torch.float32, COUNT)


@pytest.fixture
def memory():
    assert module.memory is not None
    return ResultMemory(module.memory._alias)


def make(memory):
    return memory.tensor(*KIND)


def test_what_was_dropped_is_used_again(memory):
    address = make(memory).data_ptr()
    assert make(memory).data_ptr() == address
    assert memory.kept_bytes == 4 * COUNT


USERS = {
    "the tensor": lambda t: t,
    "a view": lambda t: t[3:].view(-1, 1),
    "an array": lambda t: t.numpy(),
    "an array over a view": lambda t: t[1:].numpy()[2:],
    "dlpack": lambda t: np.from_dlpack(t),
    "the storage": lambda t: t.untyped_storage(),
    "a saved variable": lambda t: torch.ones(COUNT, requires_grad=True) * t,
    "another name": lambda t: t.detach(),
}


@pytest.mark.parametrize("use", USERS.values(), ids=USERS)
def test_what_somebody_has_is_left_alone(memory, use):
    kept = use(make(memory))
    first = make(memory)
    address = first.data_ptr()
    assert memory.kept_bytes == 8 * COUNT
    del kept
    assert make(memory).data_ptr() != address


def test_a_tensor_of_its_own_each_time(memory):
    first = make(memory)
    first.tag = "mine"
    first.add_(1)
    address = first.data_ptr()
    del first
    second = make(memory)
    assert second.data_ptr() == address
    assert second._version == 0 and not hasattr(second, "tag")
    assert second._base is None and second.is_leaf and second.untyped_storage().nbytes() == 4096


def test_memory_that_moved_is_let_go(memory):
    shared = make(memory)
    shared.share_memory_()
    address = shared.data_ptr()
    del shared
    assert make(memory).data_ptr() != address
    resized = make(memory)
    resized.untyped_storage().resize_(0)
    del resized
    assert make(memory).fill_(3).sum() == 3 * COUNT


def test_memory_that_shrank_is_let_go_wherever_it_is(memory):
    """Memory that is freed and asked for again is often in the same place."""
    count = 1 << 20
    large = ((count,), (1,), torch.float32, count)
    for _ in range(8):
        shrunk = memory.tensor(*large)
        shrunk.untyped_storage().resize_(0)
        shrunk.untyped_storage().resize_(2 * count)
        del shrunk
        assert memory.tensor(*large).untyped_storage().nbytes() == 4 * count


def test_memory_whose_end_somebody_waits_for_is_let_go(memory):
    told = []
    tensor = make(memory)
    bound = weakref.ref(tensor.untyped_storage(), told.append)
    make(memory)
    del tensor
    assert told == [] and memory.kept_bytes == 8 * COUNT
    kept = [make(memory), make(memory)]
    assert told == [bound] and len(kept) == 2


@pytest.mark.parametrize("way", ["another weight", "other data"])
def test_weights_in_the_memory_of_results_are_told_apart(monkeypatch, way):
    """Where pages are not watched, and the two differ where no piece is compared."""
    monkeypatch.setattr(WriteWatch, "allowed", property(lambda self: False))
    size = LARGE_BYTES // 4
    make = program(lowered(graph(lambda b, x: b.emit("neg", x), (F32, (size,)))))
    plan = Plan(
        "use",
        (),
        (tensor_input("x", size), tensor_input("weight", size, role="param")),
        (*(buffer("input", size, source=n) for n in range(2)), buffer("packed", size),
         buffer("tensor", size)),
        (launch("double", (1, 2), size),),
        (launch("add", (0, 2, 3), size),),
        (TensorResult(3),),
        (ref("add"), ref("double")),
    )  # fmt: skip
    use = load(plan, {"add": add(), "double": double()})
    numbers, zero = torch.randn(size), torch.zeros(size)
    weight = torch.nn.Parameter(zero, requires_grad=False)
    for value in range(20):
        numbers[100] = value
        weight.data = torch.empty(0)
        (made,) = make(numbers)
        if way == "other data":
            weight.data = made
        else:
            weight = torch.nn.Parameter(made, requires_grad=False)
        del made
        (result,) = use(zero, weight)
        assert torch.equal(result, -2 * numbers)
        del result


@pytest.mark.parametrize("modes", [(True, False), (False, True)])
def test_inference_mode_leaves_no_trace(memory, modes):
    for mode in modes:
        with torch.inference_mode(mode):
            tensor = make(memory)
            assert tensor.is_inference() == mode
        if not mode:
            tensor.requires_grad_()
        del tensor
    assert memory.kept_bytes == 4 * COUNT


def test_no_more_is_kept_than_the_limit(memory):
    memory._limit = 3 * 4 * COUNT
    alive = [make(memory) for _ in range(5)]
    assert memory.kept_bytes == 3 * 4 * COUNT
    assert len({tensor.data_ptr() for tensor in alive}) == 5
    too_large = memory.tensor((4 * COUNT,), (1,), torch.float32, 4 * COUNT)
    assert too_large.shape == (4 * COUNT,) and memory.kept_bytes == 3 * 4 * COUNT


def test_threads_never_share_a_piece(memory):
    wrong, count = [], 400

    def work(number):
        for _ in range(count):
            tensor = make(memory).fill_(number)
            if tensor.ne(number).any():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_small_and_empty_results_take_fresh_memory():
    kept = module.memory.kept_bytes
    for shape in ((LARGE_BYTES // 4 - 1,), (0, LARGE_BYTES)):
        strides = torch.empty(shape, device="meta").stride()
        assert result_tensor(shape, strides, torch.float32).shape == shape
    assert module.memory.kept_bytes == kept


def test_layouts_with_gaps_and_permuted_ones():
    shape, strides = (512, 3, 512), (512, 512 * 512, 1)
    tensor = result_tensor(shape, strides, torch.float32)
    assert (tensor.shape, tensor.stride()) == (shape, strides)
    wide = result_tensor((512, 500), (1024, 1), torch.float64)
    assert wide.untyped_storage().nbytes() == (511 * 1024 + 500) * 8


def test_a_program_keeps_the_results_that_a_caller_keeps():
    size = LARGE_BYTES // 4
    call = program(lowered(graph(lambda b, x: b.emit("neg", x), (F32, (size,)))))
    kept = [call(torch.full((size,), float(n)))[0] for n in range(4)]
    assert [result[-1].item() for result in kept] == [0.0, -1.0, -2.0, -3.0]
    address = kept.pop().data_ptr()
    assert call(torch.ones(size))[0].data_ptr() == address
