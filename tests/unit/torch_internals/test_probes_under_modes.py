"""A probe gives the same whatever modes the thread that asks first is under."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from kernelmill.core import knobs
from kernelmill.torch_internals import registry
from tests.fresh import FreshProcesses

registry.register_all()

needs_all = pytest.mark.skipif(
    bool(knobs.WITHOUT_INTERNALS.get()), reason="some are left out of this run"
)


class NoDispatch(TorchDispatchMode):
    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        raise RuntimeError(f"this mode has seen {func}")


class NoFunctions(TorchFunctionMode):
    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        raise RuntimeError(f"this mode has seen {func}")


@contextmanager
def default_dtype(dtype: torch.dtype) -> Generator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def default_device() -> Generator[None]:
    torch.set_default_device("meta")
    try:
        yield
    finally:
        torch.set_default_device(None)


@contextmanager
def deterministic() -> Generator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


MODES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "inference_mode": torch.inference_mode,
    "no_grad": torch.no_grad,
    "FakeTensorMode": FakeTensorMode,
    "TorchDispatchMode": NoDispatch,
    "TorchFunctionMode": NoFunctions,
    "float64": lambda: default_dtype(torch.float64),
    "bfloat16": lambda: default_dtype(torch.bfloat16),
    "default device": default_device,
    "device of a block": lambda: torch.device("meta"),
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "deterministic": deterministic,
}


def problems() -> dict[str, str]:
    tried = {name: registry.attempt(part) for name, part in registry.known().items()}
    return {name: outcome.problem for name, outcome in tried.items() if outcome.problem}


@needs_all
@pytest.mark.parametrize("mode", MODES)
def test_every_probe_passes_under(mode: str) -> None:
    with MODES[mode]():
        found = problems()
    assert not found


@needs_all
@pytest.mark.parametrize(
    "transform",
    [
        torch.func.vmap,
        torch.func.grad,
        torch.func.functionalize,
        lambda f: make_fx(f, tracing_mode="symbolic"),
        lambda f: make_fx(f, pre_dispatch=True),
    ],
    ids=["vmap", "grad", "functionalize", "make_fx", "before the dispatcher"],
)
def test_every_probe_passes_inside_of(transform: Callable[[Any], Callable[[Any], Any]]) -> None:
    found: dict[str, str] = {}

    def asks(x: torch.Tensor) -> torch.Tensor:
        found.update(problems())
        return x * 2

    transform(asks)(torch.tensor(3.0) if transform is torch.func.grad else torch.ones(3))
    assert not found


def test_modes_are_as_before_afterwards() -> None:
    outer, inner = NoFunctions(), NoFunctions()
    with torch.device("meta"), outer, inner, NoDispatch(), torch.inference_mode():
        stacks = torch.overrides._get_current_function_mode_stack()
        with registry.as_in_new_thread():
            made = torch.ones(2)
            assert made.tolist() == [1, 1] and not made.is_inference()
        assert torch.overrides._get_current_function_mode_stack() == stacks
        assert stacks[-2:] == [outer, inner]
        with pytest.raises(RuntimeError, match="this mode has seen"):
            torch.ones(2)
        assert torch.is_inference_mode_enabled()


def test_a_first_call_in_inference_mode_warns_of_nothing(
    fresh: FreshProcesses, tmp_path: Path
) -> None:
    code = (
        "import torch, kernelmill\n"
        "from kernelmill.torch_internals import failed\n"
        "model = torch.nn.Linear(300, 300)\n"
        "with torch.inference_mode():\n"
        "    torch.compile(model, backend='kernelmill')(torch.ones(2, 300))\n"
        "from kernelmill.core import knobs\n"
        "print([part.name for part in failed() if part.name not in knobs.WITHOUT_INTERNALS.get()])"
    )
    done = fresh.start("-c", code, cwd=tmp_path).result()
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
    assert "does not work" not in done.stderr or knobs.WITHOUT_INTERNALS.get()
