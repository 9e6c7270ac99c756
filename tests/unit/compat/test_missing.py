"""What is said about names that are not there."""

import operator
from types import ModuleType

import pytest
import torch

from kernelmill.compat.install import BY_MEANING, OF_TORCH, nearest_text, refuse_missing
from kernelmill.compat.operators import OPERATORS

KNOWN = ["torch_npu", "torch_npu.npu_quant_matmul", "torchair.scope.super_kernel"]


def test_the_nearest_name_is_found_in_any_module():
    text = nearest_text("torchair.ops.Super_Kernels", KNOWN)
    assert "the nearest that is: torchair.scope.super_kernel;" in text


def test_what_is_like_nothing_has_no_nearest():
    assert "nearest" not in nearest_text("torch_npu.xyz", KNOWN)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("torch_npu.npu_quant_matmull", "torch_npu.npu_quant_matmul"),
        ("torch_npu.npu_fusion_attention", "torch.nn.functional.scaled_dot_product_attention"),
        ("torch_npu.npu_prompt_flash_attention", "torch_npu.npu_fused_infer_attention_score"),
        ("torchair.dynamo_export", "kernelmill.aot.compile"),
        ("torchair.ge", "custom_decompositions of torchair.get_npu_backend"),
        ("torch_npu.npu_dynamic_quant", "torch_npu.npu_quant_matmul"),
        ("torch_npu.npu_weight_quant_mm", "torch_npu.npu_quant_matmul"),
        ("torch.npu.synchronise", "torch.npu.synchronize"),
        ("torch.npu.current_streams", "torch.npu.current_stream"),
        ("torch.npu.memory_allocated", ""),
        ("torch.npu.Graph", 'torch.compile(backend="npugraph_ex")'),
        ("torch_npu.npu_rotary_mul", ""),
        ("torchair._ge_concrete_graph", "custom_decompositions of torchair.get_npu_backend"),
        ("torch_npu.distributed", "torch.distributed"),
        ("torch.npu.set_stream_limit", "torchair.scope.limit_core_num"),
    ],
)
def test_the_nearest_thing_does_what_the_name_says(name: str, nearest: str) -> None:
    names = ("synchronize", "empty_cache", "amp", "current_stream", "is_available")
    known = [*KNOWN, "torch.npu", "torchair.scope.npu_wait_tensor"]
    text = nearest_text(name, [*known, *(f"torch.npu.{each}" for each in names)])
    assert text.startswith(f"{name} is not in kernelmill; ")
    assert text.partition("the nearest that is: ")[2].partition(";")[0] == nearest


@pytest.mark.parametrize("name", OF_TORCH.values())
def test_what_torch_has_is_there(name: str) -> None:
    assert callable(operator.attrgetter(name.removeprefix("torch."))(torch))


def test_operators_that_are_meant_are_there() -> None:
    meant = {name for name in BY_MEANING.values() if name.startswith("torch_npu.")}
    assert {name.removeprefix("torch_npu.") for name in meant} <= {*OPERATORS}
    assert not {*BY_MEANING} & {*OPERATORS}, "these are there themselves"


a_module = ModuleType("a_module")
refuse_missing(a_module, lambda: ["a_module.npu_relu"])


def calls_what_is_missing(x: torch.Tensor) -> torch.Tensor:
    return a_module.npu_rely(x)


def does_without(x: torch.Tensor) -> torch.Tensor:
    if hasattr(a_module, "npu_rely"):
        return x + 1.0
    try:
        return a_module.npu_rely(x)
    except AttributeError:
        return x * 2.0


def compiled(function):
    return torch.compile(function, backend="eager", fullgraph=True)


def test_an_error_of_a_whole_graph_names_what_is_missing():
    with pytest.raises(torch._dynamo.exc.Unsupported, match="the nearest that is: a_module"):
        compiled(calls_what_is_missing)(torch.ones(2))


def test_compiled_code_can_ask_what_there_is():
    torch.testing.assert_close(compiled(does_without)(torch.ones(2)), torch.full((2,), 2.0))
