"""Super-kernel ranges through torch.compile: what fuses, what splits, and that results stay."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import kernelmill
from kernelmill.backend import Backend
from kernelmill.compat import npu
from kernelmill.core import knobs
from kernelmill.inference import cache_compile
from kernelmill.plan.ir import WHOLE_TEAM, Plan, thread_range
from kernelmill.scope import (
    limit_threads,
    record,
    stream_switch,
    super_kernel,
    wait,
    wait_tensor,
)


@pytest.fixture(autouse=True)
def processors(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """So many processors are there to plan for, two if nothing else is said: how many a test
    process may use is for others to say, and may change while it runs."""
    count: int = getattr(request, "param", 2)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(count)))
    return count


class Layers(nn.Module):
    """Eight kernels in a range."""

    def __init__(self, scope: str | None, options: str = "", width: int = 128) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(4))
        self.scope, self.options = scope, options

    def forward(self, x: Tensor) -> Tensor:
        with super_kernel(self.scope, self.options):
            for layer in self.layers:
                x = torch.softmax(layer(x), -1)
            return x


def run(model: nn.Module, *args: Tensor) -> Tensor:
    with torch.no_grad():
        compiled = torch.compile(model, backend=kernelmill.get_backend(), fullgraph=True)
        compiled(*args)
        return compiled(*args)


def ranges(model: nn.Module, *args: Tensor) -> list[dict[str, object]]:
    with torch.no_grad():
        return kernelmill.explain(model, *args).as_dict()["super_kernel_ranges"]


X = torch.randn(64, 128, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("options", ["", "stream-fusion=1", "debug-sync-all=1"])
def test_bit_identical(options: str) -> None:
    assert torch.equal(run(Layers("sp1", options), X), run(Layers(None), X))


def test_explain() -> None:
    (one,) = ranges(Layers("sp1"), X)
    (made,) = one["supers"]  # type: ignore[misc]
    assert one["scope"] == "sp1" and not one["splits"]
    assert made["name"].startswith("sk_sp1_start_MatMul")
    assert len(made["kernels"]) == 8
    assert made["barriers"] + made["elided"] == 7
    assert ranges(Layers(None), X) == []


def test_driver_is_kept() -> None:
    run(Layers("kept"), X)
    kept = Path(knobs.KERNEL_META.get()[-1]).glob("sk_kept_start_*")
    assert {path.suffix for path in kept} >= {".o", ".info", ".json"}


class Rising(nn.Module):
    """ATen finds running maxima between two parts that can be fused."""

    def __init__(self, options: str = "") -> None:
        super().__init__()
        self.options = options

    def forward(self, x: Tensor) -> Tensor:
        with super_kernel("sp1", self.options):
            x = torch.softmax(torch.softmax(x, -1), 0)
            x = torch.cummax(x, dim=-1)[0]
            return torch.softmax(torch.softmax(x, -1), 0)


def test_an_aten_operator_splits_the_range() -> None:
    (one,) = ranges(Rising(), X)
    assert len(one["supers"]) == 2  # type: ignore[arg-type]
    (reason,) = one["splits"]  # type: ignore[misc]
    assert "cummax" in reason and "runs in ATen" in reason
    torch.testing.assert_close(run(Rising(), X), Rising()(X))


def test_a_kernel_alone_stays_a_launch_and_that_is_told() -> None:
    def model(x: Tensor) -> Tensor:
        with super_kernel("lonely"):
            return torch.softmax(x, -1)

    with torch.no_grad():
        report = kernelmill.explain(model, X)
    assert "range lonely: 0 super kernels\n    stays a launch, alone: Reduce" in str(report)


def test_a_split_is_logged_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING", "kernelmill.superkernel"):
        run(Rising(), X)
    (text,) = {record.getMessage() for record in caplog.records}
    assert "range 'sp1' is split" in text and "cummax" in text and "runs in ATen" in text


def test_abort_refuses_a_split() -> None:
    with pytest.raises(Exception, match=r"strict-scope-check=abort.*cummax"):
        run(Rising("strict-scope-check=abort"), X)


def test_taken_out_and_inner_scopes() -> None:
    def both(x: Tensor) -> Tensor:
        return torch.softmax(torch.softmax(x @ x, -1) @ x, -1)

    def model(x: Tensor) -> Tensor:
        with super_kernel("outer"):
            x = both(x)
            with super_kernel(None):
                x = both(x)
            x = both(x)
            with super_kernel("inner"):
                x = both(x)
        with super_kernel("outer"):
            return both(x)

    x = torch.randn(64, 64)
    outer, inner = ranges(model, x)  # type: ignore[arg-type]
    assert (outer["scope"], inner["scope"]) == ("outer", "inner")
    assert [len(s["kernels"]) for s in outer["supers"]] == [4, 4, 4]  # type: ignore[attr-defined]
    assert [len(s["kernels"]) for s in inner["supers"]] == [4]  # type: ignore[attr-defined]
    assert len(outer["splits"]) == 8  # type: ignore[arg-type]
    assert all("is not in the range" in reason for reason in outer["splits"])  # type: ignore


def test_a_dynamic_graph_is_an_error() -> None:
    with torch.no_grad():
        compiled = torch.compile(
            Layers("sp1"), backend=kernelmill.get_backend(), dynamic=True, fullgraph=True
        )
        with pytest.raises(Exception, match=r"'sp1' at \S+ in forward .* in a graph with dynamic"):
            compiled(X)


@pytest.mark.parametrize("options", ["stream-fusion", "fusion=1", "stream-fusion=7"])
def test_bad_options_are_errors(options: str) -> None:
    with pytest.raises(Exception, match=r"super_kernel .*at test_super_kernel.py:\d+ in forward"):
        run(Layers("sp1", options), X)


class Towers(nn.Module):
    """Two towers that meet at the end."""

    def __init__(self, options: str, tagged: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.towers = nn.ModuleList(
            nn.ModuleList(nn.Linear(256, 256) for _ in range(3)) for _ in range(2)
        )
        self.options, self.tagged = options, tagged

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        with super_kernel("towers", self.options):
            if not self.tagged:
                return self.tower(0, x) + self.tower(1, y)
            with stream_switch("a"):
                x = self.tower(0, x)
            with stream_switch("b", 1):
                y = self.tower(1, y)
            return x + y

    def tower(self, number: int, x: Tensor) -> Tensor:
        for layer in self.towers[number]:  # type: ignore[union-attr]
            x = torch.softmax(layer(x), -1)
        return x


@pytest.mark.parametrize("processors", [1, 2, 8], indirect=True)
def test_streams(processors: int) -> None:
    x, y = torch.randn(2, 4, 256)
    plain = run(Towers(""), x, y)
    assert torch.equal(run(Towers("stream-fusion=1"), x, y), plain)
    assert ranges(Towers(""), x, y)[0]["supers"][0]["streams"] == 1  # type: ignore[index]
    expected = min(2, processors)
    fused = ranges(Towers("stream-fusion=1"), x, y)[0]["supers"]
    assert fused[0]["streams"] == expected  # type: ignore[index]
    tagged = ranges(Towers("", tagged=True), x, y)[0]["supers"]
    assert tagged[0]["streams"] == expected  # type: ignore[index]


class Ordered(nn.Module):
    """Two independent chains on streams of their own, the second perhaps after the first."""

    def __init__(self, ordered: bool) -> None:
        super().__init__()
        self.ordered = ordered

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        with super_kernel("ordered"):
            with stream_switch("a"):
                x = torch.softmax(x @ x, -1)
            if self.ordered:
                y = wait_tensor(y, x)
            with stream_switch("b"):
                return x, torch.softmax(y @ y, -1)


def test_wait_tensor_orders_streams() -> None:
    x, y = torch.randn(2, 64, 64)
    barriers = [
        ranges(Ordered(ordered), x, y)[0]["supers"][0]["barriers"]  # type: ignore[index]
        for ordered in (False, True)
    ]
    assert barriers[1] == barriers[0] + 1
    with torch.no_grad():
        results = [
            torch.compile(Ordered(ordered), backend=kernelmill.get_backend(), fullgraph=True)(x, y)
            for ordered in (False, True)
        ]
    assert all(map(torch.equal, *results))


def test_gradients_pass_wait_tensor() -> None:
    x, y = torch.randn(2, 16, 16, requires_grad=True)
    leaves = [x.detach().requires_grad_(), y.detach().requires_grad_()]
    compiled = torch.compile(Ordered(True), backend=kernelmill.get_backend(), fullgraph=True)
    sum(result.square().sum() for result in compiled(*leaves)).backward()  # type: ignore
    got = [leaf.grad for leaf in leaves]
    wanted = [leaf.detach().requires_grad_() for leaf in leaves]
    sum(result.square().sum() for result in Ordered(False)(*wanted)).backward()  # type: ignore
    for gradient, leaf in zip(got, wanted, strict=True):
        torch.testing.assert_close(gradient, leaf.grad)


STOPPED = """
import select, sys, torch, kernelmill
from tests.e2e.test_super_kernel import Layers
torch.set_num_threads(8)
model = Layers("sp1", "debug-sync-all=1")
x = torch.randn(512, 128)
with torch.no_grad():
    compiled = torch.compile(model, backend=kernelmill.get_backend(), fullgraph=True)
    wanted = compiled(x)
    while not select.select([sys.stdin], [], [], 0)[0]:
        print("begun", flush=True)
        for _ in range(10):
            assert torch.equal(compiled(x), wanted)
"""


def test_more_threads_than_cores_and_stopped_in_between() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    try:
        assert process.stdin is not None and process.stdout is not None
        for _ in range(10):
            assert process.stdout.readline() == "begun\n"
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
            process.send_signal(signal.SIGCONT)
        process.stdin.close()
        assert set(process.stdout) <= {"begun\n"}
        assert process.wait(600) == 0
    finally:
        process.kill()


@pytest.mark.parametrize(("rows", "width"), [(1, 32), (512, 128)])
def test_automatic_ranges_only_where_it_pays(rows: int, width: int) -> None:
    config = kernelmill.CompilerConfig()
    config.experimental_config.super_kernel_optimize = True
    x = torch.randn(rows, width)
    model = Layers(None, width=width)
    with torch.no_grad():
        found = kernelmill.explain(model, x, compiler_config=config)
        fused = found.as_dict()["super_kernel_ranges"]
        assert [one["scope"] for one in fused] == (["(automatic)"] if rows > 1 else [])
        backend = kernelmill.get_backend(compiler_config=config)
        assert torch.equal(torch.compile(model, backend=backend)(x), run(model, x))


@pytest.mark.parametrize("debug", [None, {"debug-sync-all": 1}])
def test_captures_become_super_kernels(debug: dict[str, int] | None) -> None:
    """Kernels for all sizes, called with those of a capture, are fused like others."""
    x = torch.randn(512, 128)
    found: list[Tensor] = []
    for fused in (False, True):
        config = kernelmill.CompilerConfig()
        config.mode = "reduce-overhead"
        config.experimental_config.aclgraph._super_kernel_optimize = fused
        config.experimental_config.aclgraph._super_kernel_debug_options = debug
        with torch.no_grad():
            shown = kernelmill.explain(Layers(None), x, compiler_config=config).as_dict()
            kept = shown["super_kernel_ranges"]
            assert sum(len(one["supers"]) for one in kept) == fused
            backend = kernelmill.get_backend(compiler_config=config)
            found.append(torch.compile(Layers(None), backend=backend)(x))
    assert torch.equal(*found)


def test_gradients() -> None:
    model = Layers("trained")
    torch.compile(model, backend=kernelmill.get_backend())(X).square().sum().backward()
    got = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    model(X).square().sum().backward()
    for parameter, gradient in zip(model.parameters(), got, strict=True):
        torch.testing.assert_close(gradient, parameter.grad)


def test_quantised_operators_in_a_range() -> None:
    """Matmul of int8 and what follows it, with and without a range."""
    m, k, n = 54, 448, 256
    x1 = torch.randint(-10, 10, (m, k), dtype=torch.int8)
    x2 = torch.randint(-10, 10, (n, k), dtype=torch.int8)
    x2 = kernelmill.ops.format_cast(x2.transpose(1, 0).contiguous(), 29)
    scale, per_token, weight_scale = torch.randn(n), torch.randn(m), torch.randn(m, n)

    def model(scope: str | None) -> list[Tensor]:
        def run(x1: Tensor, x2: Tensor) -> tuple[Tensor, ...]:
            with super_kernel(scope):
                product = kernelmill.ops.quant_matmul(
                    x1, x2, scale, pertoken_scale=per_token, output_dtype=torch.bfloat16
                )
                swiglu = kernelmill.ops.dequant_swiglu_quant(product, weight_scale=weight_scale)
                return (*swiglu, product)

        return list(torch.compile(run, backend=kernelmill.get_backend(), dynamic=False)(x1, x2))

    assert all(map(torch.equal, model("sp1"), model(None)))


class Cached(Layers):
    """The layers by way of a compile cache."""

    def __init__(self, folder: Path) -> None:
        super().__init__("cached")
        self.cached = cache_compile(self.compute, cache_dir=str(folder), dynamic=False)

    def compute(self, x: Tensor) -> Tensor:
        return Layers.forward(self, x)


def test_the_compile_cache_keeps_super_kernels(tmp_path: Path) -> None:
    wanted = run(Layers("cached"), X)
    for loaded in (0, 1):
        model = Cached(tmp_path)
        with torch.no_grad():
            assert torch.equal(model.cached(X), wanted)
        found = model.cached.statistics
        assert (found["loaded"], found["traced"], found["uncached"]) == (loaded, 1 - loaded, 0)


class Branches(nn.Module):
    """Two products that may run beside each other, on two streams."""

    def __init__(
        self, options: str = "", waits: bool = False, event: npu.Event | None = None
    ) -> None:
        super().__init__()
        self.options, self.waits, self.event = options, waits, event

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        with super_kernel("sp", self.options):
            with stream_switch("a"):
                left = torch.softmax(x @ y, -1)
                point = record() if self.event is None else self.event.record()
            with stream_switch("b"):
                if self.waits and self.event is not None:
                    self.event.wait()
                elif self.waits:
                    wait([point])
                right = torch.softmax(y @ x, -1)
            return left @ right


def parts(model: nn.Module, *args: Tensor) -> list[list[tuple[int, int]]]:
    """The parts of the team of each super kernel's launches."""
    plans: list[Plan] = []
    backend = Backend(on_compiled=lambda made: plans.append(made.draft.lowered.plan))
    with torch.no_grad():
        torch.compile(model, backend=backend, fullgraph=True, dynamic=False)(*args)
    return [list(made.parts) for plan in plans for made in plan.supers]


Y = torch.randn(128, 128, generator=torch.Generator().manual_seed(2))


def test_stream_fusion_0_is_the_default_of_two_streams() -> None:
    (two,), (same,) = parts(Branches(), Y, Y), parts(Branches("stream-fusion=0"), Y, Y)
    assert len({part for part in two if part != WHOLE_TEAM}) == 2
    assert same == two
    assert torch.equal(run(Branches("stream-fusion=0"), Y, Y), run(Branches(), Y, Y))


@pytest.mark.parametrize("processors", [4], indirect=True)
def test_a_range_has_as_many_threads_as_its_cores_say(processors: int) -> None:
    x = torch.randn(256, 256)

    def threads(options: str) -> int:
        (found,) = parts(Layers("sp1", options, 256), x)
        return max(len(thread_range(part, processors)) for part in found)

    assert threads("") == processors
    assert threads("debug-aic-num=2") == threads("debug-aic-num=1:debug-aiv-num=2") == 2
    one = run(Layers("sp1", "debug-aiv-num=1", 256), x)
    assert torch.equal(one, run(Layers(None, width=256), x))


class Limited(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        with limit_threads(1):
            x = torch.softmax(x @ x, -1)
        return torch.softmax(x @ x, -1)


@pytest.mark.parametrize("processors", [4], indirect=True)
def test_a_limit_of_threads_holds_for_what_is_inside(processors: int) -> None:
    x = torch.randn(256, 256)
    (found,) = parts(Limited(), x)
    assert {len(thread_range(part, processors)) for part in found} == {1}
    assert torch.allclose(run(Limited(), x), Limited()(x), atol=1e-5)
    before = torch.get_num_threads()
    with limit_threads(1):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before
    with pytest.raises(kernelmill.ConfigError, match="0 is no whole number from 1"):
        limit_threads(0).__enter__()


def test_what_was_recorded_is_waited_for() -> None:
    def waits(model: nn.Module) -> int:
        plans: list[Plan] = []
        backend = Backend(on_compiled=lambda made: plans.append(made.draft.lowered.plan))
        with torch.no_grad():
            torch.compile(model, backend=backend, fullgraph=True, dynamic=False)(Y, Y)
        return sum(step.mark.awaited != frozenset() for plan in plans for step in plan.steps)

    assert waits(Branches()) == 0 < waits(Branches(waits=True))
    assert waits(Branches(event=npu.Event())) == 0 < waits(Branches(waits=True, event=npu.Event()))
    assert torch.equal(run(Branches(waits=True), Y, Y), run(Branches(), Y, Y))
