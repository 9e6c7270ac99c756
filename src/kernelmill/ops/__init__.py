"""Quantised operators, with the names, arguments and results that torch_npu gives them."""

from kernelmill.ops.dequant_swiglu_quant import dequant_swiglu_quant
from kernelmill.ops.format_cast import format_cast
from kernelmill.ops.quant_matmul import quant_matmul
from kernelmill.ops.weight_quant_matmul import weight_quant_matmul

__all__ = ["dequant_swiglu_quant", "format_cast", "quant_matmul", "weight_quant_matmul"]
