"""The documents beside an object: what the operator is (.info) and how to launch it (.json).

Field names are those of MindSpore's kernel_meta, so that its tools and habits carry over.
"""

from __future__ import annotations

from typing import Any

from kernelmill.core.dim import symbols
from kernelmill.core.target import Target
from kernelmill.kernel.ir import Buffer, Kernel
from kernelmill.kernel.printer import print_kernel

MAGIC = "KM_CPU_BINARY_MAGIC_ELF"


def describe(
    kernel: Kernel, operators: tuple[str, ...], target: Target, name: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(info, launch) of a kernel that is kept under `name`."""
    inputs = [_tensor(b) for b in kernel.buffers if b.access != "out"]
    outputs = [_tensor(b) for b in kernel.buffers if b.access != "in"]
    info: dict[str, Any] = {
        "SocInfo": {
            "socVersion": target.cpu,
            "triple": target.triple,
            "features": list(target.features),
            "vectorBits": target.vector_bits,
            "coreType": "CPU",
        },
        "op_info": {
            "Type": kernel.type,
            "attrs": {"operators": list(operators)},
            "full_name": f"Default/{kernel.type}",
            "gen_model": "single" if len(operators) == 1 else "fused",
            "graph_id": 0,
            "inputs": [[tensor] for tensor in inputs],
            "outputs": [[tensor] for tensor in outputs],
            "is_dynamic_shape": bool(kernel.dims),
            "kernel_name": name,
            "module_name": "kernelmill.lower",
            "name": kernel.type.lower(),
            "py_module_path": "kernelmill",
            "socVersion": target.cpu,
        },
        "impl_path": "",
        "platform": "LLVM",
        "kernel_ir": print_kernel(kernel, name=False),
    }
    launch = {
        "batchBindOnly": 1,
        "blockDim": kernel.tasks if isinstance(kernel.tasks, int) else str(kernel.tasks),
        "kernelName": kernel.name,
        "magic": MAGIC,
        "opParaSize": 8 * len(kernel.dims),
        "parameters": [0] * len(kernel.buffers),
        "access": [buffer.access for buffer in kernel.buffers],
        "dims": [symbol.name for symbol in kernel.dims],
        "scratch": kernel.scratch if isinstance(kernel.scratch, int) else str(kernel.scratch),
    }
    return info, launch


def _tensor(buffer: Buffer) -> dict[str, Any]:
    """A buffer is flat: its shape is its number of elements, -1 where that is symbolic."""
    dynamic = bool(symbols(buffer.elements))
    size = -1 if dynamic else buffer.elements
    return {
        "dtype": buffer.dtype.torch_name,
        "format": "ND",
        "name": buffer.name,
        "ori_format": "ND",
        "ori_shape": [size],
        "param_type": "required",
        "range": [[1, None] if dynamic else [size, size]],
        "shape": [size],
        "valid": True,
    }
