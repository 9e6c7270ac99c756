"""The ways to compile a program: each gives a function that is called as eager is.

A mode says with which sizes and seeds it is called, and what torch alone makes of the same trace:
what differs from eager there in the same way is torch's own fault.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch._dynamo import config as dynamo_config
from torch._dynamo import guards
from torch._export import utils as export_utils

import kernelmill
from kernelmill import CompilerConfig, get_backend
from kernelmill.backend import Backend
from kernelmill.inference import set_dim_gears
from kernelmill.runtime.gears import padded_calls
from tests.programs.program import Program

Function = Callable[..., Any]


@dataclass
class Subject:
    """A program in one mode: its text as a module, and the folder for what modes write.

    `uncaptured` gets reasons why all of it ran in torch, `fixed` is set where it is compiled for
    the sizes of its first call although others could come.
    """

    program: Program
    module: Any
    folder: str
    uncaptured: list[str] = field(default_factory=list)
    fixed: bool = False

    def arguments(self, size: int, seed: int) -> list[Tensor]:
        """Fresh arguments of a call."""
        with torch.set_grad_enabled(self.program.gradient):
            return self.module.inputs(size, seed)[0]

    def model(self, marked: bool = False) -> Any:
        """A fresh module object; `marked` has its steps in a super kernel's range."""
        with torch.set_grad_enabled(self.program.gradient):
            _, buffers, parameters = self.module.inputs(self.program.sizes[0], 0)
            kind = self.module.Marked if marked else self.module.Model
            return kind(buffers, parameters)

    def varying(self) -> dict[int, list[int]]:
        """The dims of each argument that have the size which varies."""
        one, other = (self.arguments(size, 0) for size in self.program.sizes[:2])
        return {
            number: [d for d, s in enumerate(a.shape) if s != b.shape[d]]
            for number, (a, b) in enumerate(zip(one, other, strict=True))
            if a.shape != b.shape
        }


Made = tuple[Any, Function]
"""A module object, whose buffers and parameters count, and what is called."""


@dataclass(frozen=True)
class Mode:
    """`make` gives the compiled program, `reference` what torch makes of it without us.

    varies        called with other sizes too, where the program has a size that varies
    needs_sizes   takes only such programs
    gradients     takes programs that want gradients
    one_trace     calls with other sizes are served by the trace of the first
    finite        for finite arguments that nothing overflows of: padding is proved for no others
    """

    name: str
    make: Callable[[Subject], Made]
    reference: Callable[[Subject], Made]
    varies: bool = False
    gradients: bool = True
    needs_sizes: bool = False
    threads: int = 1
    finite: bool = False
    one_trace: bool = False

    def takes(self, program: Program) -> bool:
        """Whether the mode can say something about a program."""
        if program.gradient and not self.gradients:
            return False
        if self.finite and not program.finite:
            return False
        return program.varies or not self.needs_sizes

    def calls(self, program: Program) -> list[tuple[int, int]]:
        """Sizes and seeds of the calls."""
        first, second = program.sizes[:2]
        if self.varies and program.varies:
            return [(first, 0), (second, 100), (first, 200)]
        return [(first, 0), (first, 100)]


def _config(**options: Any) -> CompilerConfig:
    config = CompilerConfig()
    for name, value in options.items():
        *groups, option = name.split("__")
        target: Any = config
        for group in groups:
            target = getattr(target, group)
        setattr(target, option, value)
    return config


@dataclass(frozen=True)
class Compiled:
    """Through `torch.compile`, with these options of ours. `marked`: the steps are in a super
    kernel's range."""

    dynamic: bool | None = False
    marked: bool = False
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def backend(self) -> Backend:
        """A backend with the options."""
        return get_backend(compiler_config=_config(**self.options))

    def __call__(self, subject: Subject) -> Made:
        torch._dynamo.reset()
        model, backend = subject.model(self.marked), self.backend()
        compiled = torch.compile(model, backend=backend, dynamic=self.dynamic)
        return model, counted(compiled, backend, subject)


def counted(compiled: Function, backend: Backend, subject: Subject) -> Function:
    """The compiled function; a call of it notes what the backend has left to torch."""

    def run(*args: Any) -> Any:
        returned = compiled(*args)
        subject.uncaptured[:] = [c.refused for c in backend.captures if c.refused]
        return returned

    return run


def _through_dynamo(dynamic: bool | None = False, marked: bool = False, **options: Any) -> Compiled:
    return Compiled(dynamic, marked, options)


def _with_gears(padded: bool) -> Callable[[Subject], Made]:
    def make(subject: Subject) -> Made:
        model, compiled = _through_dynamo(
            None,
            inference_config__allow_small_gears=True,
            inference_config__gear_miss="pad" if padded else "error",
        )(subject)
        return model, _marked(subject, padded, compiled)

    return make


def _marked(subject: Subject, padded: bool, compiled: Function) -> Function:
    """Called with gears on the arguments: their sizes, or larger ones."""
    sizes = subject.program.sizes[:2]
    gears = sorted({size + 1 + size // 3 for size in sizes} if padded else set(sizes))
    if len(gears) == 1:
        gears.append(gears[0] + 1)
    varying = subject.varying()

    def run(*args: Any) -> Any:
        for number, dims in varying.items():
            set_dim_gears(args[number], dict.fromkeys(dims, gears))
        if not padded:
            return compiled(*args)
        # Programs this small would never be padded: that for all sizes is sooner.
        with patch.object(padded_calls, "estimated_ns", lambda plan, _: len(plan.symbols)):
            return compiled(*args)

    return run


def _traced_by_cache(subject: Subject) -> Made:
    """The first call of a cached method, which traces. What it has written then is kept."""
    model = subject.model()
    folder = os.path.join(subject.folder, "cache-trace")
    cached = model.cache(folder, dynamic=subject.program.varies)
    entry = _entry_folder(subject)

    def run(*args: Any) -> Any:
        returned = cached(*args)
        if os.path.exists(folder) and not os.path.exists(entry):
            shutil.copytree(folder, entry)
        return returned

    return model, run


def _cached(subject: Subject) -> Made:
    """An entry that one object has traced at its first call, loaded by another one."""
    folder, dynamic = _entry_folder(subject), subject.program.varies
    if not os.path.exists(folder):
        first = subject.model()
        with torch.no_grad():
            first.cache(folder, dynamic=dynamic)(*subject.arguments(subject.program.sizes[0], 0))
        torch._dynamo.reset()
    model = subject.model()
    cached = model.cache(folder, dynamic=dynamic)

    def run(*args: Any) -> Any:
        returned = cached(*args)
        if cached.statistics["uncached"]:
            subject.uncaptured[:] = ["no entry is kept"]
        return returned

    return model, run


def _entry_folder(subject: Subject) -> str:
    """Where the entry lies that a first call has written, and nothing else."""
    return os.path.join(subject.folder, "cache-load")


def _export(subject: Subject) -> torch.export.ExportedProgram:
    """The program for all sizes where torch can do that, else for those of the first call."""
    args = tuple(subject.arguments(subject.program.sizes[0], 0))
    varying = subject.varying() if subject.program.varies else {}
    size = torch.export.Dim("size", min=2, max=4096)
    shapes = [dict.fromkeys(varying.get(n, ()), size) or None for n in range(len(args))]
    model = subject.model()
    with torch.no_grad():
        if varying:
            try:
                return torch.export.export(model, args, dynamic_shapes=(tuple(shapes),))
            except Exception:
                subject.fixed = True
        return torch.export.export(model, args)


def _aot(subject: Subject) -> Made:
    path = os.path.join(subject.folder, "program.kmill")
    kernelmill.aot.compile(_export(subject), path=path)
    program = kernelmill.aot.load(path)
    return _Tensors(program.tensors), program


@dataclass
class _Tensors:
    """The tensors of a saved program in place of a module's."""

    found: Mapping[str, Tensor]

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        return iter(self.found.items())

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        return iter(())


def _exported(subject: Subject) -> Made:
    """Torch's program, without what it writes inside."""
    module = _export(subject).run_decompositions({}).module()
    return module, module


def _in_torch(dynamic: bool | None, whole: bool = False) -> Callable[[Subject], Made]:
    """The same trace without us; `whole`: where it must be one graph."""

    def make(subject: Subject) -> Made:
        torch._dynamo.reset()
        model = subject.model()
        wanted = subject.program.varies if dynamic is None else dynamic
        return model, torch.compile(model, backend="aot_eager", dynamic=wanted, fullgraph=whole)

    return make


def _in_torch_with_gears(padded: bool) -> Callable[[Subject], Made]:
    """The same trace as for gears, which mark dims for Dynamo, without us."""

    def make(subject: Subject) -> Made:
        torch._dynamo.reset()
        model = subject.model()
        return model, _marked(subject, padded, torch.compile(model, backend="aot_eager"))

    return make


_EAGER_GEARS, _EAGER_PADDED = _in_torch_with_gears(False), _in_torch_with_gears(True)
_EAGER_STATIC = _in_torch(False)
_EAGER_DYNAMIC = _in_torch(True)
_EAGER_WHOLE = _in_torch(None, whole=True)

MODES: Sequence[Mode] = (
    Mode("default", _through_dynamo(False), _EAGER_STATIC),
    Mode("dynamic", _through_dynamo(True), _EAGER_DYNAMIC, varies=True),
    Mode("reduce-overhead", _through_dynamo(False, mode="reduce-overhead"), _EAGER_STATIC),
    Mode(
        "reduce-overhead-dynamic",
        _through_dynamo(True, mode="reduce-overhead"),
        _EAGER_DYNAMIC,
        varies=True,
        needs_sizes=True,
    ),
    Mode(
        "gears",
        _with_gears(False),
        _EAGER_GEARS,
        varies=True,
        needs_sizes=True,
        one_trace=True,
    ),
    Mode(
        "gears-padded",
        _with_gears(True),
        _EAGER_PADDED,
        varies=True,
        needs_sizes=True,
        gradients=False,
        finite=True,
        one_trace=True,
    ),
    Mode("super-kernel", _through_dynamo(False, marked=True), _EAGER_STATIC, threads=2),
    Mode(
        "super-kernel-automatic",
        _through_dynamo(False, experimental_config__super_kernel_optimize=True),
        _EAGER_STATIC,
        threads=2,
    ),
    Mode("cache-trace", _traced_by_cache, _EAGER_WHOLE, varies=True, gradients=False),
    Mode("cache-load", _cached, _EAGER_WHOLE, varies=True, gradients=False),
    Mode("aot", _aot, _exported, varies=True, gradients=False),
)
"""All modes."""


_operators_known = cache(export_utils._materialize_cpp_cia_ops)
"""Torch looks all of its operators up for each entry of a table of decompositions, in case somebody
has registered others since; nobody does here."""


@contextmanager
def prepared(mode: Mode) -> Iterator[None]:
    """Settings for one program in one mode."""
    threads = torch.get_num_threads()
    with (
        # Garbage is collected when there is much of it, not after each trace.
        dynamo_config.patch(recompile_limit=64, run_gc_after_compile=False),
        # Torch measures each new guard, with a flush of the caches that takes 20 ms.
        patch.object(guards, "profile_guard_manager", lambda *_: 0.0),
        patch.object(export_utils, "_materialize_cpp_cia_ops", _operators_known),
    ):
        torch.set_num_threads(mode.threads)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            torch._dynamo.reset()
