"""Every exception that kernelmill raises on purpose: one tree, with `KernelmillError` at its root.

    KernelmillError
    ├── ConfigError         an option: its name, its value (also a ValueError)
    │   ├── ConfigTypeError     ... or its type (also a TypeError)
    │   ├── ConfigPathError     ... or a path that must exist and does not (also FileNotFoundError)
    │   └── PaddingError        ... or gear_miss="pad" for a model that padding could change
    ├── InputError          a bad argument of a compiled program; names it (also a ValueError)
    │   └── GearError           ... a size outside the gears, or gears that break their rules
    │       └── GearTypeError       ... by their type (also a TypeError)
    ├── UserCodeError       code that a command was given does not import, or raised
    ├── UnsupportedError    a stage cannot carry this; its caller falls back to ATen
    ├── VerificationError   an IR broke its own rules; names the pass that broke it
    ├── CodegenError        LLVM refused what we generated
    ├── StoreError          the compiled-kernel folder cannot be trusted or used
    └── InterpreterError    this build of Python cannot run it (also an ImportError)

A message says what is wrong, where, and what to do about it.
"""

from __future__ import annotations


class KernelmillError(Exception):
    """The root: `except KernelmillError` catches all that kernelmill raises on purpose."""


class ConfigError(KernelmillError, ValueError):
    """An option that does not exist, or a value outside those allowed."""


class ConfigTypeError(ConfigError, TypeError):
    """An option set to a value of the wrong type."""


class ConfigPathError(ConfigError, FileNotFoundError):
    """An option that names a path which does not exist."""


class PaddingError(ConfigError):
    """gear_miss="pad" for a model whose kept values padding could change. Names the operator."""


class InputError(KernelmillError, ValueError):
    """A compiled program was called with an argument it cannot take. The message names it."""


class GearError(InputError):
    """Gears that break their rules, or an argument whose sizes are no gear."""


class GearTypeError(GearError, TypeError):
    """Gears of the wrong type."""


class UserCodeError(KernelmillError):
    """A user's module, factory or model raised. The message ends with their part of the
    traceback."""


class UnsupportedError(KernelmillError):
    """This construct cannot be carried by the stage that raises; the caller falls back."""


class VerificationError(KernelmillError):
    """An IR breaks its grammar or typing rules.

    `stage` is the pass, parser or builder after which the rules did not hold any more.
    """

    def __init__(self, message: str, stage: str = "") -> None:
        super().__init__(f"after {stage}: {message}" if stage else message)
        self.stage = stage


class CodegenError(KernelmillError):
    """LLVM refused the module generated for a kernel: a fault of kernelmill, never of a model."""


class StoreError(KernelmillError):
    """The folder of compiled kernels cannot be trusted or used. The message says how to fix it."""


class InterpreterError(KernelmillError, ImportError):
    """This build of Python cannot run kernelmill: `import kernelmill` raises it."""
