"""Names of torch_npu and torchair that have nothing behind them here."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from kernelmill.core.errors import KernelmillError

PAGE = "the page torchair of the documentation lists what there is"


class MissingNameError(KernelmillError, AttributeError):
    """A name that torch_npu or torchair may have and kernelmill has not."""


class MissingModuleError(KernelmillError, ModuleNotFoundError):
    """A module that torch_npu or torchair may have and kernelmill has not."""


def nearest_text(name: str, known: Sequence[str]) -> str:
    """What to say about a dotted name that is none of `known`."""
    last = name.rpartition(".")[2]
    by_last = {other.rpartition(".")[2].lower(): other for other in reversed(known)}
    near = difflib.get_close_matches(last.lower(), list(by_last), n=1, cutoff=0.5)
    nearest = f"the nearest that is: {by_last[near[0]]}; " if near else ""
    return f"{name} is not in kernelmill; {nearest}{PAGE}"


def refuse_missing(module: ModuleType, known: Callable[[], Sequence[str]]) -> None:
    """Have the module name what is nearest when it is asked for what it has not."""

    def missing(name: str) -> Any:
        if name.startswith("__"):  # what Python's own machinery asks for
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
        raise MissingNameError(nearest_text(f"{module.__name__}.{name}", known()))

    module.__dict__["__getattr__"] = missing


class MissingModules:
    """The last finder of `sys.meta_path`: says which module of ours is nearest to one that no
    other finder has. `from package import name` comes here too, where the package lacks the name.
    """

    def __init__(self, packages: Sequence[str], known: Callable[[], Sequence[str]]) -> None:
        self.packages = tuple(f"{name}." for name in packages)
        self.known = known

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(self.packages) or fullname.startswith("torch.npu."):
            return None
        # Without its attribute `name`, by which Python would take it for an optional submodule.
        raise MissingModuleError(nearest_text(fullname, self.known()))

    def install(self) -> None:
        """Put it behind all others."""
        sys.meta_path.append(self)
