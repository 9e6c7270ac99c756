"""Hooks around each compile of Dynamo's, whether or not it calls the backend."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from kernelmill.backend.graph_breaks import say_breaks
from kernelmill.core.interpreter import collection_paused
from kernelmill.core.version import BACKEND_NAME
from kernelmill.torch_internals.compiles import around_compiles, backend_of_compile
from kernelmill.torch_internals.forks import watch_forks

_tracing = ExitStack()


def watch_compiles() -> None:
    """Pause garbage collection while Dynamo traces for this backend, and log breaks also for models
    of which nothing is captured. Until `torch._dynamo.reset()`; may be called again."""
    watch_forks()
    say_breaks()
    around_compiles(_before, _after)


def _before(_: Any) -> None:
    # Other backends may take minutes, and make more garbage than memory has room for.
    if backend_of_compile() == BACKEND_NAME:
        _tracing.enter_context(collection_paused())


def _after(_: Any) -> None:
    _tracing.close()
    say_breaks()
