"""Calls of a compiled model that go to torch.compile, with the reasons."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch.compiler import is_dynamo_compiling, is_exporting
from torch.jit import is_tracing  # type: ignore[reportPrivateImportUsage] - documented

from kernelmill.artifact.fingerprint import name_of
from kernelmill.backend.report import Capture
from kernelmill.core.log import get_logger
from kernelmill.inference.compile_report import CompileReport
from kernelmill.inference.kept_programs import Options
from kernelmill.inference.varying_sizes import with_gears

_log = get_logger("inference")
Arguments = Callable[[tuple[Any, ...], Mapping[str, Any]], Mapping[str, Any]]
"""Returns the arguments of a call by their names."""


def is_traced() -> bool:
    """Return whether Dynamo, torch.export or torch.jit traces the code that is running."""
    return is_dynamo_compiling() or is_exporting() or is_tracing()


_COMPILED = "%s runs as torch.compile compiles it: %s"


class TorchCalls:
    """Calls of `original` by `torch.compile(backend="kernelmill")` with the same options; `reasons`
    counts the calls for each reason, `captures` are the graphs given to this backend."""

    def __init__(self, original: Callable[..., Any], options: Options, named: Arguments) -> None:
        self._original, self._options, self._named = original, options, named
        self._compiled: Callable[..., Any] | None = None
        self.captures: Sequence[Capture] = ()
        self.reasons: dict[str, int] = {}

    def __call__(
        self, reason: str, args: tuple[Any, ...], kwargs: Mapping[str, Any],
        level: int = logging.WARNING,
    ) -> Any:  # fmt: skip
        """Run a call; the first with this reason is logged."""
        if self._options.config.quantize is not None and torch.is_grad_enabled():
            reason, level = f"{reason}; nothing is quantised", logging.WARNING
        self.count(reason, level)
        compiled = self._compile() if self._compiled is None else self._compiled
        gears = self._options.gears
        with with_gears(gears, self._named(args, kwargs)) if gears else nullcontext():
            return compiled(*args, **kwargs)

    def count(self, reason: str, level: int = logging.WARNING, as_it_is: bool = False) -> None:
        """Count a call for this reason, logged once. `as_it_is`: not even torch.compile runs it."""
        known = self.reasons.get(reason, 0)
        self.reasons[reason] = known + 1
        if not known:
            told = "%s runs as it is: %s" if as_it_is else _COMPILED
            _log.log(level, told, self.name, reason)

    @property
    def name(self) -> str:
        """Name of the compiled function or module's class."""
        original = self._original
        return name_of(type(original) if isinstance(original, torch.nn.Module) else original)

    def _compile(self) -> Callable[..., Any]:
        from kernelmill.backend.entry import get_backend

        backend = get_backend(compiler_config=self._options.config)
        self.captures = backend.captures
        dynamic = self._options.dynamic
        self._compiled = torch.compile(self._original, backend=backend, dynamic=dynamic)
        return self._compiled


class WithOriginal:
    """Base of compiled functions: `original` is the function or module that was compiled."""

    _options: Options

    @property
    def __code__(self) -> Any:
        """Code object of the function, if any: torch.export asks a module's forward for it."""
        return self._options.function.__code__

    @property
    def original(self) -> Any:
        """The compiled function or module itself."""
        return self._options.module or self._options.function


class NeverKept(WithOriginal):
    """Calls of a model without code for which a program could be kept; `reason` says why."""

    def __init__(self, options: Options, reason: str) -> None:
        self._options, self._reason = options, reason
        self.__wrapped__ = options.function  # gives it the function's signature
        original = options.module or options.function
        self._torch = TorchCalls(original, options, lambda args, kwargs: kwargs)

    def __getstate__(self) -> tuple[Options, str]:
        return self._options, self._reason

    def __setstate__(self, state: tuple[Options, str]) -> None:
        NeverKept.__init__(self, *state)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model by torch.compile."""
        if is_traced():
            return self.original(*args, **kwargs)
        return self._torch(self._reason, args, kwargs)

    def report(self) -> CompileReport:
        """Return the report of the calls so far."""
        calls = sum(self._torch.reasons.values())
        statistics = {"loaded": 0, "traced": 0, "uncached": calls}
        reasons, captures = dict(self._torch.reasons), tuple(self._torch.captures)
        return CompileReport((), reasons, captures, statistics, {})
