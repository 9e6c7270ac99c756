"""`CompilerConfig` and the checks of its options."""

from kernelmill.config.compiler_config import CompilerConfig

__all__ = ["CompilerConfig"]
