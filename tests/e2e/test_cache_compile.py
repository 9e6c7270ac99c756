"""`cache_compile` in one process: entries, arguments, weights, errors, damage."""

import copy
import functools
import importlib
import io
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from kernelmill import CompilerConfig, scope
from kernelmill.artifact.container import KMILL
from kernelmill.backend import capture
from kernelmill.core.errors import ConfigTypeError, InputError, StoreError
from kernelmill.inference import cache_compile, readable_cache, set_dim_gears
from kernelmill.runtime.gears import padded_calls
from kernelmill.store.sealed import SealedFile
from tests.kept_methods import KEPT

pytestmark = KEPT


@dataclass
class Pair:
    first: torch.Tensor
    second: torch.Tensor | None = None
    rows: int = 0


class Model(nn.Module):
    def __init__(self, folder: Any, **options: Any):
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.scale = 2.0
        self.cached = cache_compile(self.run, cache_dir=str(folder), **options)
        self.eval()

    def run(self, x: Any, pair: Any = None, times: Any = 1, *, mode: Any = "add"):
        y = self.linear(x) * self.scale
        if pair is not None:
            y = y + pair.first if mode == "add" else y - pair.first
        return Pair(y * times, rows=x.shape[0]), [x.shape[0] * 2, None, "text"], {"y": (y.sum(-1),)}


class Writer(nn.Module):
    state: torch.Tensor

    def __init__(self, folder: Any):
        super().__init__()
        self.register_buffer("state", torch.zeros(4))
        self.calls = 0
        self.cached = cache_compile(self.run, cache_dir=str(folder))
        self.counted = cache_compile(self.count, cache_dir=str(folder))

    def run(self, x: Any) -> Any:
        self.state.add_(x)
        return self.state * 2.0

    def count(self, x: Any):
        self.calls += 1
        return x + self.calls


def check(model: Any, *args: Any, **kwargs: Any):
    with torch.no_grad():
        expected, got = model.run(*args, **kwargs), model.cached(*args, **kwargs)
    assert type(got[0]) is Pair and got[0].second is None
    assert got[0].rows == expected[0].rows and type(got[0].rows) is int
    assert got[1] == expected[1] and type(got[1][0]) is int
    torch.testing.assert_close(got[0].first, expected[0].first, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(got[2], expected[2], atol=1e-5, rtol=1e-5)


def counts(model: Any):
    found = model.cached.statistics
    return found["loaded"], found["traced"], found["uncached"]


Kind = Pair  # another class in the test of it


class Elsewhere(nn.Module):
    def __init__(self, folder: Any):
        super().__init__()
        self.cached = cache_compile(self.run, cache_dir=str(folder))

    def run(self, x: Any):
        return Kind(x + 1.0)


def test_an_entry_whose_result_has_a_class_that_is_not_loaded_is_passed_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "kinds_of_results.py").write_text(
        "from dataclasses import dataclass\n@dataclass\nclass Kind:\n    value: object\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "kinds_of_results", raising=False)
    module = importlib.import_module("kinds_of_results")
    monkeypatch.setitem(globals(), "Kind", module.Kind)
    x = torch.ones(2)
    for loaded in (False, True):
        model = Elsewhere(tmp_path)
        assert model.cached(x).value.tolist() == [2.0, 2.0]
        assert model.cached.statistics["loaded"] == loaded
    del sys.modules[module.__name__]
    model = Elsewhere(tmp_path)
    assert model.cached(x).value.tolist() == [2.0, 2.0]
    assert counts(model) == (0, 1, 1)


def test_one_entry_serves_all_sizes_and_later_objects(tmp_path: Path):
    torch.manual_seed(0)
    first = Model(tmp_path)
    for rows in (3, 5, 9):
        check(first, torch.randn(rows, 6))
    assert counts(first) == (0, 1, 0)
    second = Model(tmp_path)
    check(second, torch.randn(4, 6))
    assert counts(second) == (1, 0, 0)


def test_other_constants_structures_and_dtypes_are_entries_beside_it(tmp_path: Path):
    torch.manual_seed(0)
    model, x = Model(tmp_path, dynamic=False), torch.randn(3, 6)
    for _ in range(2):
        check(model, x)
        check(model, x, Pair(x))
        check(model, x, Pair(x), mode="sub")
        check(model, x, times=3)
    assert counts(model) == (0, 4, 0)
    check(Model(tmp_path, dynamic=False), x, Pair(x), mode="sub")
    other = Model(tmp_path, dynamic=False)
    check(other, x, times=3)
    assert counts(other) == (1, 0, 0)


def test_what_the_method_reads_is_noticed_when_it_changes_in_the_process(tmp_path: Path):
    torch.manual_seed(0)
    model, x = Model(tmp_path), torch.randn(3, 6)
    check(model, x)
    model.scale = 3.0
    check(model, x)
    model.scale = 2.0
    check(model, x)
    assert counts(model)[1] == 2
    hook: Any = lambda module, args, result: result + 1.0  # noqa: E731  # as torch types it
    handle = model.linear.register_forward_hook(hook)
    check(model, x)
    handle.remove()
    check(model, x)


def test_weights_may_change_in_every_way(tmp_path: Path):
    torch.manual_seed(0)
    model, x = Model(tmp_path), torch.randn(3, 6)
    check(model, x)
    model.load_state_dict({k: v * 0.5 for k, v in model.state_dict().items()})
    check(model, x)
    with torch.no_grad():
        model.linear.weight.mul_(2.0)
    check(model, x)
    model.linear.weight = nn.Parameter(torch.randn(6, 6))
    check(model, x)
    model.linear = nn.Linear(6, 6)
    check(model, x)
    check(copy.deepcopy(model), x)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    check(torch.load(file, weights_only=False), x)
    assert counts(model)[1] == 1
    model.double()
    check(model, x.double())
    assert counts(model)[1] == 2


def test_buffers_are_updated_in_place(tmp_path: Path):
    for _ in range(2):
        model = Writer(tmp_path)
        state = model.state
        with torch.no_grad():
            assert model.cached(torch.ones(4)).tolist() == [2.0] * 4
            assert model.cached(torch.ones(4)).tolist() == [4.0] * 4
        assert state is model.state and state.tolist() == [2.0] * 4


def test_what_cannot_be_kept_runs_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    model = Writer(tmp_path)
    with torch.no_grad():
        assert model.counted(torch.zeros(2)).tolist() == [1.0, 1.0]
        assert model.counted(torch.zeros(2)).tolist() == [2.0, 2.0]
    assert model.counted.statistics["uncached"] == 2
    assert "cannot be cached: it changes" in caplog.text


def test_the_number_of_entries_is_bounded(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    model = Model(tmp_path, dynamic=False, max_entries=2)
    for rows in (2, 3, 4):
        check(model, torch.randn(rows, 6))
    assert len([n for n in os.listdir(model.cached.folder) if n.endswith(".kmill")]) == 2
    assert "more than 2 entries" in caplog.text


def test_arguments_that_require_grad_are_refused(tmp_path: Path):
    with pytest.raises(RuntimeError, match="inference only"):
        Model(tmp_path).cached(torch.randn(3, 6, requires_grad=True))


def test_a_method_that_is_no_whole_graph_is_an_error(tmp_path: Path):
    class Broken(nn.Module):
        def run(self, x: Any):
            torch._dynamo.graph_break()
            return x + 1

    cached = cache_compile(Broken().run, cache_dir=str(tmp_path))
    with pytest.raises(Exception, match="graph_break"):
        cached(torch.ones(2))


class Decorated(nn.Module):
    @torch.inference_mode()
    def run(self, x: Any):
        return x


@pytest.mark.parametrize("func", [torch.sin, lambda x: x, nn.Linear(2, 2), Decorated().run])
def test_what_is_no_plain_method_is_refused(func: Any):
    with pytest.raises(InputError, match="method"):
        cache_compile(func)


def test_a_config_of_another_kind_is_refused(tmp_path: Path):
    with pytest.raises(ConfigTypeError, match="CompilerConfig"):
        Model(tmp_path, config={})


@pytest.mark.parametrize("part", ["header", "manifest", "plan", "objects"])
@pytest.mark.parametrize("damage", ["cut", "flip", "remove"])
def test_damaged_entries_are_set_aside_and_made_again(
    tmp_path: Path, part: Any, damage: Any, caplog: pytest.LogCaptureFixture
):
    model, x = Model(tmp_path), torch.randn(3, 6)
    check(model, x)
    (file,) = Path(model.cached.folder).glob("*.kmill")
    sections, data = SealedFile(file, KMILL).sections, bytearray(file.read_bytes())
    place = 60 if part == "header" else sections[part][0] + 3
    if damage == "remove":
        file.unlink()
    else:
        data[place] ^= 1
        file.write_bytes(data[:place] if damage == "cut" else data)
    again = Model(tmp_path)
    check(again, x)
    assert counts(again) == (0, 1, 0)
    last = Model(tmp_path)
    check(last, x)
    assert counts(last) == (1, 0, 0)


def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path):
    model = Model(tmp_path)
    check(model, torch.randn(3, 6))
    os.chmod(model.cached.folder, 0o777)
    with pytest.raises(StoreError, match="chmod"):
        check(Model(tmp_path), torch.randn(3, 6))


@pytest.mark.parametrize("by", ["option", "environment"])
def test_a_folder_that_others_can_write_to_is_left_alone_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, by: Any
):
    x, config = torch.randn(3, 6), CompilerConfig()
    options = {"ge_cache": True, "mmap_packed_weights": True}
    first = Model(tmp_path, **options)
    check(first, x)
    top = Path(first.cached.folder).parent
    (top / "packed").mkdir(exist_ok=True)
    for folder in (first.cached.folder, top / "packed"):
        os.chmod(folder, 0o777)
    before = {path: path.stat().st_mtime_ns for path in sorted(top.rglob("*"))}
    if by == "option":
        config.on_untrusted = "memory"
    else:
        monkeypatch.setenv("KERNELMILL_ON_UNTRUSTED", "memory")
    caplog.clear()
    again = Model(tmp_path, config=config, **options)
    check(again, x)
    check(again, torch.randn(5, 6))
    assert counts(again) == (0, 1, 0)
    assert {path: path.stat().st_mtime_ns for path in sorted(top.rglob("*"))} == before
    assert f"chmod -R go-w {first.cached.folder}" in caplog.text


def test_ranks_have_folders_of_their_own(tmp_path: Path):
    model = Model(tmp_path, global_rank=1, tp_rank=0, pp_rank=3)
    assert Path(model.cached.folder).parts[-2:] == ("world2global_rank1_tp_rank0_pp_rank3", "run")
    assert Path(model.cached.folder).parts[-3].startswith("Model_dynamic_")


@pytest.mark.parametrize("ge_cache", [True, False])
def test_objects_are_in_the_entry_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ge_cache: bool
):
    model, x = Model(tmp_path, ge_cache=ge_cache), torch.randn(3, 6)
    check(model, x)
    monkeypatch.setenv("KERNELMILL_KERNEL_META", str(tmp_path / "empty"))
    again = Model(tmp_path, ge_cache=ge_cache)
    check(again, x)
    assert counts(again) == (1, 0, 0)
    # Without them the kernels are compiled from their text.
    assert (tmp_path / "empty").exists() is not ge_cache


def test_a_cache_can_be_read(tmp_path: Path, capsys: Any):
    model = Model(tmp_path)
    check(model, torch.randn(3, 6))
    file = io.StringIO()
    text = readable_cache(model.cached.folder, file=file)
    assert capsys.readouterr().out.strip() == text.strip() == file.getvalue().strip()
    for part in (
        "input 0: self.linear.weight",
        "graph graph_",
        "scale: float ",
        "plan ",
    ):
        assert part in text
    with pytest.raises(StoreError, match="no entry"):
        readable_cache(tmp_path / "nothing")


class Typed(nn.Module):
    def __init__(self, folder: Any):
        super().__init__()
        self.cached = cache_compile(self.run, cache_dir=str(folder))

    def run(self, x: Any):
        return x * 2.0 if type(x) is torch.Tensor else x


def test_what_the_tracer_itself_puts_among_the_globals_is_found_by_other_processes(tmp_path: Path):
    model = Typed(tmp_path)
    with torch.no_grad():
        assert model.cached(torch.ones(2)).tolist() == [2.0, 2.0]
    text = readable_cache(tmp_path, print_output=False)
    assert f"{__name__}.torch.Tensor" in text
    assert "\nclass torch.Tensor" in text
    assert str(id(torch)) not in text


class Reduced(nn.Module):
    def __init__(self, folder: Any):
        super().__init__()
        self.cached = cache_compile(self.run, cache_dir=str(folder))

    def run(self, x: Any):
        return functools.reduce(lambda a, b: a + b, [x, x * 2.0])


@pytest.mark.needs_internal("dynamo.stand_ins")
def test_a_later_process_needs_nothing_of_the_tracers_own_python(tmp_path: Path):
    model = Reduced(tmp_path)
    with torch.no_grad():
        assert model.cached(torch.ones(2)).tolist() == [3.0, 3.0]
    text = readable_cache(tmp_path, print_output=False)
    assert "functools.reduce: function" in text and "torch._dynamo" not in text


SCALE: ContextVar[float] = ContextVar("SCALE", default=2.0)


class Contextual(nn.Module):
    def __init__(self, folder: Any):
        super().__init__()
        self.cached = cache_compile(self.run, cache_dir=str(folder))

    def run(self, x: Any):
        return x * SCALE.get()


@pytest.mark.skipif(
    not hasattr(torch._dynamo.source, "ContextVarGetSource"),
    reason="this torch breaks the graph at ContextVars",
)
def test_a_context_variable_is_asked_in_each_call(tmp_path: Path):
    def call(x: Any):
        with torch.no_grad():
            return model.cached(x).tolist()

    model, x = Contextual(tmp_path), torch.ones(2)
    assert [call(x) for _ in range(3)] == [[2.0, 2.0]] * 3
    token = SCALE.set(3.0)
    assert [call(x) for _ in range(3)] == [[3.0, 3.0]] * 3
    with ThreadPoolExecutor(1) as other:
        assert [other.submit(call, x).result() for _ in range(3)] == [[2.0, 2.0]] * 3
    assert call(x) == [3.0, 3.0]
    SCALE.reset(token)
    assert call(x) == [2.0, 2.0]
    assert model.cached.statistics == {"loaded": 0, "traced": 2, "uncached": 0}
    again = Contextual(tmp_path)
    with torch.no_grad():
        assert again.cached(x).tolist() == [2.0, 2.0]
    assert again.cached.statistics == {"loaded": 1, "traced": 0, "uncached": 0}


class Geared(nn.Module):
    def __init__(self, folder: Any, miss: Any):
        super().__init__()
        config = CompilerConfig()
        config.inference_config.gear_miss = miss
        self.linear = nn.Linear(6, 6)
        self.cached = cache_compile(self.run, config=config, cache_dir=str(folder))

    def run(self, x: Any):
        return torch.relu(self.linear(x))


@pytest.mark.parametrize("miss", ["error", "dynamic"])
def test_gears_survive_the_round_trip(tmp_path: Path, miss: Any):
    torch.manual_seed(0)
    for loaded in (0, 1):
        model = Geared(tmp_path, miss)
        with torch.no_grad():
            for rows in (2, 4, 2) if miss == "error" else (2, 4, 7):
                x = torch.randn(rows, 6)
                if rows == 2 and not loaded:
                    set_dim_gears(x, {0: [2, 4]})
                torch.testing.assert_close(model.cached(x), model.run(x), atol=1e-5, rtol=1e-5)
        assert counts(model) == (loaded, 1 - loaded, 0)


class Small(nn.Module):
    def __init__(self, folder: Any):
        super().__init__()
        config = CompilerConfig()
        config.inference_config.allow_small_gears = True
        config.inference_config.gear_miss = "dynamic"
        self.cached = cache_compile(self.run, config=config, cache_dir=str(folder))

    def run(self, x: Any):
        return torch.relu(x), 3


@pytest.mark.needs_internal("dynamo.marks")  # else the program for all sizes is one more
def test_small_gears_beside_an_integer_that_is_returned(tmp_path: Path):
    for loaded in (0, 1):
        model = Small(tmp_path)
        for rows in (2, 1, 3):
            x = torch.randn(rows, 6)
            if rows == 2 and not loaded:
                set_dim_gears(x, {0: [1, 2]})
            y, number = model.cached(x)
            assert torch.equal(y, torch.relu(x)) and number == 3
        assert counts(model) == (loaded, 1 - loaded, 0)


@pytest.fixture
def calls_only(monkeypatch: pytest.MonkeyPatch):
    """A later process as far as this one can be one: tracing is an error."""

    def refuse(*args: Any, **kwargs: Any):
        raise AssertionError("traced again")

    return lambda: monkeypatch.setattr("kernelmill.backend.record.record", refuse)


@pytest.mark.parametrize("sooner", ["padded", "dynamic"])
def test_calls_that_are_padded_survive_the_round_trip(
    tmp_path: Path, calls_only: Any, sooner: str, monkeypatch: pytest.MonkeyPatch
):
    cost = {True: 1e9, False: 0.0} if sooner == "padded" else {True: 0.0, False: 1e9}
    monkeypatch.setattr(padded_calls, "estimated_ns", lambda plan, _: cost[bool(plan.symbols)])
    torch.manual_seed(0)
    for loaded in (0, 1):
        if loaded:
            calls_only()
        model = Geared(tmp_path, "pad")
        with torch.no_grad():
            for rows in (4, 3, 8, 2, 7):
                x = torch.randn(rows, 6)
                if not loaded:
                    set_dim_gears(x, {0: [4, 8]})
                torch.testing.assert_close(model.cached(x), model.run(x), atol=1e-5, rtol=1e-5)
        assert counts(model) == (loaded, 1 - loaded, 0)


class Configured(nn.Module):
    def __init__(self, folder: Any, config: Any, marked: Any = True, **options: Any):
        super().__init__()
        self.linear = nn.Linear(16, 16)
        self.range = "both" if marked else None
        self.cached = cache_compile(self.run, config=config, cache_dir=str(folder), **options)

    def run(self, x: Any):
        with scope.super_kernel(self.range):
            y = torch.relu(self.linear(x))
            y = torch.softmax(self.linear(y), -1)
        return y.sum(-1, keepdim=True) + y


@pytest.mark.parametrize(
    ("kind", "dynamic"),
    [
        ("super kernels", False),
        pytest.param("gears", True, marks=pytest.mark.needs_internal("dynamo.marks")),
        ("reduce-overhead", False),
        ("reduce-overhead", True), ("static kernels", False), ("static kernels", True),
    ],
)  # fmt: skip
def test_kinds_of_programs_survive_the_round_trip(
    tmp_path: Path, kind: Any, dynamic: Any, calls_only: Any
):
    config = CompilerConfig()
    if kind in ("reduce-overhead", "static kernels"):
        config.mode = "reduce-overhead"
    if kind == "static kernels":
        static = config.experimental_config.aclgraph
        static._aclnn_static_shape_kernel = True
        static._aclnn_static_shape_kernel_build_dir = str(tmp_path)
    torch.manual_seed(0)
    for loaded in (0, 1):
        if loaded:
            calls_only()
        marked = kind == "gears" or not dynamic
        model = Configured(tmp_path / "cache", config, marked, dynamic=dynamic)
        with torch.no_grad():
            for rows in (8, 4, 8) if dynamic else (8, 8):
                x = torch.randn(rows, 16)
                if kind == "gears" and not loaded:
                    set_dim_gears(x, {0: [4, 8]})
                torch.testing.assert_close(model.cached(x), model.run(x), atol=1e-5, rtol=1e-5)
        assert counts(model) == (loaded, 1 - loaded, 0)


@pytest.mark.parametrize("ge_cache", [True, False])
def test_super_kernels_are_in_the_entry_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls_only: Any, ge_cache: bool
):
    torch.manual_seed(0)
    x = torch.randn(8, 16)
    with torch.no_grad():
        model = Configured(tmp_path, None, dynamic=False, ge_cache=ge_cache)
        model.cached(x)
        (file,) = Path(model.cached.folder).glob("*.kmill")
        assert "super " in SealedFile(file, KMILL).text("plan")
        calls_only()
        monkeypatch.setenv("KERNELMILL_KERNEL_META", str(tmp_path / "empty"))
        model = Configured(tmp_path, None, dynamic=False, ge_cache=ge_cache)
        torch.testing.assert_close(model.cached(x), model.run(x), atol=1e-5, rtol=1e-5)
    assert (tmp_path / "empty").exists() is not ge_cache


class Shared(nn.Module):
    def __init__(self, folder: Any):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.cached = cache_compile(self.run, cache_dir=str(folder))

    def run(self, x: Any):
        return x * 2.0 + self.weight


def test_an_argument_that_is_the_modules_own_is_not_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    model = Shared(tmp_path)
    with torch.no_grad():
        assert model.cached(model.weight).tolist() == [3.0] * 4
        assert model.cached(torch.zeros(4)).tolist() == [1.0] * 4
    assert counts(model) == (0, 1, 2)
    assert "an argument is what it reads elsewhere too" in caplog.text


def test_a_method_is_not_kept_with_a_torch_that_was_not_tested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(capture, "TESTED", frozenset({"1.0"}))
    model = Model(tmp_path)
    check(model, torch.randn(3, 6))
    check(model, torch.randn(5, 6))
    assert counts(model) == (0, 1, 2)
    assert "these versions have been tested: " in caplog.text
