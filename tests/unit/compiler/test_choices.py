"""Static kernels compiled and chosen operator by operator."""

import pytest
import torch

from kernelmill.compiler import choices as module
from kernelmill.compiler.choices import Choices, example_arguments
from kernelmill.compiler.static_build import from_document, to_document
from kernelmill.core.dtype import F32, I64
from kernelmill.core.errors import CodegenError, KernelmillError
from kernelmill.core.target.machine import host, profile
from kernelmill.lower.driver.program import extract_operators
from kernelmill.store import Store
from tests.compiled import graph


def operators(build, *inputs):
    return list(extract_operators(graph(build, *inputs), host()).operators.values())


def matmul(rows=4):
    (found,) = operators(lambda b, x, y: b.emit("matmul", x, y), (F32, (rows, 8)), (F32, (8, 6)))
    return found


def exp():
    (found,) = operators(lambda b, x: b.emit("exp", x), (F32, (4, 5)))
    return found


@pytest.fixture
def choices(tmp_path):
    return Choices(Store(tmp_path), host())


def times(monkeypatch, static, dynamic):
    monkeypatch.setattr(module, "compare", lambda *arguments: (static, dynamic))


def test_the_faster_kernel_is_chosen_and_the_choice_kept(choices, monkeypatch):
    times(monkeypatch, 100, 200)
    assert choices.known(matmul()) is None
    assert choices.make([matmul()], 2) == []
    assert (choices.known(matmul()).kernel, choices.known(matmul()).dynamic_ns) == ("static", 200)
    times(monkeypatch, 200, 100)
    choices.make([exp()], 1)
    assert choices.known(exp()).kernel == "dynamic"
    assert choices.known(matmul()).kernel == "static"
    assert choices.known(matmul(5)) is None


def test_both_kernels_are_measured_and_the_caller_keeps_its_threads(choices):
    threads = torch.get_num_threads()
    assert choices.make([matmul(), exp()], 1) == []
    for operator in (matmul(), exp()):
        known = choices.known(operator)
        assert known.static_ns > 0 and known.dynamic_ns > 0
    assert torch.get_num_threads() == threads


def test_another_target_is_not_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "compare", lambda *arguments: pytest.fail("measured"))
    level = 3 if host().isa.cpu != "x86-64-v3" else 2
    choices = Choices(Store(tmp_path), profile(f"x86-64-v{level}"))
    choices.make([matmul()], 1)
    assert choices.known(matmul()).kernel == "static"


def test_another_target_is_measured_where_its_programs_run_here(tmp_path, monkeypatch):
    times(monkeypatch, 3, 2)
    choices = Choices(Store(tmp_path), profile("x86-64-v2"), runs_here=True)
    choices.make([matmul()], 1)
    assert choices.known(matmul()).kernel == "dynamic"


def test_one_failure_stops_nothing(choices, monkeypatch):
    times(monkeypatch, 1, 2)
    compile_kernel = module.obtain

    def obtain(requests, *rest):
        if any(request.kernel.type == "Exp" for request in requests):
            raise CodegenError("no such instruction")
        return compile_kernel(requests, *rest)

    monkeypatch.setattr(module, "obtain", obtain)
    (failure,) = choices.make([matmul(), exp(), matmul(7)], 2)
    assert (failure.operator.type, failure.reason) == ("Exp", "no such instruction")
    assert choices.known(exp()) is None
    assert choices.known(matmul(7)).kernel == "static"


def test_entries_are_all_that_a_program_reads(choices, monkeypatch):
    times(monkeypatch, 1, 2)
    choices.make([matmul()], 1)
    types = [entry.name.partition("_")[0] for entry in choices.entries(matmul())]
    assert types == ["Choice", "MatMul"]
    assert choices.entries(exp()) == []


def test_a_document_gives_the_operator_back():
    def rows(b, x, i):
        return b.emit("index", x, i, dims=(0,), at=0)

    (gathered,) = operators(rows, (F32, (5, 3)), (I64, (4,)))
    for operator in (matmul(), exp(), gathered):
        document = to_document(operator)
        again = from_document(document)
        assert to_document(again) == document
        assert module.choice_key(again, host()) == module.choice_key(operator, host())


@pytest.mark.parametrize("document", [{}, {"graph": "graph"}, {"graph": 3}])
def test_what_is_no_document_is_an_error(document):
    with pytest.raises(KernelmillError, match="not an operator"):
        from_document(document)


def test_examples_leave_random_numbers_alone():
    state = torch.random.get_rng_state()
    (x, y) = example_arguments(matmul().graph)
    assert (x.shape, y.shape) == ((4, 8), (8, 6))
    assert torch.equal(state, torch.random.get_rng_state())
