"""Logging by package, chosen with KERNELMILL_LOGS in the manner of TORCH_LOGS.

    KERNELMILL_LOGS="store"           store at INFO
    KERNELMILL_LOGS="+lower,store"    lower at DEBUG, store at INFO
    KERNELMILL_LOGS="all,-codegen"    everything at INFO, codegen at ERROR only

Underneath is the standard `logging` with one logger for each package, "kernelmill.<package>". While
the variable is unset, no handler is added and no level changed: the application decides.

`TORCH_COMPILE_DEBUG=1` writes the output of each stage of a compile to files:

torch_compile_debug/run_{time}-pid_{pid}[-rank_{rank}]/kernelmill/
    debug.log
    model__{graph}/dynamo_out_graph.txt                      Dynamo's graph
    model__{graph}/{forward|backward}/000_aot_graph.txt      AOTAutograd's, then that after each
                                  {nnn}_after_{pass}.txt     pass; the last are the plan and
                                  {nnn}_kernels.txt          the kernels
"""

from __future__ import annotations

import logging
import os
import re
import time
import warnings
from collections.abc import Callable
from functools import cache
from itertools import count

from kernelmill.core import knobs
from kernelmill.core.errors import ConfigError, file_errors

COMPONENTS = tuple(
    (
        "aot artifact backend cli codegen compat compiler config core fleet frontend gears graph "
        "inference integrations kernel lower ops passes plan report runtime scope static_kernels "
        "store superkernel torch_internals"
    ).split()
)
"""The components that KERNELMILL_LOGS may name, besides "all"."""

_LEVELS = {"": logging.INFO, "+": logging.DEBUG, "-": logging.ERROR}
_FORMAT = "%(name)s %(levelname)s [%(filename)s:%(lineno)d] %(message)s"


def get_logger(component: str) -> logging.Logger:
    """Return the logger of a component. ConfigError when KERNELMILL_LOGS names an unknown one."""
    _configure_once()
    return logging.getLogger(f"kernelmill.{component}")


def parse(text: str) -> dict[str, int]:
    """Return the level of each named component, "all" replaced by every one; later parts win.

    >>> parse("+lower,-store")
    {'lower': 10, 'store': 40}
    """
    levels: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        sign = part[0] if part[0] in "+-" else ""
        component = part.removeprefix(sign)
        if component != "all" and component not in COMPONENTS:
            known = ", ".join(("all", *COMPONENTS))
            raise ConfigError(f"KERNELMILL_LOGS: no component {component!r}; there are: {known}")
        levels.update(
            dict.fromkeys(COMPONENTS if component == "all" else (component,), _LEVELS[sign])
        )
    return levels


def configure(text: str) -> None:
    """Apply a setting as KERNELMILL_LOGS holds it: levels, and one handler to stderr."""
    levels = parse(text)
    if not levels:
        return
    root = logging.getLogger("kernelmill")
    if not root.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(_FORMAT))
        root.addHandler(handler)
        root.propagate = False
    for component, level in levels.items():
        logging.getLogger(f"kernelmill.{component}").setLevel(level)


@cache
def _configure_once() -> None:
    configure(knobs.LOGS.get())


FOLDER = "torch_compile_debug"
_NAME = re.compile(r"graph_(\d+)(?:_(\w+))?")
_numbers: dict[str, count[int]] = {}
_runs: dict[int, str] = {}
"""Folders by process number."""


def write_stage(graph: str, stage: str, text: Callable[[], str], numbered: bool = True) -> None:
    """Write a stage's output for a graph, named as captures are, if dumps are requested."""
    if not knobs.TORCH_COMPILE_DEBUG.get():
        return
    named = _NAME.fullmatch(graph.partition("[")[0])
    parts = [re.sub(r"\W", "_", graph)]
    if named is not None:
        kind = named[2] or ""
        parts = [f"model__{named[1]}", kind and ("backward" if kind == "backward" else "forward")]
    folder = os.path.join(_run_folder(), *parts)
    number = f"{next(_numbers.setdefault(folder, count())):03}_" if numbered else ""
    with file_errors(folder):
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, f"{number}{stage}.txt"), "w") as file:
            file.write(text())


def _run_folder() -> str:
    """Return this process's folder, in which its log is too."""
    if os.getpid() not in _runs:
        rank = f"-rank_{knobs.RANK.get()}" if knobs.LOCAL_WORLD_SIZE.get() else ""
        run = f"run_{time.strftime('%Y_%m_%d_%H_%M_%S')}-pid_{os.getpid()}{rank}"
        folder = _runs[os.getpid()] = os.path.abspath(os.path.join(FOLDER, run, "kernelmill"))
        with file_errors(folder):
            os.makedirs(folder, exist_ok=True)
            handler = logging.FileHandler(os.path.join(folder, "debug.log"))
        logger = logging.getLogger("kernelmill")
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
    return _runs[os.getpid()]


_named: set[str] = set()


def warn_once(name: str, reason: str) -> None:
    """Warn, the first time for each name, that it has no effect here. UserWarning."""
    if name not in _named:
        _named.add(name)
        warnings.warn(f"{name} has no effect here: {reason}", UserWarning, stacklevel=3)
