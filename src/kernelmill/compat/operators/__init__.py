"""Operators of torch_npu that scripts for language models call: composites of ATen operators, in
the library `kernelmill` under the names of torch_npu. `OPERATORS` has them by name.

Signatures, shapes and types are those of the op-plugin (docs/zh/custom_APIs/torch_npu, and
op_plugin/config/op_plugin_functions.yaml). Limits of an NPU's hardware (sizes, alignment) do not
apply; float32 is accepted wherever a half type is. Sums are in float32, and results are rounded
once. InputError for arguments that do not fit, and for those that have no composite.
"""

from kernelmill.compat.operators.attention import OF_LENGTHS
from kernelmill.compat.operators.table import OPERATORS

__all__ = ["OF_LENGTHS", "OPERATORS"]
