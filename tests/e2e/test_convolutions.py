"""Networks of convolutions through torch.compile: eager's results, and no copies in between."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import pytest
import torch

from kernelmill.backend.entry import Backend
from kernelmill.compiler.linking import Compiled
from kernelmill.plan.ir import Launch, Plan
from tests.e2e.convolution_models import MODELS, build
from tests.tolerances import assert_close

pytestmark = pytest.mark.usefixtures("strict")


def copies(plan: Plan) -> list[str]:
    """The steps that do nothing but move elements."""
    moving = {"layout", "permute", "reshape", "expand"}
    alone = {ref.name for ref in plan.kernels if moving.issuperset(ref.operators)}
    return [s.kernel for s in plan.steps if isinstance(s, Launch) and s.kernel in alone]


@pytest.mark.parametrize("name", MODELS)
def test_forward_equals_eager(name: str) -> None:
    model, x = build(name)
    made: list[Compiled[Any]] = []
    with torch.no_grad():
        expected = copy.deepcopy(model)(x)
        backend = Backend(on_compiled=made.append)
        actual = torch.compile(model, backend=backend, dynamic=False)(x)
    assert_close(actual, expected)
    # Where the result is an image it is copied once, into eager's order.
    copied = sum(len(copies(each.lowered.plan)) for each in made)
    assert copied == (0 if expected.dim() == 2 else len(made))


def test_weights_of_all_sizes_are_packed_by_the_same_kernels() -> None:
    model, x = build("mobilenet")
    made: list[Compiled[Any]] = []
    with torch.no_grad():
        torch.compile(model, backend=Backend(on_compiled=made.append), dynamic=False)(x)
    lowered = made[0].lowered
    packing = Counter(lowered.kernels[launch.kernel].type for launch in lowered.plan.prepare)
    known = [k for k in lowered.kernels.values() if k.type in packing and not k.dims]
    assert known == []
    assert packing["Panels"] >= 3  # of depthwise convolutions, among others


@pytest.mark.parametrize("name", ["mobilenet", "unet"])
def test_images_that_come_channels_last(name: str, backend: str) -> None:
    model, x = build(name)
    x = x.to(memory_format=torch.channels_last)
    with torch.no_grad():
        expected = copy.deepcopy(model)(x)
        actual = torch.compile(model, backend=backend)(x)
    assert_close(actual, expected)
    assert actual.stride() == expected.stride()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("name", ["mobilenet", "convnext"])
def test_other_dtypes(name: str, dtype: torch.dtype, backend: str) -> None:
    model, x = build(name)
    model, x = model.to(dtype), x.to(dtype)
    with torch.no_grad():
        exact = copy.deepcopy(model).double()(x.double())
        expected = copy.deepcopy(model)(x)
        actual = torch.compile(model, backend=backend)(x)
    assert_close(actual, expected, exact)


def test_statistics_that_change_between_calls(backend: str) -> None:
    model, x = build("mobilenet")
    compiled = torch.compile(model, backend=backend)
    with torch.no_grad():
        before = compiled(x).clone()
        for buffer in model.buffers():
            if buffer.is_floating_point():
                buffer.mul_(1.5)
        after = compiled(x)
        assert not torch.allclose(before, after)
        assert_close(after, model(x))


def test_gradients(backend: str) -> None:
    model, x = build("mobilenet")
    twin = copy.deepcopy(model)
    torch.compile(model, backend=backend)(x).square().sum().backward()
    twin(x).square().sum().backward()
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert ours.grad is not None and theirs.grad is not None
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-3, atol=1e-4)
