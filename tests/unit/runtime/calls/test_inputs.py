"""Arguments that are not what the program was compiled for: put right, or refused by name."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.two_tensor import TwoTensor

from kernelmill.core.dtype import BY_NAME, F32, I64
from kernelmill.core.errors import InputError
from kernelmill.plan.ir import Plan, TensorInput, TensorResult
from kernelmill.runtime.calls.engine import realigned
from kernelmill.runtime.program import Program, load
from tests.unit.runtime.kernels import add, buffer, double, launch, ref, tensor_input


@pytest.fixture
def program() -> Program:
    """out = a + b, both float32 [2, 3], written as a flat sum."""
    plan = Plan(
        "add", (), (tensor_input("a", 2, 3), tensor_input("encoder.b", 2, 3)),
        (buffer("input", 2, 3, source=0), buffer("input", 2, 3, source=1), buffer("tensor", 2, 3)),
        (), (launch("add", (0, 1, 2), 6),), (TensorResult(2),), (ref("add"),),
    )  # fmt: skip
    return load(plan, {"add": add()})


@pytest.fixture
def updating() -> Program:
    """state += x, both float32 [4]."""
    plan = Plan(
        "update", (), (tensor_input("x", 4), tensor_input("state", 4, updated=True)),
        (buffer("input", 4, source=0), buffer("input", 4, source=1)), (),
        (launch("add", (0, 1, 1), 4),), (), (ref("add"),),
    )  # fmt: skip
    return load(plan, {"add": add()})


class Harmless(torch.Tensor):
    """Changes what Python sees, not what is in memory."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError("the program is no operator of torch")


def freed() -> torch.Tensor:
    tensor = torch.zeros(2, 3)
    tensor.untyped_storage().resize_(0)
    return tensor


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "not a tensor": (lambda: 3.5, "expected a tensor, got float 3.5"),
    "none": (lambda: None, "expected a tensor, got NoneType"),
    "dtype": (lambda: torch.zeros(2, 3, dtype=torch.float64), "expected dtype f32, got dtype f64"),
    "complex": (lambda: torch.zeros(2, 3, dtype=torch.complex64), "got dtype c64"),
    "rank": (lambda: torch.zeros(6), "expected shape [2, 3], got shape [6]"),
    "size": (lambda: torch.zeros(2, 4), "expected shape [2, 3], got shape [2, 4]"),
    "empty": (lambda: torch.zeros(0, 3), "got shape [0, 3]"),
    "sparse": (lambda: torch.zeros(2, 3).to_sparse(), "expected a dense tensor, got layout"),
    "meta": (lambda: torch.zeros(2, 3, device="meta"), "expected a tensor on the CPU, got one on"),
    "mkldnn": (lambda: torch.zeros(2, 3).to_mkldnn(), "expected a dense tensor, got layout"),
    "nested": (
        lambda: torch.nested.nested_tensor([torch.zeros(3)] * 2),
        "expected a dense tensor, got a",
    ),
    "functional": (
        lambda: torch._to_functional_tensor(torch.zeros(2, 3)),
        "expected a tensor with memory",
    ),
    "without memory": (lambda: torch._efficientzerotensor(2, 3), "expected a tensor with memory"),
    "freed": (freed, "expected a tensor with memory"),
    "subclass": (
        lambda: TwoTensor(torch.zeros(2, 3), torch.zeros(2, 3)),
        "got its subclass TwoTensor",
    ),
    "quantised": (
        lambda: torch.quantize_per_tensor(torch.zeros(2, 3), 0.1, 0, torch.qint8),
        "expected dtype f32, got dtype torch.qint8",
    ),
}


@pytest.mark.filterwarnings("ignore:.*quantize_per_tensor", "ignore:.*nested tensors")
@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_argument_is_named(program: Program, case: str) -> None:
    make, message = REFUSED[case]
    good = torch.ones(2, 3)
    with pytest.raises(InputError) as caught:
        program(good, make())
    assert str(caught.value).startswith("argument 'encoder.b' (number 1): ")
    assert message in str(caught.value)
    (result,) = program(good, good)
    assert torch.equal(result, good * 2)


def test_under_vmap_a_tensor_has_no_memory(program: Program) -> None:
    good = torch.ones(2, 3)
    with pytest.raises(InputError, match="expected a tensor with memory"):
        torch.vmap(lambda x: program(x, good)[0])(torch.ones(4, 2, 3))


def test_modes_and_default_devices_do_not_matter(program: Program) -> None:
    a = torch.randn(2, 3)
    with torch.device("meta"):
        (result,) = program(a, a)
    assert torch.equal(result, a * 2)
    with FakeTensorMode(allow_non_fake_inputs=True):
        (again,) = program(a, a)
    assert type(again) is torch.Tensor and torch.equal(again, a * 2)


def test_default_devices_do_not_matter_for_copies_of_whole_storages() -> None:
    tensor = torch.randn(3)
    negated = torch._neg_view(tensor)
    with torch.device("meta"):
        found = realigned((negated,), (0,), by_memory=True)
    assert found is not None and torch.equal(found.arguments[0], -tensor)


def test_a_wrong_number_of_arguments(program: Program) -> None:
    with pytest.raises(InputError, match="takes 2 arguments, got 1"):
        program(torch.ones(2, 3))


PUT_RIGHT: dict[str, Callable[[], torch.Tensor]] = {
    "transposed": lambda: torch.randn(3, 2).t(),
    "sliced": lambda: torch.randn(2, 6)[:, ::2],
    "expanded": lambda: torch.randn(1, 3).expand(2, 3),
    "lazily negated": lambda: torch._neg_view(torch.randn(2, 3)),
    "lazily negated, from complex": lambda: torch.randn(2, 3, dtype=torch.complex64).conj().imag,
}


@pytest.mark.parametrize("case", PUT_RIGHT)
def test_other_strides_are_copied(program: Program, case: str) -> None:
    a, b = torch.randn(2, 3), PUT_RIGHT[case]()
    (result,) = program(a, b)
    assert torch.equal(result, a + b)
    assert program.report()["copies"] == 1


def test_misaligned_data_is_copied(program: Program) -> None:
    raw = bytearray(25)
    whole = torch.frombuffer(raw, dtype=torch.uint8)
    # Where a bytearray starts is aligned; one byte further is not.
    b = torch.frombuffer(raw, dtype=torch.uint8, offset=1, count=24)
    assert b.data_ptr() == whole.data_ptr() + 1
    source = torch.randn(2, 3)
    b.copy_(source.view(torch.uint8).reshape(-1))
    crooked = _as_floats(b)
    assert crooked.data_ptr() % 4
    (result,) = program(source, crooked)
    assert torch.equal(result, source * 2)
    assert program.report()["copies"] == 1


def _as_floats(crooked: torch.Tensor) -> torch.Tensor:
    """A float32 [2, 3] at an address that no float should have."""
    import numpy

    view = numpy.frombuffer(crooked.numpy().data, dtype=numpy.float32).reshape(2, 3)
    return torch.from_numpy(view)


def test_a_harmless_subclass_is_taken_as_its_memory(updating: Program) -> None:
    state = torch.zeros(4)
    updating(torch.ones(4).as_subclass(Harmless), state.as_subclass(Harmless))
    assert torch.equal(state, torch.ones(4))


FITS: dict[str, Callable[[], torch.Tensor]] = {
    "parameter": lambda: torch.nn.Parameter(torch.randn(2, 3)),
    "requires grad": lambda: torch.randn(2, 3, requires_grad=True),
    "offset": lambda: torch.randn(9)[3:].view(2, 3),
}


@pytest.mark.parametrize("case", FITS)
def test_these_fit_as_they_are(program: Program, case: str) -> None:
    a, b = torch.randn(2, 3), FITS[case]()
    (result,) = program(a, b)
    assert torch.equal(result, a + b) and not result.requires_grad
    assert program.report()["copies"] == 0


def test_an_inference_tensor_fits(program: Program) -> None:
    with torch.inference_mode():
        a = torch.randn(2, 3)
    (result,) = program(a, a)
    assert torch.equal(result, a + a)


def test_the_stride_of_a_single_element_does_not_matter() -> None:
    plan = Plan(
        "one", (), (tensor_input("x", 1, 3),), (buffer("input", 1, 3, source=0),
        buffer("tensor", 1, 3)), (), (launch("double", (0, 1), 3),), (TensorResult(1),),
        (ref("double"),),
    )  # fmt: skip
    program = load(plan, {"double": double()})
    x = torch.randn(5, 3)[1:2].as_strided((1, 3), (100, 1))
    assert torch.equal(program(x)[0], x * 2)
    assert program.report()["copies"] == 0


def test_an_updated_argument_must_have_its_strides(updating: Program) -> None:
    state = torch.zeros(8)[::2]
    with pytest.raises(InputError, match=r"'state' \(number 1\).* as it is written to"):
        updating(torch.ones(4), state)
    assert torch.equal(state, torch.zeros(4))


def test_a_lazily_negated_argument_can_be_updated(updating: Program) -> None:
    memory = torch.zeros(4)
    updating(torch.ones(4), torch._neg_view(memory))
    assert torch.equal(memory, torch.full((4,), -1.0))


def test_inference_tensors_can_be_updated(updating: Program) -> None:
    with torch.inference_mode():
        state = torch.zeros(4)
        updating(torch.ones(4), state)
    updating(torch.ones(4), state)
    assert torch.equal(state, torch.full((4,), 2.0))


def test_expanded_arguments_keep_their_strides_when_compiled_so() -> None:
    expanded = TensorInput("x", F32, (4,), (0,))
    plan = Plan("e", (), (expanded,), (), (), (), (), ())
    program = load(plan, {})
    assert program(torch.ones(1).expand(4)) == []
    with pytest.raises(InputError, match="expected an expanded tensor"):
        program(torch.ones(4))


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
@pytest.mark.parametrize("name", BY_NAME)
def test_every_dtype_is_recognised(name: str) -> None:
    dtype = BY_NAME[name]
    torch_dtype = getattr(torch, dtype.torch_name)
    program = load(Plan("d", (), (tensor_input("x", 4, dtype=dtype),), (), (), (), (), ()), {})
    assert program(torch.empty(4, dtype=torch_dtype)) == []
    other = torch.empty(4, dtype=torch.int64 if dtype is not I64 else torch.float32)
    with pytest.raises(InputError, match=f"expected dtype {name}"):
        program(other)
