"""Documents of an object: the operator (.info) and the launch (.json).

Field names are those of MindSpore's kernel_meta, so that its tools and habits carry over.
"""

from __future__ import annotations

from typing import Any

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, bounds, symbols
from kernelmill.core.target.isa import Isa
from kernelmill.kernel.ir import Buffer, Kernel
from kernelmill.kernel.printer import print_kernel

MAGIC = "KM_CPU_BINARY_MAGIC_ELF"


@dataclass(frozen=True)
class Use:
    """The first use of a kernel, described in the .info but not part of the key.

    operators   names of the graph's operators that it computes
    shapes      of the tensors behind its buffers, in its order; empty when they are not known
    graph       name of the program
    origin      the user's line, "model.py:12"
    text        the kernel's, without its name; it is printed where none is given
    """

    operators: tuple[str, ...]
    shapes: tuple[tuple[Dim, ...], ...] = ()
    graph: str = ""
    origin: str = ""
    text: str = ""


def describe(
    kernel: Kernel, use: Use, isa: Isa, name: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (info, launch) of a kernel that is stored under `name`."""
    operators = use.operators
    shapes = use.shapes or tuple((buffer.elements,) for buffer in kernel.buffers)
    tensors = list(zip(kernel.buffers, shapes, strict=True))
    inputs = [_tensor(b, shape) for b, shape in tensors if b.access != "out"]
    outputs = [_tensor(b, shape) for b, shape in tensors if b.access != "in"]
    info: dict[str, Any] = {
        "SocInfo": _processor(isa),
        "op_info": {
            "Type": kernel.type,
            "attrs": {"operators": list(operators), "origin": use.origin},
            "full_name": f"{use.graph or 'Default'}/{kernel.type}",
            "gen_model": "single" if len(operators) == 1 else "fused",
            "graph_id": _trailing_number(use.graph),
            "inputs": [[tensor] for tensor in inputs],
            "outputs": [[tensor] for tensor in outputs],
            "is_dynamic_shape": bool(kernel.dims),
            "kernel_name": name,
            "module_name": "kernelmill.lower",
            "name": kernel.type.lower(),
            "py_module_path": "kernelmill",
            "socVersion": isa.cpu,
        },
        "impl_path": "",
        "platform": "LLVM",
        "kernel_ir": use.text or print_kernel(kernel, name=False),
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


def _processor(isa: Isa) -> dict[str, Any]:
    """Return the fields of MindSpore's SocInfo, and ours. Those of Ascend buffers and modes have
    the values that apply here: tiles are chosen by rules (no tuning bank), nothing is fused into an
    L1 or L2 buffer by hand, and there is one implementation of each operator."""
    return {
        "autoTilingMode": "NO_TUNE",
        "coreNum": "",
        "coreType": "CPU",
        "l1Fusion": "false",
        "l2Fusion": "false",
        "l2Mode": "0",
        "op_debug_level": "",
        "op_impl_mode": "",
        "op_impl_mode_list": [],
        "socVersion": isa.cpu,
        "triple": isa.triple,
        "features": isa.llvm_features,
        "vectorBits": isa.vector_bits,
    }


def _trailing_number(graph: str) -> int:
    """Return 3 for "forward_3": graphs are numbered in the order of their capture."""
    digits = graph[len(graph.rstrip("0123456789")) :]
    return int(digits or 0)


def _tensor(buffer: Buffer, shape: tuple[Dim, ...]) -> dict[str, Any]:
    """Describe a buffer; -1 stands for a symbolic size, with its bounds in the range."""
    sizes = [-1 if symbols(size) else size for size in shape]
    return {
        "dtype": buffer.dtype.torch_name,
        "format": "ND",
        "name": buffer.name,
        "ori_format": "ND",
        "ori_shape": [str(size) if symbols(size) else size for size in shape],
        "param_type": "required",
        "range": [list(bounds(size)) for size in shape],
        "shape": sizes,
        "valid": True,
    }
