"""What is done around Dynamo's compiles: garbage is searched for again after each."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from kernelmill.backend import Backend
from kernelmill.backend.graph_breaks import watch_compiles
from kernelmill.torch_internals.compiles import backend_of_compile


@pytest.fixture(autouse=True)
def watched() -> Iterator[None]:
    torch._dynamo.reset()
    watch_compiles()
    assert gc.isenabled()
    yield
    assert gc.isenabled()
    torch._dynamo.reset()


def while_traced(found: list[bool]) -> Callable[[Tensor], Tensor]:
    """A function that notes, when Dynamo traces it, whether garbage is searched for."""

    @torch.compiler.assume_constant_result
    def noted() -> float:
        found.append(gc.isenabled())
        return 2.0

    return lambda x: x * noted()


@pytest.mark.parametrize(
    ("backend", "searched"),
    [("kernelmill", False), (Backend(), False), ("eager", True), ("aot_eager", True)],
    ids=["by name", "object", "eager", "aot_eager"],
)
def test_no_garbage_is_searched_for_while_dynamo_traces_for_this_backend(
    backend: Any, searched: bool
) -> None:
    found: list[bool] = []
    call = torch.compile(while_traced(found), backend=backend)
    assert torch.equal(call(torch.ones(2)), torch.full((2,), 2.0))
    assert found
    assert set(found) == {searched}


def test_of_compiles_inside_of_others_the_outermost_counts() -> None:
    found: list[bool] = []
    inner = torch.compile(while_traced(found), backend=Backend())

    def outer(gm: Any, inputs: Any) -> Any:
        assert gc.isenabled()
        inner(torch.ones(3))
        return gm.forward

    assert torch.equal(
        torch.compile(lambda x: x + 1, backend=outer)(torch.ones(2)), torch.ones(2) + 1
    )
    assert found == [True]


def test_garbage_is_searched_for_after_a_compile_that_fails() -> None:
    def broken(x: Tensor) -> Tensor:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        torch.compile(broken, backend=Backend(), fullgraph=False)(torch.ones(2))


def test_outside_of_compiles_no_backend_is_named() -> None:
    assert backend_of_compile() == ""


def test_the_first_compile_of_a_process_by_name_is_one_of_them() -> None:
    code = (
        "import gc, torch, kernelmill\n"
        "found = []\n"
        "@torch.compiler.assume_constant_result\n"
        "def noted():\n"
        "    found.append(gc.isenabled())\n"
        "    return 2.0\n"
        "torch.compile(lambda x: x * noted(), backend='kernelmill')(torch.ones(2))\n"
        "print(found)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[False]"
