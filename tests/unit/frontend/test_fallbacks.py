"""What runs as ATen: how it is encoded, what it is given, and sizes that it finds."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from kernelmill.core.dtype import BF16
from kernelmill.graph.ir import Node
from tests.unit.frontend.tracing import Traced, trace

DYNAMIC = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}


def aten_nodes(traced: Traced) -> list[Node]:
    return [node for graph in traced.graphs for node in graph.nodes if node.op == "aten"]


def test_arguments_are_encoded() -> None:
    traced = trace(lambda x: torch.kthvalue(x, 2, 1, True)[0].mode(1)[0], torch.randn(3, 5))
    second, mode = aten_nodes(traced)
    assert second.attrs["target"] == "aten.kthvalue.default"
    assert second.attrs["args"] == (("tensor", 0), 2, 1, True)
    assert second.attrs["reason"] == "no translation"
    assert mode.attrs["args"] == (("tensor", 0), 1)


def test_dtypes_sizes_and_lists_are_encoded() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.randint(3, (x.shape[0], 2), dtype=torch.int64).bfloat16() * 0 + x[:, :2]

    traced = trace(function, torch.randn(6, 5).bfloat16(), dynamic=True)
    (draw,) = aten_nodes(traced)
    arguments: Any = draw.attrs["args"]
    assert arguments[-1][0] == "list" and str(arguments[-1][1]).startswith("s")
    assert ("device", "cpu") in [value for _, value in draw.attrs["kwargs"]]  # type: ignore[union-attr, misc]
    assert traced.graph.nodes[-1].result.dtype == BF16


def test_operands_lie_in_memory_as_traced() -> None:
    traced = trace(lambda x: torch.mode((x + 1).t(), 0)[0], torch.randn(3, 4))
    (mode,) = aten_nodes(traced)
    assert mode.operands[0].type.strides == (1, 4)


def test_opaque_dtypes_flow_through_aten_alone() -> None:
    traced = trace(lambda x: torch.fft.rfft(x).abs() * 2, torch.randn(8))
    assert "aten._fft_r2c.default" in traced.fallbacks()
    assert traced.operators()[-1] == "mul"


def test_lazy_negation_of_a_real_view_is_resolved() -> None:
    x = torch.randn(4, dtype=torch.complex64)
    assert "aten.resolve_neg.default" in trace(lambda x: x.conj().imag * 2, x).fallbacks()


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (lambda x: x[x > 0] * 2, (torch.tensor([1.0, -1.0, 2.0]),)),
        (lambda x: x.nonzero() + 1, (torch.tensor([1.0, 0.0, 2.0]),)),
        (lambda x, i: x * i.item() + i.item(), (torch.ones(5), torch.tensor(3))),
        (lambda x: x * x.sum().item(), (torch.ones(3),)),
    ],
)
def test_sizes_and_numbers_found_while_running(function: Any, args: tuple[Tensor, ...]) -> None:
    with torch._dynamo.config.patch(**DYNAMIC):
        trace(function, *args, fullgraph=True)


def test_checks_of_found_sizes_stay() -> None:
    def function(x: Tensor, i: Tensor) -> Tensor:
        count = i.item()
        torch._check(count <= x.shape[0])
        return x * count

    with torch._dynamo.config.patch(**DYNAMIC), torch.no_grad():
        traced = Traced(function, {"fullgraph": True})
        assert traced(torch.ones(5), torch.tensor(4)).tolist() == [4.0] * 5
        with pytest.raises(RuntimeError):
            torch.compile(traced.function, backend=traced._backend)(torch.ones(5), torch.tensor(9))


def test_custom_operators_run_as_themselves() -> None:
    @torch.library.custom_op("kernelmill_tests::thrice", mutates_args=())
    def thrice(x: Tensor) -> Tensor:
        return x * 3

    @thrice.register_fake
    def _(x: Tensor) -> Tensor:
        return torch.empty_like(x)

    traced = trace(lambda x: thrice(x + 1) * 2, torch.ones(3))
    assert traced.fallbacks() == ["kernelmill_tests.thrice.default"]


def test_errors_of_linear_algebra_are_raised() -> None:
    traced = trace(lambda x: torch.linalg.inv(x) + 1, torch.eye(3))
    assert "aten._linalg_check_errors.default" in traced.fallbacks()
    with torch.no_grad(), pytest.raises(torch.linalg.LinAlgError):
        traced(torch.zeros(3, 3))
