"""kernelmill: a torch.compile backend that makes machine code with LLVM, and keeps it."""

from kernelmill import inference, ops, scope, static_kernels
from kernelmill.backend import explain, get_backend, get_npu_backend
from kernelmill.config import CompilerConfig
from kernelmill.core.errors import (
    CodegenError,
    ConfigError,
    GearError,
    InputError,
    KernelmillError,
    PaddingError,
    StoreError,
    UnsupportedError,
    VerificationError,
)
from kernelmill.core.version import VERSION as __version__

__all__ = [
    "CodegenError",
    "CompilerConfig",
    "ConfigError",
    "GearError",
    "InputError",
    "KernelmillError",
    "PaddingError",
    "StoreError",
    "UnsupportedError",
    "VerificationError",
    "__version__",
    "explain",
    "get_backend",
    "get_npu_backend",
    "inference",
    "ops",
    "scope",
    "static_kernels",
]
