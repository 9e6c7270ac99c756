"""The modules `torch_npu` and `torchair`, made of what kernelmill has."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

import torch

from kernelmill import ops, scope
from kernelmill.backend import get_npu_backend
from kernelmill.compat import marks, npu, npugraph_ex
from kernelmill.compat.missing import MissingModules, refuse_missing
from kernelmill.config import CompilerConfig
from kernelmill.inference import cache_compile, readable_cache, set_dim_gears

TORCHAIR = "torchair"
NESTED: Mapping[str, Sequence[str]] = {
    TORCHAIR: ("torch_npu.dynamo.torchair",),
    npugraph_ex.NAME: ("torch.npu.npugraph_ex", "torch_npu.dynamo.npugraph_ex"),
}
"""Packages by their other names."""

OPERATORS: Mapping[str, Any] = {
    "npu_quant_matmul": ops.quant_matmul,
    "npu_weight_quant_batchmatmul": ops.weight_quant_matmul,
    "npu_dequant_swiglu_quant": ops.dequant_swiglu_quant,
    "npu_format_cast": ops.format_cast,
}
"""Operators of torch_npu and what computes them."""


def install_modules() -> None:
    """Put `torch.npu`, `torch_npu`, `torchair` and `npugraph_ex`, the last two by their other names
    too, among the modules of the process."""
    for name in _names():
        _make(name)
    for name, members in _contents().items():
        vars(sys.modules[name]).update(members)
    npu.fill(sys.modules["torch.npu"])
    npu.fill_amp(sys.modules["torch.npu.amp"])
    for name in _names():
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, sys.modules[name])
        refuse_missing(sys.modules[name], known_names)
    vars(sys.modules[TORCHAIR])["Inference"] = sys.modules["torchair.inference"]
    _alias("torch.npu", "torch_npu.npu")
    for package, others in NESTED.items():
        for name in [name for name in _names() if name.split(".")[0] == package]:
            for other in others:
                _alias(name, name.replace(package, other, 1))
    MissingModules(("torch_npu", *NESTED), known_names).install()


def known_names() -> list[str]:
    """Dotted names of all there is in these modules."""
    return list(_known())


def _known() -> Iterator[str]:
    for name in _names():
        yield name
        for member in vars(sys.modules[name]):
            if not member.startswith("_") and f"{name}.{member}" not in sys.modules:
                yield f"{name}.{member}"


def _contents() -> dict[str, dict[str, Any]]:
    """Module -> what is in it besides modules. A package comes before what is in it."""
    version = torch.__version__.partition("+")[0]
    config = {"CompilerConfig": CompilerConfig}
    return {
        "torch_npu": {"__version__": f"{version}+kernelmill", **OPERATORS},
        "torch_npu.dynamo": {},
        "torchair": {
            **config,
            "get_npu_backend": get_npu_backend,
            "logger": logging.getLogger("kernelmill"),
        },
        "torchair.configs": {},
        "torchair.configs.compiler_config": config,
        "torchair.inference": {
            "set_dim_gears": set_dim_gears,
            "cache_compile": cache_compile,
            "readable_cache": readable_cache,
        },
        "torchair.scope": {
            "super_kernel": marks.super_kernel,
            "npu_stream_switch": scope.stream_switch,
            "npu_wait_tensor": scope.wait_tensor,
            "limit_core_num": marks.limit_core_num,
        },
        "torchair.ops": {"npu_wait_tensor": scope.wait_tensor},
        **npugraph_ex.MEMBERS,
    }


def _names() -> list[str]:
    return [*_contents(), "torch.npu", "torch.npu.amp"]


def _make(name: str) -> None:
    """An empty module; a package, so that a search inside of it comes to us."""
    module = ModuleType(name, f"{name} as kernelmill has it.")
    module.__path__ = []
    sys.modules[name] = module


def _alias(name: str, other: str) -> None:
    """Have a module under another name too."""
    sys.modules[other] = sys.modules[name]
    parent, _, last = other.rpartition(".")
    setattr(sys.modules[parent], last, sys.modules[name])
