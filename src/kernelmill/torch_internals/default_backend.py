"""kernelmill as the backend of every `torch.compile` that names none.

torch's own function for that imports torch._dynamo, which takes a second or two: here that waits
until something is compiled.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from kernelmill.core import knobs
from kernelmill.core.version import BACKEND_NAME

_DYNAMO = "torch._dynamo"


def at_import_of_torch() -> None:
    """Make kernelmill the default backend where KERNELMILL_DEFAULT says so. Torch calls this after
    its import (entry point "torch.backends"). ConfigError for another value."""
    if knobs.DEFAULT.get():
        make_default()


def make_default() -> None:
    """Do as `torch.compiler.set_default_backend("kernelmill")`, for this process."""
    if _DYNAMO in sys.modules:
        _set()
    else:
        sys.meta_path.insert(0, _WhenImported())


def _set() -> None:
    import torch

    torch.compiler.set_default_backend(BACKEND_NAME)


class _WhenImported(MetaPathFinder):
    """A finder of torch._dynamo that sets the default backend after the import."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _DYNAMO or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def run_and_set(module: ModuleType) -> None:
            run(module)
            _set()

        spec.loader.exec_module = run_and_set
        return spec
