"""kernelmill: a torch.compile backend that makes machine code with LLVM, and keeps it.

What it has is imported when it is asked for: torch imports this package wherever both are installed
(`torch_internals.default_backend`), and the command line and installers do without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kernelmill.core.version import VERSION as __version__

if TYPE_CHECKING:
    from kernelmill import aot, fleet, inference, ops, scope, static_kernels
    from kernelmill.backend import get_backend, get_npu_backend
    from kernelmill.backend.replacements import register_replacement
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
    from kernelmill.fleet import precompile
    from kernelmill.inference.compile import compile, uncompile
    from kernelmill.report import explain

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
    "compile",
    "explain",
    "fleet",
    "get_backend",
    "get_npu_backend",
    "inference",
    "ops",
    "precompile",
    "register_replacement",
    "scope",
    "static_kernels",
    "uncompile",
]


def __getattr__(name: str) -> Any:
    match name:
        case "aot" | "fleet" | "inference" | "ops" | "scope" | "static_kernels":
            return import_module(f"kernelmill.{name}")
        case "CompilerConfig":
            package = "config"
        case "compile" | "uncompile":
            package = "inference.compile"
        case "explain":
            package = "report"
        case "get_backend" | "get_npu_backend":
            package = "backend"
        case "register_replacement":
            package = "backend.replacements"
        case "precompile":
            package = "fleet"
        case _:
            if name not in __all__:
                raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
            package = "core.errors"
    return getattr(import_module(f"kernelmill.{package}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
