"""Outcome of each graph passed to a backend: compiled, or the reason why torch runs it. The
compiler reports on each compiled one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import chain, repeat
from typing import Any

from kernelmill.core import knobs
from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import ConfigError, InputError, NoCodeError, StoreError
from kernelmill.core.log import get_logger

_log = get_logger("backend")


@dataclass(frozen=True)
class Capture:
    """One graph from AOTAutograd.

    `kind` is "inference", "forward" or "backward". `direct`: Dynamo calls the program without
    AOTAutograd's wrapper in between. `refused` is why the whole graph runs in torch, or "". Seconds
    are those of the import and of everything after it.
    """

    name: str
    kind: str
    fx_nodes: int
    graph_nodes: int = 0
    direct: bool = False
    refused: str = ""
    import_seconds: float = 0.0
    compile_seconds: float = 0.0


def or_in_torch(name: str, compile: Callable[[], Any], in_torch: Callable[[str], Any]) -> Any:
    """Return the result of `compile`; if it fails, warn and return that of `in_torch`.

    Errors that a user has to correct are raised, and in tests all.
    """
    try:
        return compile()
    except (ConfigError, InputError, StoreError):
        raise
    except Exception as error:
        if knobs.STRICT.get():
            raise
        reason = str(error) or type(error).__name__  # a MemoryError has no text
        _log.log(
            _level(error), "%s runs in torch: %s", name, reason,
            exc_info=_log.isEnabledFor(logging.DEBUG),
        )  # fmt: skip
        return in_torch(reason)


def _level(error: Exception) -> int:
    """Return the level for logging: a warning; for an error of every graph the first time only."""
    if not isinstance(error, NoCodeError):
        return logging.WARNING
    return next(_levels_without_code)


_levels_without_code = chain([logging.WARNING], repeat(logging.INFO))
