"""What is said about names that are not there."""

from kernelmill.compat.missing import nearest_text

KNOWN = ["torch_npu", "torch_npu.npu_quant_matmul", "torchair.scope.super_kernel"]


def test_the_nearest_name_is_found_in_any_module():
    text = nearest_text("torchair.ops.Super_Kernels", KNOWN)
    assert "the nearest that is: torchair.scope.super_kernel;" in text


def test_what_is_like_nothing_has_no_nearest():
    assert "nearest" not in nearest_text("torch_npu.xyz", KNOWN)
