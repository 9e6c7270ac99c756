"""Logging by package, chosen with KERNELMILL_LOGS in the manner of TORCH_LOGS.

    KERNELMILL_LOGS="store"           store at INFO
    KERNELMILL_LOGS="+lower,store"    lower at DEBUG, store at INFO
    KERNELMILL_LOGS="all,-codegen"    everything at INFO, codegen at ERROR only

Underneath is the standard `logging` with one logger for each package, "kernelmill.<package>". While
the variable is unset, no handler is added and no level changed: the application decides.
"""

from __future__ import annotations

import logging
from functools import cache

from kernelmill.core import knobs
from kernelmill.core.errors import ConfigError

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
