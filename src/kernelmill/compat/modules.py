"""The modules `torch_npu` and `torchair`, made from kernelmill's functions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

import torch

from kernelmill import scope
from kernelmill.backend import get_npu_backend
from kernelmill.backend.replacements import register_replacement
from kernelmill.compat import marks, npu, npugraph_ex, printing, profiler
from kernelmill.compat.missing import MissingModules, refuse_missing
from kernelmill.compat.operators import OF_LENGTHS, OPERATORS
from kernelmill.config import CompilerConfig, given_config
from kernelmill.inference import cache_compile, readable_cache, set_dim_gears

TORCHAIR = "torchair"
NESTED: Mapping[str, Sequence[str]] = {
    TORCHAIR: ("torch_npu.dynamo.torchair",),
    npugraph_ex.NAME: ("torch.npu.npugraph_ex", "torch_npu.dynamo.npugraph_ex"),
}
"""Other names of packages."""


def _get_compiler(compiler_config: CompilerConfig | None = None) -> Callable[..., Any]:
    """Return the compiler of a graph of ATen operators, for a user's backend around AOTAutograd."""
    return npugraph_ex.compiler_of(given_config(compiler_config))


def _patch_for_hcom() -> None:
    """Do nothing: collectives are in the graph in any case, on Gloo."""


def _use_internal_format_weight(model: Any) -> None:
    """Do nothing: constant weights are packed in any case."""


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
    for name, operator in OPERATORS.items():
        setattr(torch.ops.npu, name, operator)
    for name in ("record", "wait", "scope_enter", "scope_exit"):
        for package in (torch.ops.air, torch.ops.npugraph_ex):
            setattr(package, name, getattr(torch.ops.kernelmill, name))
    vars(sys.modules[TORCHAIR])["Inference"] = sys.modules["torchair.inference"]
    _alias("torch.npu", "torch_npu.npu")
    for package, others in NESTED.items():
        for name in [name for name in _names() if name.split(".")[0] == package]:
            for other in others:
                _alias(name, name.replace(package, other, 1))
    sys.meta_path.append(MissingModules(("torch_npu", *NESTED), known_names))


def known_names() -> list[str]:
    """Return the dotted names of everything in these modules."""
    return list(_known())


def _known() -> Iterator[str]:
    for name in _names():
        yield name
        for member in vars(sys.modules[name]):
            if not member.startswith("_") and f"{name}.{member}" not in sys.modules:
                yield f"{name}.{member}"


def _contents() -> dict[str, dict[str, Any]]:
    """Return the contents of modules besides modules. A package comes before its members."""
    version = torch.__version__.partition("+")[0]
    config = {"CompilerConfig": CompilerConfig}
    return {
        "torch_npu": {
            "__version__": f"{version}+kernelmill",
            **OPERATORS,
            "save_npugraph_tensor": printing.save_npugraph_tensor,
        },
        "torch_npu.profiler": profiler.MEMBERS,
        "torch_npu.dynamo": {},
        "torchair": {
            **config,
            "get_npu_backend": get_npu_backend,
            "get_compiler": _get_compiler,
            "register_replacement": register_replacement,
            "patch_for_hcom": _patch_for_hcom,
            "use_internal_format_weight": _use_internal_format_weight,
            **npugraph_ex.LOGGER,
        },
        "torchair.core": {},
        "torchair.core.utils": npugraph_ex.UTILS,
        "torchair.configs": {},
        "torchair.configs.compiler_config": config,
        "torchair.inference": {
            "set_dim_gears": set_dim_gears,
            "cache_compile": cache_compile,
            "readable_cache": readable_cache,
        },
        "torchair.scope": {
            "super_kernel": marks.super_kernel,
            "npu_stream_switch": marks.npu_stream_switch,
            "npu_wait_tensor": scope.wait_tensor,
            "limit_core_num": marks.limit_core_num,
            "data_dump": marks.data_dump,
            "op_never_timeout": marks.op_never_timeout,
        },
        "torchair.ops": {
            "npu_wait_tensor": scope.wait_tensor,
            "record": scope.record,
            "wait": scope.wait,
            "npu_print": printing.npu_print,
            **OF_LENGTHS,
        },
        **npugraph_ex.MEMBERS,
    }


def _names() -> list[str]:
    return [*_contents(), "torch.npu", "torch.npu.amp"]


def _make(name: str) -> None:
    """Make an empty module; a package, so that a search inside of it comes to our finder."""
    module = ModuleType(name, f"{name} as kernelmill has it.")
    module.__path__ = []
    sys.modules[name] = module


def _alias(name: str, other: str) -> None:
    """Register a module under another name too."""
    sys.modules[other] = sys.modules[name]
    parent, _, last = other.rpartition(".")
    setattr(sys.modules[parent], last, sys.modules[name])
