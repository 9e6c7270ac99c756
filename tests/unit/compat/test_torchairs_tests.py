"""What TorchAir's tests ask for that no other test here asks: texts of `npu_print`, arguments that
are refused, copies to itself, operators that change nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import kernelmill
from kernelmill.compat import npu, npugraph_ex
from kernelmill.compat.marks import npu_stream_switch, op_never_timeout, super_kernel
from kernelmill.compat.printing import npu_print
from kernelmill.core.errors import KernelmillError
from tests.compiled import reported

PRINTED: list[tuple[Tensor, dict[str, Any], str]] = [
    (torch.full((10, 10), -1.0, dtype=torch.bfloat16), {"summarize_size": 1},
     "[[-1 ... -1]\n ...\n [-1 ... -1]]"),
    (torch.tensor([[1.0, 2.5], [-3.0, float("nan")]]), {"summarize_size": -1},
     "[[1 2.5]\n [-3 nan]]"),
    (torch.arange(40), {"summarize_size": -1}, f"[{' '.join(map(str, range(40)))}]"),
    (torch.tensor([1 / 3, 1e10, float("inf")], dtype=torch.float64), {},
     "[0.333333333 10000000000 inf]"),
    (torch.tensor(2.5), {}, "2.5"),
    (torch.tensor(2**53 + 1), {}, str(2**53 + 1)),
    (torch.tensor(True), {"tensor_detail": True}, "tensor(1, shape=[], dtype=torch.bool)"),
    (torch.tensor([True, False]), {}, "[1 0]"),
    (torch.empty((0, 3), dtype=torch.int32), {"tensor_detail": True},
     "tensor([], shape=[0, 3], dtype=torch.int32)"),
]  # fmt: skip


@pytest.mark.parametrize(("tensor", "options", "text"), PRINTED)
def test_a_tensor_is_printed(
    tensor: Tensor, options: dict[str, Any], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    npu_print("x =", tensor, **options)
    assert capsys.readouterr().out == f"x = {text}\n"


def test_prints_and_writes_are_in_their_order(capsys: pytest.CaptureFixture[str]) -> None:
    @torch.compile(backend="kernelmill", fullgraph=True)
    def run(x: Tensor) -> Tensor:
        npu_print(x)
        x.add_(1)
        npu_print(x)
        return x * 2

    for _ in range(2):
        run(torch.arange(2, dtype=torch.bfloat16))
        assert capsys.readouterr().out == "[0 1]\n[1 2]\n"


@pytest.mark.parametrize(
    ("arguments", "options", "kind"),
    [
        ((torch.ones(2),), {"summarize_size": 0}, ValueError),
        ((torch.ones(2),), {"summarize_size": -2}, ValueError),
        ((torch.ones(2),), {"summarize_size": 3.2}, TypeError),
        ((torch.ones(2),), {"tensor_detail": 1}, TypeError),
        ((torch.ones(2),), {"tensor_detail": "True"}, TypeError),
        (("no tensor",), {}, ValueError),
        ((torch.ones(2), [1]), {}, TypeError),
    ],
)
def test_what_cannot_be_printed_is_refused(
    arguments: tuple[Any, ...], options: dict[str, Any], kind: type[Exception]
) -> None:
    with pytest.raises(kind, match="npu_print") as caught:
        npu_print(*arguments, **options)
    assert isinstance(caught.value, KernelmillError)


def test_a_scope_without_timeout_takes_truth_values_alone() -> None:
    with (
        pytest.raises(TypeError, match="op_never_timeout: enable: 1 is neither"),
        op_never_timeout(1),
    ):  # type: ignore[reportArgumentType]
        pass


def test_streams_take_truth_values_alone() -> None:
    wrong: Any = "yes"
    with (
        pytest.raises(TypeError, match="enable_inner_parallel: 'yes' is neither"),
        npu_stream_switch("s", 0, wrong),
    ):
        pass


def test_a_method_that_records_an_event_from_outside_is_kept(tmp_path: Path) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.event, self.stream = npu.Event(), npu.Stream()
            self.cached = kernelmill.inference.cache_compile(self.run, cache_dir=str(tmp_path))

        def run(self, x: Tensor) -> Tensor:
            doubled = x * 2
            self.event.record()
            with npu.stream(self.stream):
                self.event.wait()
                return doubled + 1

    model = Model()
    assert torch.equal(model.cached(torch.ones(3)), torch.full((3,), 3.0))
    assert model.cached.statistics["uncached"] == 0
    assert len(list(tmp_path.rglob("*.kmill"))) == 1


def no_result(x: Tensor) -> None:
    x.copy_(x)


def two_results(x: Tensor) -> tuple[Tensor, Tensor]:
    x.copy_(x)
    y = x.view(-1)
    y.copy_(y)
    return x, y + 1


def real_copy(x: Tensor) -> Tensor:
    y = torch.zeros_like(x)
    y.copy_(x)
    x.copy_(x + y)
    return y


@pytest.mark.parametrize("function", [no_result, two_results, real_copy])
def test_copies_of_a_tensor_to_itself(function: Callable[[Tensor], Any]) -> None:
    x = torch.randn(3, 2)
    given, expected = x.clone(), x.clone()
    backend, _ = reported()
    found: Any = torch.compile(function, backend=backend, fullgraph=True)(given)
    torch.testing.assert_close(found, function(expected), rtol=0, atol=0)
    assert torch.equal(given, expected)


def test_operators_that_change_nothing_cost_nothing() -> None:
    def run(x: Tensor) -> Tensor:
        x = x[0:].repeat(1, 1).clone()
        x = torch.nn.functional.pad(x, (0, 0)).to(torch.int32)
        return torch.cat([x.ceil().pow(1)]).slice_scatter(x, 0, 0) + 1

    backend, reports = reported()
    x = torch.arange(12, dtype=torch.int32).view(3, 4)
    assert torch.equal(torch.compile(run, backend=backend, fullgraph=True)(x), x + 1)
    (report,) = reports
    assert [kernel.launches for kernel in report.kernels] == [1]


@pytest.mark.parametrize(
    ("door", "cache_compile"),
    [(kernelmill, kernelmill.inference.cache_compile), (npugraph_ex, npugraph_ex.cache_compile)],
)
def test_a_config_beside_a_backend_says_the_same(door: Any, cache_compile: Any) -> None:
    class Model(torch.nn.Module):
        def run(self, x: Tensor) -> Tensor:
            return x + 1

    configs = [door.CompilerConfig() for _ in range(3)]
    for config in configs[:2]:
        config.post_grad_custom_pre_pass = print
    backend = door.get_npu_backend(compiler_config=configs[0])
    for config in configs[:2]:
        assert cache_compile(Model().run, config=config, backend=backend)
    with pytest.raises(ValueError, match="a backend with another one"):
        cache_compile(Model().run, config=configs[2], backend=backend)


def test_streams_are_arguments_of_code_for_all_sizes() -> None:
    def run(x: Tensor, stream: npu.Stream) -> Tensor:
        with npu.stream(stream):
            return torch.cat([x.exp(), x.sin()])

    backend, reports = reported()
    compiled = torch.compile(run, backend=backend, dynamic=True, fullgraph=True)
    for size in (8, 9):
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x, npu.Stream(priority=-1)), run(x, npu.Stream()))
    assert len(reports) >= 1


def test_a_pool_of_graphs_has_no_effect() -> None:
    config = kernelmill.CompilerConfig()
    with pytest.warns(UserWarning, match="aclgraph_config.use_custom_pool has no effect"):
        config.aclgraph_config.use_custom_pool = npu.graph_pool_handle()
    with pytest.raises(TypeError, match="use_custom_pool: 3 is no tuple"):
        config.aclgraph_config.use_custom_pool = 3  # type: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("kind", ["txt", "pbtxt", "py"])
def test_the_folder_of_graphs_is_made(kind: Any, tmp_path: Path) -> None:
    config = kernelmill.CompilerConfig()
    config.debug.graph_dump.type = kind
    config.debug.graph_dump.path = str(tmp_path / "none" / "yet")
    torch._dynamo.reset()
    torch.compile(torch.add, backend=kernelmill.get_backend(compiler_config=config))(
        torch.ones(2), torch.ones(2)
    )
    names = sorted(path.name.split("_graph_")[0] for path in tmp_path.rglob(f"*.{kind}"))
    assert names == ["dynamo_optimized", "dynamo_original"]


def test_what_is_returned_twice_is_one_tensor() -> None:
    backend, _ = reported()
    first, _, last = torch.compile(lambda x: (x, x + 1, x), backend=backend)(x := torch.ones(2))
    assert first is last is x


def test_views_go_through_ranges_and_streams() -> None:
    def run(x: Tensor) -> Tensor:
        with super_kernel("outer"):
            turned = x.view(2, 32).transpose(0, 1)
            with super_kernel("inner"):
                flat = turned.reshape(64) + 1
            doubled = flat.view(8, 8) * 2
        with npu_stream_switch("s"):
            return doubled.reshape(64) * 2

    backend, _ = reported()
    x = torch.randn(64)
    assert torch.equal(torch.compile(run, backend=backend, fullgraph=True)(x), run(x))


def test_results_go_where_out_says() -> None:
    def run(x: Tensor, y: Tensor) -> Tensor:
        return torch.add(x, 10, out=x) + torch.mul(y, 10, out=y)

    backend, _ = reported()
    given, expected = [[torch.ones(4), torch.ones(4)] for _ in range(2)]
    found = torch.compile(run, backend=backend, fullgraph=True)(*given)
    assert torch.equal(found, run(*expected))
    torch.testing.assert_close(given, expected, rtol=0, atol=0)
