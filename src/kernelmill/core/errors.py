"""Every exception that kernelmill raises on purpose: one tree, with `KernelmillError` at its root.

    KernelmillError
    ├── ConfigError         an option: its name, its value (also a ValueError)
    │   ├── ConfigTypeError     ... or its type (also a TypeError)
    │   ├── ConfigPathError     ... or a path that must exist and does not (also FileNotFoundError)
    │   └── PaddingError        ... or gear_miss="pad" for a model that padding could change
    ├── InputError          a bad argument of a compiled program; names it (also a ValueError)
    │   └── GearError           ... a size outside the gears, or gears that break their rules
    │       └── GearTypeError       ... by their type (also a TypeError)
    ├── GradientError       an argument that requires grad, for inference (also a RuntimeError)
    ├── CopyError           an object that cannot be copied or pickled (also a TypeError)
    ├── FileError           a file or folder that was named: its path (also an OSError)
    │   ├── MissingFileError    ... is not there (also FileNotFoundError)
    │   ├── DeniedFileError     ... is denied by the system (also PermissionError)
    │   ├── NoFolderError       ... is no folder (also NotADirectoryError)
    │   └── IsFolderError       ... is a folder (also IsADirectoryError)
    ├── UserCodeError       a user's code for a command that does not import, or raised
    ├── UnsupportedError    a stage does not support this; its caller falls back to ATen
    ├── VerificationError   an IR broke its own rules; names the pass that broke it
    ├── CodegenError        LLVM refused the generated code
    │   └── NoCodeError         ... or the system refuses to run generated code
    ├── StoreError          the compiled-kernel folder cannot be trusted or used
    └── InterpreterError    this build of Python cannot run it (also an ImportError)

A message says what is wrong, where, and what to do about it.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager


class KernelmillError(Exception):
    """The root: `except KernelmillError` catches all that kernelmill raises on purpose."""


class ConfigError(KernelmillError, ValueError):
    """An option that does not exist, or a value outside those allowed."""


class ConfigTypeError(ConfigError, TypeError):
    """An option set to a value of the wrong type."""


class ConfigPathError(ConfigError, FileNotFoundError):
    """An option that names a path which does not exist."""


class PaddingError(ConfigError):
    """gear_miss="pad" for a model whose results padding could change. Names the operator."""


class InputError(KernelmillError, ValueError):
    """An argument that a compiled program cannot take. The message names it."""


class GearError(InputError):
    """Gears that break their rules, or an argument whose sizes are no gear."""


class GearTypeError(GearError, TypeError):
    """Gears of the wrong type."""


class GradientError(KernelmillError, RuntimeError):
    """An argument that requires grad, for an inference program. The message names it."""


class CopyError(KernelmillError, TypeError):
    """An object that belongs to its process, and so cannot be copied or pickled."""


class FileError(KernelmillError, OSError):
    """A named file or folder that cannot be read or written. `errno`, `strerror` and `filename` are
    those of Python's error."""


class MissingFileError(FileError, FileNotFoundError):
    """A named file or folder that does not exist."""


class DeniedFileError(FileError, PermissionError):
    """A named file or folder to which the system denies access."""


class NoFolderError(FileError, NotADirectoryError):
    """A named path with a parent that is no folder."""


class IsFolderError(FileError, IsADirectoryError):
    """A named path that is a folder where a file is required."""


_FILE_ERRORS = (MissingFileError, DeniedFileError, NoFolderError, IsFolderError)


def file_error(error: OSError, path: str | os.PathLike[str], text: str = "") -> FileError:
    """Return our error for Python's error on a user's file; `text` replaces its message."""
    kinds = [kind for kind in _FILE_ERRORS if isinstance(error, kind.__bases__[1])]
    kind = kinds[0] if kinds else FileError
    return kind(error.errno, text or error.strerror or str(error), os.fspath(path))


@contextmanager
def file_errors(path: str | os.PathLike[str]) -> Generator[None]:
    """Convert OSError inside the context, for a file that a user named, to `file_error`."""
    try:
        yield
    except FileError:
        raise
    except OSError as error:
        raise file_error(error, path) from None


class UserCodeError(KernelmillError):
    """A user's module, factory or model that raised. The message ends with their traceback."""


class UnsupportedError(KernelmillError):
    """A construct that the raising stage cannot handle; the caller falls back."""


class VerificationError(KernelmillError):
    """An IR that breaks grammar or typing rules. `stage`: the pass, parser or builder at fault."""

    def __init__(self, message: str, stage: str = "") -> None:
        super().__init__(f"after {stage}: {message}" if stage else message)
        self.stage = stage


class CodegenError(KernelmillError):
    """A module that LLVM refused: a bug of kernelmill, never of a model."""


class NoCodeError(CodegenError):
    """A system that does not let this process run generated code."""


class StoreError(KernelmillError):
    """A folder of compiled kernels that cannot be used. The message says how to fix it."""


class InterpreterError(KernelmillError, ImportError):
    """A build of Python that cannot run kernelmill: `import kernelmill` raises it."""
