"""Calls with so many parameters that several threads compare them."""

from collections.abc import Callable

import pytest
import torch

from kernelmill.plan.ir import Plan, TensorResult
from kernelmill.runtime.layout import BindingTable
from kernelmill.runtime.program import Program, load
from kernelmill.runtime.weights.page_scan import page_faults
from kernelmill.runtime.weights.write_watch import WriteWatch, write_watch
from tests.forking import in_child
from tests.unit.runtime.kernels import add, buffer, double, launch, ref, tensor_input

PARAMETERS, SIZE = 300, 5 * 1024
"""How many, and of how many elements: of more than two pages, so that those are watched."""


def plan() -> Plan:
    """x plus twice each parameter, which is packed."""
    inputs, sums = PARAMETERS + 1, 2 * PARAMETERS + 1
    packed = range(inputs, sums)
    places = (sums, sums + 1)
    results = (*(places[n % 2] for n in range(PARAMETERS - 1)), sums + 2)
    return Plan(
        name="many",
        symbols=(),
        inputs=(
            tensor_input("x", SIZE),
            *(tensor_input(f"p{n}", SIZE, role="param") for n in range(PARAMETERS)),
        ),
        buffers=(
            *(buffer("input", SIZE, source=i) for i in range(inputs)),
            *(buffer("packed", SIZE) for _ in packed),
            buffer("arena", SIZE, offset=0),
            buffer("arena", SIZE, offset=4 * SIZE),
            buffer("tensor", SIZE),
        ),
        prepare=tuple(launch("double", (1 + n, place), SIZE) for n, place in enumerate(packed)),
        steps=tuple(
            launch("add", (before, place, result), SIZE)
            for before, place, result in zip((0, *results), packed, results, strict=False)
        ),
        results=(TensorResult(sums + 2),),
        kernels=(ref("add"), ref("double")),
        arena_bytes=8 * SIZE,
    )


@pytest.fixture(scope="module")
def program() -> Program:
    return load(plan(), {"add": add(), "double": double()})


@pytest.fixture(params=[1, 2, 4])
def threads(request: pytest.FixtureRequest, threads_as_before: None) -> None:
    torch.set_num_threads(request.param)


def in_place(weight: torch.Tensor) -> None:
    weight += 1.0


def through_numpy(weight: torch.Tensor) -> None:
    """Of which torch knows nothing: in the middle, and in the pages that it shares."""
    numbers = weight.numpy()
    for place in (SIZE // 2, 0, SIZE - 1):
        numbers[place] += 1.0


def other_memory(weight: torch.Tensor) -> None:
    weight.data = torch.randn(SIZE)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("change", [in_place, through_numpy, other_memory])
def test_every_change_is_noticed_whoever_looks(
    program: Program, change: Callable[[torch.Tensor], None]
) -> None:
    weights = [torch.randn(SIZE) for _ in range(PARAMETERS)]
    x = torch.randn(SIZE)

    def check() -> None:
        expected = x.clone()
        for weight in weights:
            expected += 2 * weight
        (found,) = program(x, *weights)
        assert torch.equal(found, expected)

    check()
    for places in ((), (0,), (PARAMETERS - 1,), (150, 17), (16, 15, 299), ()):
        for place in places:
            change(weights[place])
        packed = program.report()["repacks"]
        check()
        check()
        assert program.report()["repacks"] == packed + len(places)


# ---- scans ----------------------------------------------------------------------------------

needs_scans = pytest.mark.skipif(
    not WriteWatch().allowed, reason="this system does not tell of writes"
)


class Calls:
    """Calls with the same arguments, of which only weights may change."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.arguments = [torch.randn(SIZE) for _ in range(PARAMETERS + 1)]
        for _ in range(3):
            self.packs()

    def packs(self) -> int:
        """How many weights a call packs."""
        before = self._program.report()["repacks"]
        self._program(*self.arguments)
        return self._program.report()["repacks"] - before

    @property
    def table(self) -> BindingTable:
        """Of the next call."""
        parameters = self._program.engine.parameters
        assert parameters is not None
        key = id(self.arguments[parameters.key_argument])
        return BindingTable.from_address(parameters.bindings[key].address)

    def pretend_to_have_scanned(self) -> None:
        """As if this process had no page fault since a scan that found nothing."""
        self.table.unwritten_at = write_watch().state.epoch << 48 | page_faults()


@pytest.fixture
def calls(program: Program) -> Calls:
    return Calls(program)


@needs_scans
def test_without_a_page_fault_there_is_no_scan(calls: Calls) -> None:
    """Which shows in a write that is not found: its page fault is said to have been before."""
    for _ in range(50):  # other threads of this process may have page faults at any time
        calls.arguments[7].numpy()[SIZE // 2] += 1.0  # on a page that nobody compares
        calls.pretend_to_have_scanned()
        if not calls.packs():
            return
    pytest.fail("each call scanned")


@needs_scans
def test_a_write_is_a_page_fault_and_a_scan_that_finds_nothing_is_noted(calls: Calls) -> None:
    assert calls.packs() == 0
    epoch, faults = divmod(calls.table.unwritten_at, 1 << 48)
    assert epoch == write_watch().state.epoch > 0
    through_numpy(calls.arguments[7])
    assert page_faults() > faults
    assert calls.packs() == 1


@needs_scans
def test_where_page_faults_are_not_told_each_call_scans(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_watch().state, "epoch", 0)
    for _ in range(3):
        through_numpy(calls.arguments[7])
        calls.pretend_to_have_scanned()
        assert calls.packs() == 1


@needs_scans
def test_what_a_forked_process_had_scanned_counts_for_nothing_in_it(calls: Calls) -> None:
    """Its page faults are counted from 0 on, and may be as many as the parent had."""
    assert write_watch().state.epoch > 0

    def child() -> None:
        through_numpy(calls.arguments[7])
        before = write_watch().state.epoch - 1
        calls.table.unwritten_at = before << 48 | page_faults()
        assert calls.packs() == 1

    torch.set_num_threads(1)  # no OpenMP team to lose
    in_child(child)
