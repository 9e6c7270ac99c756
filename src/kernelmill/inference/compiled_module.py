"""Modules compiled by `kernelmill.compile`: wrappers of the original, like torch.compile's."""

from __future__ import annotations

import copy
from functools import partial, wraps
from types import MethodType
from typing import Any

import torch

from kernelmill.inference.compile_report import CompileReport
from kernelmill.inference.compiled_calls import CompiledForward
from kernelmill.inference.torch_calls import NeverKept
from kernelmill.torch_internals.modules import own_hooks

_OWN = ("_orig_mod", "_calls", "_inner", "forward")
_CALL_FORWARD = frozenset(("generate",))
"""Methods that do their work by calls of the module, as `generate` of transformers' models."""


class CompiledModule(torch.nn.Module):
    """A module with the results of `_orig_mod` and its parameters, by names that begin with
    "_orig_mod." in `state_dict`. Its other attributes are those of that module, to get and to set.
    Copies and pickles bring the module, and compile for themselves."""

    _orig_mod: torch.nn.Module

    def __init__(self, module: torch.nn.Module, calls: CompiledForward | NeverKept) -> None:
        super().__init__()
        self._modules["_orig_mod"] = module
        self.__dict__["_calls"] = self.__dict__["forward"] = calls
        self.__dict__["_own_hooks"] = own_hooks(self) or ({"unknown": None},)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module. Hooks of all modules run for the original only, not for this one too."""
        if any(self.__dict__["_own_hooks"]):
            return super().__call__(*args, **kwargs)
        return self.forward(*args, **kwargs)

    def report(self) -> CompileReport:
        """Return the report of the calls so far, with the reasons for torch.compile."""
        calls, inner = self.__dict__["_calls"], self.__dict__.get("_inner")
        return calls.report() if inner is None else calls.report(inner)

    def __reduce__(self) -> Any:
        return type(self), (self._orig_mod, self.__dict__["_calls"])

    def __len__(self) -> int:
        module: Any = self._orig_mod
        return len(module)

    def __bool__(self) -> bool:
        return bool(self._orig_mod)

    @property
    def training(self) -> bool:
        """Training mode of the original module."""
        return self._orig_mod.training

    @training.setter
    def training(self, value: bool) -> None:  # type: ignore[reportIncompatibleVariableOverride]
        if "_calls" in self.__dict__:  # and not while this is being made
            self._orig_mod.training = value

    def __getattr__(self, name: str) -> Any:
        module = self.__dict__["_modules"]["_orig_mod"]
        if name == "_orig_mod":
            return module
        value = getattr(module, name)
        if name in _CALL_FORWARD and isinstance(value, MethodType) and value.__self__ is module:
            return wraps(value)(partial(self._call_compiled, name))
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN or hasattr(type(self), name):
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        if name in _OWN or hasattr(type(self), name):
            super().__delattr__(name)
        else:
            delattr(self._orig_mod, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._orig_mod)})

    def _call_compiled(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the module on a shallow copy whose forward is the compiled one; write
        its new attributes back."""
        module, calls = self._orig_mod, self.__dict__["_calls"]
        inner = self.__dict__.get("_inner")
        if inner is None and isinstance(calls, CompiledForward):
            inner = self.__dict__["_inner"] = calls.of_method()
        view = copy.copy(module)
        if inner is not None:
            vars(view)["forward"] = inner
        before = dict(vars(view))
        try:
            return getattr(view, name)(*args, **kwargs)
        finally:
            for key, value in vars(view).items():
                if key not in before or before[key] is not value:
                    vars(module)[key] = value
