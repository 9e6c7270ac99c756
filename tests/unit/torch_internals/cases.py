"""Cases of test_slower_ways.py by the names of private parts, and those of kernelmill.compile and
of devices."""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.variables.tensor import TensorVariable

import kernelmill
from kernelmill.backend import Backend
from kernelmill.torch_internals import devices
from kernelmill.torch_internals.tracing import opaque_value
from tests.compiled import reported

Case = Callable[[Path, pytest.MonkeyPatch], None]
CASES: dict[str, Case] = {}

ONLY_ELSEWHERE = {"objects.versions" if sys.version_info >= (3, 12) else "native.watchers"}
"""What does not apply to this version of Python."""


def case(*names: str) -> Callable[[Case], Case]:
    def register(function: Case) -> Case:
        CASES.update(dict.fromkeys(set(names) - ONLY_ELSEWHERE, function))
        return function

    return register


def compiled(function: Callable[..., Any], *args: Any, dynamic: bool = False) -> Backend:
    """The backend that compiled it, after a call that was as eager's; `reports` of it are those of
    what it compiled."""
    backend, reports = reported()
    backend.reports = reports
    with torch.no_grad():
        found = torch.compile(function, backend=backend, dynamic=dynamic)(*args)
    torch.testing.assert_close(found, function(*args), rtol=1e-5, atol=1e-6)
    return backend


def layer(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x @ x.T) + 1


X = torch.linspace(-1, 1, 12).reshape(4, 3)


# ---- kernelmill.compile ---------------------------------------------------------------------


def broken(x: torch.Tensor) -> torch.Tensor:
    """No whole graph."""
    x = layer(x)
    torch._dynamo.graph_break()
    return x + 1


@case("dynamo.trace_errors")
def breaks_end_with_the_tracers_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.no_grad():
        compiled_layer = kernelmill.compile(layer, cache_dir=tmp_path)
        torch.testing.assert_close(compiled_layer(X), layer(X))
        with pytest.raises(torch._dynamo.exc.Unsupported):
            kernelmill.compile(broken, cache_dir=tmp_path)(X)


@case("modules.own_hooks")
def hooks_are_torchs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = torch.nn.Linear(3, 3)
    model.register_forward_hook(lambda module, args, result: result + 1)
    with torch.no_grad():
        found = kernelmill.compile(model, cache_dir=tmp_path)(X)
    torch.testing.assert_close(found, model(X))


@case("tracing.opaque_values")
def an_object_is_no_argument(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert opaque_value(Enum("Kind", "ONE")["ONE"]) is None


# ---- devices ---------------------------------------------------------------------------------


@case("devices.backend_name", "devices.context")
def other_devices_are_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert devices.backend_name() == devices.UNNAMED
    with torch.device("cpu"):
        assert torch.empty(1).device.type == "cpu"


@case("devices.accelerator")
def accelerators_are_torchs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch._C._get_accelerator
    devices.deny_accelerator()
    assert torch._C._get_accelerator is before


@case("devices.record_stream")
def streams_of_others_are_torchs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = TensorVariable.method_record_stream
    devices.skip_record_stream()
    assert TensorVariable.method_record_stream is before
