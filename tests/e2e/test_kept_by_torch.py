"""Functions of `torch.compile(...).aot_compile` that torch saves, and another process loads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from kernelmill.backend import kept_graph
from kernelmill.backend.kept_graph import KeptGraph
from kernelmill.core.errors import GradientError, InputError, StoreError, UnsupportedError
from tests.fresh import FreshProcesses

pytestmark = pytest.mark.needs_internal(
    "autograd.config", "autograd.descriptions", "autograd.kept_functions", "autograd.metadata",
    "autograd.output_kinds", "compiles.backend_of_compile", "native.packed", "sizes.functions",
    "tensors.handle", "tracing.opaque_values",
)  # fmt: skip

SUBJECTS = """
import sys
import torch
from torch import nn
from torch._library.opaque_object import register_opaque_type
from torch._opaque_base import OpaqueBase

FACTORS = {"first": 2.0, "second": 3.0, "third": 5.0}


class Place(OpaqueBase):
    def __init__(self, name):
        self.name = name

    def __eq__(self, other):
        return isinstance(other, Place) and self.name == other.name

    def __hash__(self):
        return hash(self.name)

    def __fx_repr__(self):
        return f"Place({self.name!r})", {"Place": Place}


register_opaque_type(Place, typ="value", hoist=True)
LIBRARY = torch.library.Library("kernelmill_tests_of_kept", "DEF")
LIBRARY.define(f"times(Tensor x, {Place.__module__}.{Place.__qualname__} place) -> Tensor")
LIBRARY.impl("times", lambda x, place: x * FACTORS[place.name], "CPU")
LIBRARY.impl("times", lambda x, place: torch.empty_like(x), "Meta")
times = torch.ops.kernelmill_tests_of_kept.times


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(64, 48), nn.LayerNorm(48), nn.GELU(), nn.Linear(48, 8)
        )
        self.register_buffer("seen", torch.zeros(8))

    def forward(self, x):
        made = self.layers(x).softmax(-1)
        return made, x[:, :2], x.shape[0] * 2


class Writes(Layers):
    def forward(self, x):
        self.seen.add_(x.sum(0)[:8])
        return self.seen * 2


class Attends(Layers):
    def forward(self, x):
        return nn.functional.softmax(self.layers(x) @ x[:, :8].mT, 0) @ x


class Named(Layers):
    def __init__(self, *names):
        super().__init__()
        self.first, self.second = map(Place, names or ("first", "second"))

    def forward(self, x):
        made = times(self.layers(x).relu() + 1, self.first)
        return times(made + times(made, self.second), self.first) - 1


def of_rows(count):
    x = torch.randn(count, 64)
    torch._dynamo.mark_dynamic(x, 0)
    return x


def ahead(model, x):
    compiled = torch.compile(
        model.forward, fullgraph=True, backend="kernelmill",
        options={"guard_filter_fn": torch.compiler.skip_all_guards_unsafe},
    )
    return compiled.aot_compile(((x,), {}))


def same(model, function, *counts):
    for count in counts:
        x = torch.randn(count, 64)
        seen = model.seen.clone()
        expected, wanted = model(x), model.seen.clone()
        model.seen.copy_(seen)
        found = function(model, x)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(model.seen, wanted)
"""

SAVE = """
torch.manual_seed(0)
model = globals()[sys.argv[1]]().eval()
with torch.no_grad():
    function = ahead(model, of_rows(3))
    same(model, function, 3, 5)
    function.save_compiled_function("kept")
torch.save(model.state_dict(), "weights")
"""

LOAD = """
import os
from torch._dynamo.utils import counters

model = globals()[sys.argv[1]]().eval()
with torch.no_grad():
    model.load_state_dict(torch.load("weights"))
    with open("kept", "rb") as file:
        function = torch.compiler.load_compiled_function(file)
    ours = function._artifacts.compiled_fn
    ours.finalize_loading(None)
    same(model, function, 3, 1, 7, 200, 3)
    model.layers[0].weight.add_(0.5)
    same(model, function, 4)
    function.save_compiled_function("again")
data = type(ours).serialize_compile_artifacts(ours)
assert all(data in open(name, "rb").read() for name in ("kept", "again"))
assert not any(sum(counters[name].values()) for name in ("frames", "aot_autograd")), counters
print(sorted(os.listdir(os.environ["KERNELMILL_KERNEL_META"])))
"""


def in_two_processes(fresh: FreshProcesses, folder: Path, name: str, load: str = LOAD) -> str:
    """What the second has printed."""
    script = folder / "subject.py"
    script.write_text(SUBJECTS + SAVE)
    fresh.output(script, name, cwd=folder)
    script.write_text(SUBJECTS + load)
    (folder / "empty").mkdir(mode=0o700)
    environment = {**os.environ, "KERNELMILL_KERNEL_META": str(folder / "empty")}
    return fresh.output(script, name, cwd=folder, env=environment)


@pytest.mark.parametrize("name", ["Layers", "Attends", "Writes", "Named"])
def test_another_process_loads_it_without_a_trace(
    fresh: FreshProcesses, tmp_path: Path, name: str
) -> None:
    assert in_two_processes(fresh, tmp_path, name).strip() == "[]"


OTHERS = """
model = Named("first", sys.argv[2]).eval()
with torch.no_grad(), open("kept", "rb") as file:
    function = torch.compiler.load_compiled_function(file)
    try:
        function(model, torch.randn(3, 64))
    except Exception as error:
        print(type(error).__name__, error)
    model.second = Place("second")
    same(model, function, 3, 2)
    model.second = Place("second")
    same(model, function, 3)
    model.second = Place("third")
    try:
        function(model, torch.randn(3, 64))
    except Exception as error:
        print(type(error).__name__, error)
"""


def test_objects_that_are_others_are_refused(fresh: FreshProcesses, tmp_path: Path) -> None:
    script = tmp_path / "subject.py"
    script.write_text(SUBJECTS + SAVE)
    fresh.output(script, "Named", cwd=tmp_path)
    script.write_text(SUBJECTS + OTHERS)
    told = fresh.output(script, "Named", "third", cwd=tmp_path).splitlines()
    assert len(told) == 2 and told[0] == told[1]
    assert told[0].startswith("InputError argument 'object ")
    assert "expected __main__.Place Place('second'), got __main__.Place Place('third')" in told[0]


# ---- in one process ------------------------------------------------------------------------


def aot_compiled(function: Any, *args: Any, **options: Any) -> Any:
    dropped = {"guard_filter_fn": torch.compiler.skip_all_guards_unsafe, **options}
    compiled: Any = torch.compile(function, fullgraph=True, backend="kernelmill", options=dropped)
    return compiled.aot_compile((args, {}))


def kept(function: Any, *args: Any, **options: Any) -> bytes:
    return KeptGraph.serialize_compile_artifacts(
        aot_compiled(function, *args, **options)._artifacts.compiled_fn
    )


def of_rows(count: int) -> torch.Tensor:
    x = torch.randn(count, 8)
    torch._dynamo.mark_dynamic(x, 0)
    return x


def loaded(data: bytes) -> Any:
    return KeptGraph.deserialize_compile_artifacts(data)


def test_constants_of_the_code_are_in_it() -> None:
    with torch.no_grad():
        found = loaded(kept(lambda x: x @ torch.arange(16.0).reshape(8, 2), torch.randn(3, 8)))
        x = torch.randn(3, 8)
        torch.testing.assert_close(found(x), [x @ torch.arange(16.0).reshape(8, 2)])


def test_sizes_for_which_the_trace_does_not_hold_are_refused() -> None:
    def branches(x: torch.Tensor) -> torch.Tensor:
        return x.sin() if x.shape[0] % 2 else x.cos()

    with torch.no_grad():
        found = loaded(kept(branches, of_rows(3)))
        x = torch.randn(5, 8)
        torch.testing.assert_close(found(x.shape[0], x), [x.sin()])
        with pytest.raises(InputError, match="sizes do not fit"):
            found(4, torch.randn(4, 8))
        with pytest.raises(InputError):
            found(5, torch.randn(5, 9))


def test_a_tensor_that_requires_grad_is_refused() -> None:
    with torch.no_grad():
        found = loaded(kept(lambda x: x.sin(), torch.randn(3)))
    x = torch.randn(3)
    torch.testing.assert_close(found(x), [x.sin()])
    with pytest.raises(GradientError, match="requires grad"):
        found(x.requires_grad_())


def test_a_graph_that_needs_gradients_is_not_saved(tmp_path: Path) -> None:
    class Model(nn.Linear):
        def forward(self, input: Any) -> Any:
            return super().forward(input).relu()

    model, x = Model(4, 4), torch.randn(3, 4)
    ahead = aot_compiled(model.forward, x)
    ahead(model, x).sum().backward()
    assert model.weight.grad is not None
    with pytest.raises(UnsupportedError, match="it needs a backward pass; the next process traces"):
        ahead.save_compiled_function(str(tmp_path / "kept"))


def test_a_graph_that_runs_in_torch_is_not_saved() -> None:
    eagerly = {"debug.run_eagerly": True}
    with (
        torch.no_grad(),
        pytest.raises(UnsupportedError, match=r"kept: config.debug.run_eagerly is"),
    ):
        kept(lambda x: x.sin(), torch.randn(3), **eagerly)


def test_damaged_bytes_are_refused() -> None:
    with torch.no_grad():
        data = kept(lambda x: x.sin() + x.cos(), torch.randn(3))
        for place in range(0, len(data), len(data) // 40):
            damaged = bytes([*data[:place], data[place] ^ 1, *data[place + 1 :]])
            try:
                found = loaded(damaged)
            except StoreError:
                continue
            x = torch.randn(3)  # what was changed lies between two parts
            torch.testing.assert_close(found(x), [x.sin() + x.cos()])
        for cut in (b"", data[:30], data[:-5000]):
            with pytest.raises(StoreError, match=r"^a function kept by torch is "):
                loaded(cut)


@pytest.mark.parametrize("what", ["kernelmill", "torch", "isa", "kernels of torch"])
def test_another_version_or_processor_is_refused(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with torch.no_grad():
        data = kept(lambda x: x.sin(), torch.randn(3))
    here = kept_graph._here()
    monkeypatch.setattr(kept_graph, "_here", lambda: {**here, what: "another"})
    with pytest.raises(UnsupportedError, match=f"made with {what} .*, and here is another"):
        loaded(data)


def test_other_settings_of_torch_are_refused() -> None:
    with torch.no_grad():
        data = kept(lambda x: x.sin(), torch.randn(3))
        found, before = loaded(data), torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            with pytest.raises(UnsupportedError, match="other settings of torch: default dtype"):
                loaded(data)
            with pytest.raises(InputError, match="default dtype"):
                found(torch.randn(3, dtype=torch.float32))
        finally:
            torch.set_default_dtype(before)


class Loading(nn.Parameter):
    """A weight as vLLM has them."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return super().__torch_function__(func, types, args, kwargs or {})


def test_weights_of_a_class_that_sees_operators() -> None:
    def product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return (x @ weight).relu()

    x, weight = torch.randn(3, 8), Loading(torch.randn(8, 4))
    with torch.no_grad():
        found = loaded(kept(product, x, weight))
        torch.testing.assert_close(found(x, weight), [(x @ weight).relu()])
