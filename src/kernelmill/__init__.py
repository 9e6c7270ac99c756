"""kernelmill: a torch.compile backend that makes machine code with LLVM, and keeps it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kernelmill import inference, static_kernels
from kernelmill.backend import get_backend, get_npu_backend
from kernelmill.config import CompilerConfig
from kernelmill.core.errors import (
    CodegenError,
    ConfigError,
    FileError,
    GearError,
    GradientError,
    InputError,
    KernelmillError,
    PaddingError,
    StoreError,
    UnsupportedError,
    VerificationError,
)
from kernelmill.core.version import VERSION as __version__
from kernelmill.report import explain

if TYPE_CHECKING:
    from kernelmill import aot, fleet, ops, scope
    from kernelmill.fleet import precompile

__all__ = [
    "CodegenError",
    "CompilerConfig",
    "ConfigError",
    "FileError",
    "GearError",
    "GradientError",
    "InputError",
    "KernelmillError",
    "PaddingError",
    "StoreError",
    "UnsupportedError",
    "VerificationError",
    "__version__",
    "aot",
    "explain",
    "fleet",
    "get_backend",
    "get_npu_backend",
    "inference",
    "ops",
    "precompile",
    "scope",
    "static_kernels",
]


def __getattr__(name: str) -> Any:
    # These import torch or the compiler, which the command line and installers do without.
    if name in ("aot", "fleet", "ops", "scope"):
        return import_module(f"kernelmill.{name}")
    if name == "precompile":
        return import_module("kernelmill.fleet").precompile
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
