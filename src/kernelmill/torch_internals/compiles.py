"""Compiles by Dynamo: their begin and end, backend and hooks. Probes import torch._dynamo."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any

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
