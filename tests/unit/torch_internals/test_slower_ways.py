"""Without a private part the result is the same: one short case for each."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import kernelmill
from kernelmill import aot, inference
from kernelmill.backend import Backend
from kernelmill.backend.runnable import note_determinism
from kernelmill.codegen.compile import emit
from kernelmill.compat.install import refuse_missing
from kernelmill.compiler import static_build
from kernelmill.core.errors import InputError, UnsupportedError
from kernelmill.core.target.isa import host_isa
from kernelmill.frontend.decompositions import decomposition_table
from kernelmill.runtime.executor import executor
from kernelmill.torch_internals import (
    autograd,
    compiles,
    dispatch,
    dynamo,
    export,
    forced,
    llvm,
    modules,
    native,
    operators,
    profiler,
    registry,
    tracing,
)  # fmt: skip
from tests.compiled import reported
from tests.forking import in_child
from tests.unit.torch_internals.cases import CASES, X, case, compiled, layer

registry.register_all()


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    """Nothing that was made with the part is used again."""
    decomposition_table.cache_clear()
    yield
    decomposition_table.cache_clear()


@pytest.mark.parametrize("name", sorted(registry.known()))
def test_without_it_the_result_is_the_same(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with forced([name]):
        CASES[name](tmp_path, monkeypatch)


def test_each_private_part_has_a_case() -> None:
    assert sorted(CASES) == sorted(registry.known())


# ---- AOTAutograd ----------------------------------------------------------------------------


@case("autograd.boxed")
def boxed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert autograd.boxed(lambda a, b: a - b)([3, 1]) == 2
    assert not compiled(layer, X).captures[0].refused


@case("autograd.config", "autograd.metadata")
def through_the_wrapper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (capture,) = compiled(layer, X).captures
    assert not capture.direct and not capture.refused


@case("autograd.kept_functions")
def torch_refuses_what_it_could_not_keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted: Any = dict.fromkeys(("bundled_autograd_cache", "strict_autograd_cache"), True)
    with torch._functorch.config.patch(**wanted):
        assert not autograd.is_to_be_kept()
    assert not autograd.is_to_be_kept()


@case("autograd.descriptions")
def writes_run_in_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (capture,) = compiled(layer, X).captures
    assert not capture.direct and not capture.refused

    def write(x: torch.Tensor) -> torch.Tensor:
        return x.clone().add_(1) + x.add_(1)

    expected, given, backend = X.clone(), X.clone(), Backend()
    with torch.no_grad():
        assert torch.equal(torch.compile(write, backend=backend)(given), write(expected))
    assert torch.equal(given, expected)
    assert "may share memory" in backend.captures[0].refused


class Cached(torch.nn.Module):
    """A module whose forward is kept."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)
        self.kept = inference.cache_compile(self.run, cache_dir=str(folder))

    def run(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.inner(x))


@case(
    "autograd.output_kinds", "dynamo.mutations", "dynamo.placeholder_sources", "dynamo.sources",
    "trace_notes.caught_errors", "trace_notes.elements", "trace_notes.tensor_hashes",
    "dynamo.trace", "modules.global_hooks",
)  # fmt: skip
def methods_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = Cached(tmp_path)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(module.kept(X), module.run(X))
    assert not list(tmp_path.rglob("*.kmill"))


@case("dynamo.tensor_sizes")
def methods_that_ask_an_unread_tensor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Asking(Cached):
        def run(self, x: torch.Tensor) -> torch.Tensor:
            return x + len(self.inner.weight.shape)

    module = Asking(tmp_path)
    with torch.no_grad():
        torch.testing.assert_close(module.kept(X), X + 2)
    assert not list(tmp_path.rglob("*.kmill"))


# ---- decompositions and operators -----------------------------------------------------------


@case("operators.decompositions")
def operators_run_in_aten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = compiled(lambda x: torch.dist(x, x + 1), X)
    assert [operator for operator, _, _ in backend.reports[0].fallbacks]


@case("operators.memory_format")
def resizing_is_torchs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert torch.ops.aten.max_unpool2d.default not in decomposition_table()
    x, indices = torch.nn.functional.max_pool2d(torch.rand(1, 1, 4, 4), 2, return_indices=True)
    compiled(lambda x, i: torch.nn.functional.max_unpool2d(x, i, 2), x, indices)
    resize = decomposition_table(exported=True)[torch.ops.aten.upsample_linear1d.vec]
    both = torch.full((1, 1, 2), torch.inf)
    assert resize(both, [3], False, None)[0, 0, 1].isnan()  # an infinity in eager, and in ours


@case("operators.recurrent")
def recurrent_layers_train_in_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = torch.nn.LSTM(3, 2), X.reshape(2, 2, 3)
    with torch._dynamo.config.patch(allow_rnn=True):
        assert not compiled(layer.eval().requires_grad_(False), x).reports[0].fallbacks
        backend, reports = reported()
        layer.train().requires_grad_(True)
        output, _ = torch.compile(layer, backend=backend)(x)
    torch.testing.assert_close(output, layer(x)[0])
    assert not reports and all(capture.refused for capture in backend.captures)


@case("operators.schema")
def schemas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert operators.schema_of(torch.ops.aten.add_.Tensor).is_mutable
    assert operators.schema_of(torch.ops.aten.view.default).returns[0].alias_info is not None
    compiled(lambda x: torch.linalg.pinv(x), X)


@case("operators.composite")
def composites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert operators.is_composite(torch.ops.aten.add.Tensor)  # for all that is known
    exported(tmp_path, lambda x: torch.nn.functional.pixel_shuffle(x.reshape(1, 4, 1, 3), 2))


# ---- the dispatcher -------------------------------------------------------------------------


@case("dispatch.mode_stacks")
def modes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert dispatch.active_modes() is None
    module = Cached(tmp_path)
    with torch.no_grad():
        expected = module.run(X)
        torch.testing.assert_close(module.kept(X), expected)


@case("dispatch.precision")
def precision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_float32_matmul_precision()
    found: list[str] = []
    try:
        for setting in ("highest", "high", "medium"):
            torch.set_float32_matmul_precision(setting)
            found.append(dispatch.float32_precision("matmul"))
    finally:
        torch.set_float32_matmul_precision(before)
    assert found[1:] == ["tf32", "bf16"] and found[0] in ("ieee", "none")


@case("dispatch.increment_version")
def versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(2)
    before = x._version
    dispatch.version_counter()([x])
    assert x._version == before + 1


@case("dispatch.grad_and_autocast")
def plain_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def product(x: torch.Tensor) -> tuple[torch.dtype, bool]:
        made = x @ x.T
        return made.dtype, made.requires_grad

    given = X.clone().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert dispatch.any_autocast()
        assert dispatch.plain_calls(product)(given) == (torch.float32, False)
    assert not dispatch.any_autocast() and torch.is_grad_enabled()


@case("registry.disable_modes")
def outside_modes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with torch._subclasses.FakeTensorMode():
        made = dispatch.outside_modes(lambda: torch.ones(2) + 1)
    assert made.tolist() == [2, 2]
    with pytest.raises(KeyError):
        dispatch.outside_modes(lambda: {}["missing"])
    constant = torch.arange(12.0).reshape(4, 3)
    backend = compiled(lambda x: x + constant, X)
    assert not backend.captures[0].refused
    assert len(backend.reports) == 1


@case("dispatch.plain_subclass")
def subclasses_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Sub(torch.Tensor):
        pass

    program = exported(tmp_path, layer)
    with pytest.raises(InputError, match="subclass Sub"):
        program(X.as_subclass(Sub))


@case("compiles.inductor_options")
def options_of_inductors_are_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Exception, match="no option 'max_autotune'"):
        torch.compile(layer, backend=Backend(), options={"max_autotune": True})(X)


@case("compiles.pattern_matcher")
def replacements_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnsupportedError, match=r"compiles\.pattern_matcher is not as expected"):
        kernelmill.register_replacement(torch.relu, torch.relu, [X])


# ---- Dynamo ---------------------------------------------------------------------------------


@case("dynamo.config")
def static_sizes_are_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with torch._dynamo.config.patch(assume_static_by_default=True, automatic_dynamic_shapes=False):
        assert not dynamo.is_static()
    methods_are_not_kept(tmp_path, monkeypatch)


@case("dynamo.limit_error")
def torchs_limit_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert dynamo.limit_errors() == ()


@case("dynamo.determinism_setter")
def operators_run_in_the_callers_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(torch._C._set_deterministic_algorithms, (True,))
    graph.output(graph.call_function(torch.relu, (x,)))
    note_determinism(torch.fx.GraphModule(torch.nn.Module(), graph))
    assert not any("custom" in node.meta for node in graph.nodes)


@case("dynamo.stand_ins")
def what_they_read_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not dynamo.is_stand_in("torch._dynamo.polyfills.functools")
    module = Cached(tmp_path)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(module.kept(X), module.run(X))
    assert list(tmp_path.rglob("*.kmill"))


@case("dynamo.shown_errors")
def errors_come_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert str(dynamo.shown_error()("text")) == "text"


@case("dynamo.marks")
def gears_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Backend()
    model = torch.compile(layer, backend=backend)
    with torch.no_grad():
        for rows in (2, 4, 5):
            x = torch.rand(rows, 3)
            if rows == 2:
                inference.set_dim_gears(x, {0: [2, 4]})
            torch.testing.assert_close(model(x), layer(x))


@case("dynamo.breaks")
def breaks_are_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return layer(x)

    assert kernelmill.explain(broken, X).graph_breaks == 0


@case("compiles.callbacks", "compiles.backend_of_compile")
def a_compile_goes_unnoticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    compiles.around_compiles(lambda _: called.append(compiles.backend_of_compile()), lambda _: None)
    torch.testing.assert_close(torch.compile(layer, backend=Backend())(X), layer(X))
    torch._dynamo.reset()
    assert not any(called)


@case("dynamo.module_attributes")
def a_missing_name_has_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_missing(module := ModuleType("module"), list)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="AttributeError"):
        torch.compile(lambda x: module.relu(x), backend="eager", fullgraph=True)(X)


@case("compiles.forks", "compiles.import_locks")
def a_child_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiles.watch_forks()
    in_child(
        lambda: torch.testing.assert_close(torch.compile(layer, backend=Backend())(X), layer(X))
    )


# ---- export ---------------------------------------------------------------------------------


def exported(
    folder: Path, function: Callable[..., Any], arguments: tuple[Any, ...] = (X,), **options: Any
) -> Any:
    """The loaded program of a function, after a call that was as eager's."""
    path = folder / f"{len(list(folder.iterdir()))}.kmill"
    program = aot.load(aot.compile(function, arguments, path=path, **options))
    torch.testing.assert_close(program(*deepcopy(arguments)), function(*deepcopy(arguments)))
    return program


@case("export.trees")
def functions_are_not_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnsupportedError, match=r"not supported: export\.trees"):
        exported(tmp_path, layer)
    assert export.leaves_of([1, {"a": (2, 3)}]) == [1, 2, 3]
    program = torch.export.export(torch.nn.ReLU(), (X,))
    loaded = aot.load(aot.compile(program, path=tmp_path / "g.kmill"))
    assert torch.equal(loaded(X), X.relu())


@case("export.oblivious_sizes", "export.size_questions")
def fewer_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = exported(tmp_path, layer, dynamic_shapes=({0: torch.export.Dim("rows")},))
    torch.testing.assert_close(program(X[:2]), layer(X[:2]))
    with pytest.raises(InputError, match="is 0, "):
        program(torch.rand(0, 3))


@case("export.stack_anchor")
def lines_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export.keep_lines(layer)
    exported(tmp_path, layer)


# ---- the rest -------------------------------------------------------------------------------


@case("devices.default_store")
def each_builds_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 0)
    assert static_build.rank_group() is None


@case("llvm.functions")
def objects_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "define i32 @f(i32 %x) {\n  %y = mul i32 %x, 3\n  ret i32 %y\n}\n"
    found = emit(text, host_isa()), emit(text, host_isa(), assembly=True)
    with pytest.raises(kernelmill.CodegenError, match="LLVM refuses"):
        emit("define", host_isa())
    function = registry.known()["llvm.functions"].probe()
    assert function is not None
    with monkeypatch.context() as patch:  # undone before the part is as it was
        patch.setitem(registry._outcomes, "llvm.functions", registry.ProbeOutcome(function, "", 0))
        assert (emit(text, host_isa()), emit(text, host_isa(), assembly=True)) == found


@case("llvm.wrapper_lock")
def forks_hold_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "llvmlite.binding.ffi" in sys.modules
    assert isinstance(llvm.wrapper_lock(), contextlib.nullcontext)
    in_child(lambda: emit("define void @f() {\n  ret void\n}\n", host_isa()))


@case("modules.original")
def arguments_are_named_by_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = torch.compile(torch.nn.Linear(3, 2), backend="eager")
    assert modules.original_module(model) is model
    with inference.record_shapes(model, tmp_path / "log"):
        model(X)
    assert "[4, 3]" in (tmp_path / "log").read_text()


@case("sizes.functions")
def varying_sizes_run_in_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (capture,) = compiled(layer, X, dynamic=True).captures
    assert "sizes that vary" in capture.refused
    torch._dynamo.reset()
    assert not compiled(layer, X).captures[0].refused


@case("tracing.fake_tensor", "tracing.wrappers")
def fakes_are_told_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class FakeTensor(torch.Tensor):
        pass

    with torch._subclasses.FakeTensorMode():
        assert tracing.is_traced(torch.empty(1))
    assert not tracing.is_traced(torch.empty(1).as_subclass(FakeTensor))
    assert not compiled(layer, X, dynamic=True).captures[0].refused


@case("tracing.fake_mode")
def sessions_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.profiler.profile(record_shapes=True) as session:
        layer(X)
    with pytest.raises(UnsupportedError, match=r"not supported: tracing\.fake_mode"):
        kernelmill.static_kernels.from_profiler(session, str(tmp_path / "ops"))


@case("profiler.hooks")
def profiles_have_no_ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert profiler.listen(lambda: None, lambda: None) is None
    with torch.profiler.profile() as session:
        compiled(layer, X)
    assert "aten::relu" in [event.key for event in session.key_averages()]


# ---- tensors and modules --------------------------------------------------------------------


@case("tensors.handle")
def weights_are_not_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = torch.nn.Linear(3, 2).requires_grad_(False)
    (capture,) = compiled(model, X).captures
    assert "tensors.handle" in capture.refused


@case("tensors.version")
def weights_are_compared_by_what_they_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = torch.nn.Linear(3, 2).requires_grad_(False)
    backend = Backend()
    found = torch.compile(model, backend=backend)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(found(X), model(X))
            model.weight.add_(1)
    assert not backend.captures[0].refused


@case("tensors.allocate", "tensors.alias", "tensors.storage_users")
def large_results_are_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert apart() == "tensors.alias tensors.allocate tensors.storage_users"


@cache
def apart() -> str:
    """What has failed in a process that lacks what is asked for at import."""
    code = (
        "import torch\n"
        "from kernelmill.torch_internals import failed\n"
        "x = torch.rand(600, 600)\n"
        "with torch.no_grad():\n"
        "    f = torch.compile(lambda x: torch.relu(x - 0.5), backend='kernelmill')\n"
        "    held = f(x)\n"
        "    for _ in range(3):\n"
        "        assert torch.equal(f(x), torch.relu(x - 0.5))\n"
        "    assert torch.equal(held, torch.relu(x - 0.5))\n"
        "from kernelmill.runtime.memory import allocation\n"
        "assert allocation.memory is None and not allocation.is_direct\n"
        "print(*[one.name for one in failed()])\n"
    )
    names = "tensors.alias,tensors.allocate,tensors.storage_users"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "KERNELMILL_WITHOUT_INTERNALS": names},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@case("modules.tables")
def modules_are_followed_at_each_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = Cached(tmp_path)
    with torch.no_grad():
        for number in range(4):
            torch.testing.assert_close(module.kept(X), module.run(X))
            if number:  # which no version counter tells
                module.inner.weight = torch.nn.Parameter(torch.rand(3, 3))
    assert list(tmp_path.rglob("*.kmill"))


# ---- the native entry -----------------------------------------------------------------------


@case(
    "native.checks", "objects.fields", "objects.functions", "objects.plain_fields",
    "objects.resolution", "objects.spaces", "objects.versions", "native.watchers",
    "tensors.impl_place", "tensors.storage_place",
)  # fmt: skip
def calls_are_checked_in_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = Cached(tmp_path)
    with torch.no_grad():
        for number in range(4):
            torch.testing.assert_close(module.kept(X), module.run(X))
            module.inner.bias.add_(number)  # type: ignore[union-attr]  # it has one
        module.kept = inference.cache_compile(module.run, cache_dir=str(tmp_path))
        torch.testing.assert_close(module.kept(X), module.run(X))
    program = exported(tmp_path, lambda x, factor: x * factor + 1, arguments=(X, 2.5))
    with pytest.raises(InputError):
        program(X, 3.5)
    written = exported(tmp_path, lambda x, y: (x.mul_(2), x + y)[1], arguments=(X.clone(), X))
    shared = X.clone()
    with pytest.raises(InputError):
        written(shared, shared)


@case("native.switches")
def switches_are_read_in_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, was = Cached(tmp_path), torch.backends.cuda.flash_sdp_enabled()
    try:
        with torch.no_grad():
            for enabled in (True, False, True):
                torch.backends.cuda.enable_flash_sdp(enabled)
                torch.testing.assert_close(module.kept(X), module.run(X))
    finally:
        torch.backends.cuda.enable_flash_sdp(was)
    assert module.kept.statistics["traced"] == 2


@case("native.packed")
def the_entry_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnsupportedError, match=r"not supported: native\.packed"):
        native.packed_function(0, None, release_gil=True)
    monkeypatch.setattr("kernelmill.runtime.calls.engine.executor", executor.__wrapped__)
    (capture,) = compiled(layer, X).captures
    assert "native.packed" in capture.refused


@case("native.threads")
def one_thread_runs_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = executor.__wrapped__()
    assert not made.threaded and executor().threaded
    monkeypatch.setattr("kernelmill.runtime.calls.engine.executor", lambda: made)
    assert not compiled(layer, X).captures[0].refused
