"""Compiles by Dynamo: their begin and end, backend and hooks. Probes import torch._dynamo.

Repair in a forked child of Dynamo's and import locks that other threads held at the fork.

Inductor's options, some of which libraries pass to `torch.compile` for any backend, and its
pattern matcher, which is for any graph of ATen operators.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import threading
from collections.abc import Callable, Mapping
from functools import cache
from types import CodeType, FrameType
from typing import Any

from kernelmill.core.after_fork import after_fork
from kernelmill.torch_internals.modules import check
from kernelmill.torch_internals.registry import internal


@internal(
    "compiles.callbacks",
    reason="saying what breaks the graph of a model of which nothing is captured, and no search "
    "for garbage while Dynamo traces",
    fallback="it is said only where something is captured, and garbage is searched for",
)
def _callbacks() -> Any:
    from torch._dynamo.callback import callback_handler

    found: Any = callback_handler
    check(type(found), "register_start_callback", "run_start_callbacks")
    check(type(found), "register_end_callback", "run_end_callbacks")
    lists = isinstance(found.start_callbacks, list) and isinstance(found.end_callbacks, list)
    return found if lists else None


def around_compiles(before: Callable[[Any], None], after: Callable[[Any], None]) -> None:
    """Have Dynamo call these before and after it compiles a frame, also if it gives up; once for
    frames that are compiled inside of others or by several threads at a time. Until
    `torch._dynamo.reset()`; repeated registration has no effect."""
    found = _callbacks.get()
    if found is None:
        return
    if before not in found.start_callbacks:
        found.register_start_callback(before)
    if after not in found.end_callbacks:
        found.register_end_callback(after)


@internal(
    "compiles.backend_of_compile",
    reason="no search for garbage while Dynamo traces for this backend; calls with one row of what "
    "was traced with several, where Dynamo's guards are dropped",
    fallback="garbage is searched for until the backend is called; such calls are refused",
)
def _compiling() -> tuple[CodeType, CodeType] | None:
    """Return the code objects of Dynamo's functions with backend and guard hooks among their
    parameters: of torch.compile, and of its `aot_compile`."""
    from torch._dynamo import aot_compile, convert_frame

    code = inspect.unwrap(convert_frame._compile).__code__
    ahead = inspect.unwrap(aot_compile.aot_compile_fullgraph).__code__
    named = {"compiler_fn", "hooks"} <= set(_arguments(code)) and "hooks" in _arguments(ahead)
    return (code, ahead) if named else None


def _arguments(code: CodeType) -> tuple[str, ...]:
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _compile_locals() -> Mapping[str, Any]:
    """Return the locals of Dynamo's function for the compile of this thread; {} outside of one."""
    codes = _compiling.get() or ()
    frame = inspect.currentframe() if codes else None
    while frame is not None and frame.f_code not in codes:
        frame = frame.f_back
    return {} if frame is None else frame.f_locals


def backend_of_compile() -> str:
    """Return the name of the backend of the compile that this thread is in; else ""."""
    return getattr(_compile_locals().get("compiler_fn"), "__name__", "")


def drops_guards() -> bool:
    """Return whether the compile that this thread is in has a filter for its guards."""
    return getattr(_compile_locals().get("hooks"), "guard_filter_fn", None) is not None


@internal(
    "compiles.inductor_options",
    reason="telling Inductor's options, which are left out, from misspelt ones of ours",
    fallback="options of Inductor's that are passed to torch.compile are errors",
)
def inductor_options() -> frozenset[str]:
    """Return the dotted names of Inductor's options."""
    from torch import _inductor

    names = frozenset(_inductor.list_options())
    return names if "max_autotune" in names else frozenset()


@internal(
    "compiles.pattern_matcher",
    reason="replacing what a user's function describes in graphs (register_replacement)",
    fallback="register_replacement raises UnsupportedError",
)
def pattern_matcher() -> Any:
    """Return Inductor's module of the pattern matcher."""
    from torch._inductor import pattern_matcher as found

    taken = inspect.signature(found.register_replacement).parameters
    wanted = {"pass_dicts", "extra_check", "scalar_workaround", "search_fn_pattern",
              "skip_duplicates", "get_decomp_fn"}  # fmt: skip
    there = callable(found.PatternMatcherPass("probe").apply) and callable(found.fwd_only)
    return found if there and wanted <= taken.keys() else None


@internal(
    "compiles.import_locks",
    reason="imports in a child that was forked while another thread imported the same module",
    fallback="such a child waits for ever",
    in_callers_modes=True,
)
def import_locks() -> dict[str, Callable[[], Any]] | None:
    """Return Python's locks of modules being imported, as weak references."""
    bootstrap: Any = getattr(importlib, "_bootstrap")  # noqa: B009
    lock = bootstrap._get_module_lock("kernelmill.probe")
    lock.acquire()
    own = lock.owner == threading.get_ident()
    lock.release()
    locks: dict[str, Callable[[], Any]] = bootstrap._module_locks
    return locks if own and locks["kernelmill.probe"]() is lock else None


@internal(
    "compiles.forks",
    reason="compiled functions in a child that was forked while another thread compiled or called",
    fallback="such a child may wait for ever when it compiles or calls one",
    in_callers_modes=True,
)
def dynamo() -> Any:
    """Return Dynamo, with its compile lock, its lock of callbacks, and its compiled functions, each
    of which has a lock for its guards."""
    from torch import _dynamo

    found: Any = _dynamo
    type(found.callback_handler)(start_callbacks=[], end_callbacks=[])
    known = type(found.convert_frame.compile_lock) is type(threading.RLock())
    return found if known and _entry(found) and callable(found.reset_code_caches) else None


def _entry(found: Any) -> CodeType:
    """Return the code of the function through which every call of a compiled one goes."""
    outer = found.eval_frame._TorchDynamoContext.__call__.__code__
    return {getattr(code, "co_name", ""): code for code in outer.co_consts}["compile_wrapper"]


class _ForkHandlers:
    """Fork handlers. `references` is the number of references to the code of Dynamo's entry before
    the fork: each running frame has one, so that the child's differs if another thread entered
    later. 0: others were inside already. None: this thread is itself inside.
    """

    references: int | None = None

    def before_fork(self) -> None:
        """Find threads inside of Dynamo, and run the probes, which could block in a child."""
        import_locks.get()
        if "torch._dynamo" not in sys.modules or (found := dynamo.get()) is None:
            return
        references = sys.getrefcount(_entry(found))
        file, frames = found.eval_frame.__file__, sys._current_frames()
        inside = {thread for thread, frame in frames.items() if _in(frame, file)}
        frames.clear()  # one of them is this function's own
        self.references = None if threading.get_ident() in inside else 0 if inside else references

    def in_child(self) -> None:
        """Replace the locks that other threads held."""
        _begin_imports_anew()
        if "torch._dynamo" not in sys.modules or (found := dynamo.get()) is None:
            return
        found.convert_frame.compile_lock = threading.RLock()
        if self.references not in (None, sys.getrefcount(_entry(found))):
            handler = found.callback_handler
            handler.__init__(handler.start_callbacks, handler.end_callbacks)
            # The locks of guards are not Python's, and cannot be renewed.
            found.reset_code_caches()


def _in(frame: FrameType | None, file: str) -> bool:
    while frame is not None and frame.f_code.co_filename != file:
        frame = frame.f_back
    return frame is not None


def _begin_imports_anew() -> None:
    locks, own = import_locks.get() or {}, threading.get_ident()
    for name, reference in list(locks.items()):
        if (lock := reference()) is not None and lock.owner not in (None, own):
            del locks[name]
            if getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False):
                del sys.modules[name]  # half of it ran


@cache
def watch_forks() -> None:
    """Register the fork handlers, once."""
    threads = _ForkHandlers()
    os.register_at_fork(before=threads.before_fork)
    after_fork(threads.in_child)
