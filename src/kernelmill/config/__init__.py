"""`CompilerConfig` and the checks of its options."""

from kernelmill.config.compiler_config import CompilerConfig, given_config

__all__ = ["CompilerConfig", "given_config"]
