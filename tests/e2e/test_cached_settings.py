"""Settings of torch that change between two calls: of a cached method, a compiled one, a file's."""

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from kernelmill import aot
from kernelmill.inference import cache_compile
from kernelmill.runtime.quick import REFUSED
from tests.kept_methods import KEPT, goes_quickly
from tests.torch_settings import CHANGES, WAYS

pytestmark = KEPT
QUICK = goes_quickly()


class Model(nn.Module):
    """Its results change with each of the settings but precision, which traced code cannot ask for
    and kernels do not lower."""

    def __init__(self, folder):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.cached = cache_compile(self.run, cache_dir=str(folder))
        self.cached_more = cache_compile(self.run_more, cache_dir=str(folder))

    def run(self, x):
        y = torch.relu(self.linear(x)) + 1
        if torch.are_deterministic_algorithms_enabled():
            y = y + 1
        return {"y": y, "made": torch.ones(3), "small": x * 1e-30}

    def run_more(self, x):
        """With an operator of torch, which no native check is for."""
        return {**self.run(x), "other": torch.linalg.inv(torch.eye(2, device="cpu") * 2)}


PLAIN = {"cached": "run", "cached_more": "run_more"}
# The second writes to what it is given, and is not kept without a part.
NAMES = [
    "cached", pytest.param("cached_more", marks=pytest.mark.needs_internal("autograd.config"))
]  # fmt: skip


TELLS_MODES = pytest.mark.needs_internal("dispatch.mode_stacks")
"""A default device is a mode of torch's. Without the part it is taken for one that sees operators,
and the method's own code runs."""


@pytest.fixture
def model(tmp_path):
    torch.manual_seed(0)
    return Model(tmp_path)


def small_input():
    torch.manual_seed(1)
    return torch.randn(3, 4) * 1e-9


def check(found, expected):
    assert list(found) == list(expected)
    for name, value in expected.items():
        got = found[name]
        assert (got.dtype, got.device, got.shape) == (value.dtype, value.device, value.shape), name
        if value.device.type == "cpu":
            torch.testing.assert_close(got, value, atol=0 if name == "small" else 1e-2, rtol=1e-3)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("setting", "way"),
    [pytest.param(*way, marks=TELLS_MODES if way[0] == "default device" else ()) for way in WAYS],
)
def test_a_call_under_another_setting_is_right_and_so_is_the_next(model, name, setting, way):
    cached, plain, x = getattr(model, name), getattr(model, PLAIN[name]), small_input()
    with torch.no_grad():
        for _ in range(3):
            check(cached(x), plain(x))
        with CHANGES[setting][way]():
            expected = plain(x)
            for _ in range(3):
                check(cached(x), expected)
        for _ in range(3):
            check(cached(x), plain(x))
    assert cached.statistics["traced"] == 2


def test_calls_go_the_quick_way_again_after_a_change(model):
    cached, x = model.cached, small_input()
    with torch.no_grad():
        for change in (*CHANGES["autocast"], *CHANGES["flush denormals"]):
            with change():
                cached(x)
                cached(x)
                assert (cached._quick((x,)) is not REFUSED) == QUICK
                found = cached._quick
            assert found((x,)) is REFUSED
            assert cached(x)["y"].dtype == torch.float32


class Doubled(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is torch.relu else result


class DoubledBelow(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is torch.ops.aten.relu.default else result


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mode", [Doubled, DoubledBelow])
def test_a_mode_sees_every_operator(model, name, mode):
    cached, plain, x = getattr(model, name), getattr(model, PLAIN[name]), small_input()
    with torch.no_grad():
        for _ in range(2):
            with mode():
                check(cached(x), plain(x))
            check(cached(x), plain(x))
            check(cached(x), plain(x))
    assert (cached.statistics["traced"], cached.statistics["uncached"]) == (1, 2)


@TELLS_MODES
def test_a_mode_above_a_default_device_is_a_mode(model):
    x = small_input()
    with torch.no_grad():
        model.cached(x)
        with torch.device("cpu"):
            check(model.cached(x), model.run(x))
            with Doubled():
                check(model.cached(x), model.run(x))
    assert model.cached.statistics == {"loaded": 0, "traced": 1, "uncached": 1}


def test_counting_and_fake_tensors_work_through_a_cached_method(model):
    x = small_input()
    with torch.no_grad():
        model.cached(x)
        model.cached(x)
        with FlopCounterMode(display=False) as counter:
            model.cached(x)
        assert counter.get_total_flops() == 2 * 3 * 4 * 4
        with FakeTensorMode(allow_non_fake_inputs=True):
            found = model.cached(x)
    assert type(found["y"]).__name__ == "FakeTensor" and found["y"].shape == (3, 4)


def test_gradients_are_refused_under_modes_too(model):
    x = small_input().requires_grad_()
    with Doubled(), pytest.raises(RuntimeError, match="argument 'x' requires grad"):
        model.cached(x)
    with Doubled():
        assert not model.cached(x.detach())["y"].requires_grad


@pytest.mark.parametrize(("setting", "way"), WAYS)
def test_torch_compile_notices_every_setting(model, setting, way):
    compiled, x = torch.compile(model.run, backend="kernelmill"), small_input()
    with torch.no_grad():
        check(compiled(x), model.run(x))
        with CHANGES[setting][way]():
            check(compiled(x), model.run(x))
        check(compiled(x), model.run(x))


@pytest.mark.parametrize("mode", [Doubled, DoubledBelow])
def test_torch_compile_notices_modes(model, mode):
    compiled, x = torch.compile(model.run, backend="kernelmill"), small_input()
    with torch.no_grad():
        check(compiled(x), model.run(x))
        with mode():
            check(compiled(x), model.run(x))
        check(compiled(x), model.run(x))


def test_a_file_is_what_was_compiled_under_other_settings_and_modes(model, tmp_path):
    x = small_input()
    with torch.no_grad():
        aot.compile(model.run, (x,), path=str(tmp_path / "model.km"))
        program, expected = aot.load(str(tmp_path / "model.km")), model.run(x)
        changes = [way for ways in CHANGES.values() for way in ways]
        for change in (*changes, Doubled, DoubledBelow):
            check(program(x), expected)
            with change():
                found = program(x), program(x)
            flushed = change is CHANGES["flush denormals"][0]
            for results in found:
                assert bool((results["small"] == 0).all()) == flushed
                check({**results, "small": expected["small"]}, expected)
