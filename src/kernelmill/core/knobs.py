"""Every environment variable that kernelmill reads: a typed table, and the only reader.

A knob is read when it is asked for, so a test or a script may set it after the import. An empty
value counts as unset. What belongs to one model is an option of `CompilerConfig`, not a knob.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from kernelmill.core.errors import ConfigError

T = TypeVar("T")

LEAST_KEY = 32
"""Characters of a key: so many hexadecimal digits are 128 bits."""


@dataclass(frozen=True)
class Knob(Generic[T]):
    """One environment variable: its name, how its text is read, and its value when unset. The text
    of a `secret` one is shown nowhere."""

    name: str
    read: Callable[[str], T]
    default: T
    summary: str
    secret: bool = False

    def get(self) -> T:
        """The value now. ConfigError names the variable when its text cannot be read."""
        text = os.environ.get(self.name, "")
        if not text:
            return self.default
        try:
            return self.read(text)
        except ValueError as error:
            shown = self.name if self.secret else f"{self.name}={text!r}"
            raise ConfigError(f"environment variable {shown}: {error}") from error


def _switch(text: str) -> bool:
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off"):
        return False
    raise ValueError("expected 1 or 0")


def _count(text: str) -> int:
    if not text.isdecimal():
        raise ValueError("expected a whole number that is not negative")
    return int(text)


def _positive(text: str) -> int | None:
    if not text.isdecimal() or int(text) == 0:
        raise ValueError("expected a whole number above 0")
    return int(text)


def _one_of(*allowed: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"expected {' or '.join(allowed)}")
        return text

    return read


def _key(text: str) -> bytes:
    if len(text) < LEAST_KEY:
        raise ValueError(f"expected a random text of at least {LEAST_KEY} characters")
    return text.encode(errors="surrogateescape")


def _folders(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(os.pathsep) if part)


LOGS = Knob("KERNELMILL_LOGS", str, "", "What to log: '+lower,store' (core/log.py).")
KERNEL_META = Knob(
    "KERNELMILL_KERNEL_META",
    _folders,
    (),
    "Folder of compiled kernels; unset: $XDG_CACHE_HOME/kernelmill/kernel_meta. With "
    f"'{os.pathsep}' in it, read-only ones in front of the last.",
)
REMOTE = Knob(
    "KERNELMILL_REMOTE",
    str,
    "",
    "Second level behind the folder: redis://host:6379/0, or a URL that fsspec knows.",
)
REMOTE_KEY = Knob(
    "KERNELMILL_REMOTE_KEY",
    _key,
    b"",
    f"Key of the second level's signatures, {LEAST_KEY} characters or more; unset: it is not used.",
    secret=True,
)
REMOTE_ACCESS = Knob(
    "KERNELMILL_REMOTE_ACCESS",
    _one_of("read", "write"),
    "read",
    "read: what is compiled is not written to the second level; write: it is.",
)
STATIC_KERNELS = Knob(
    "KERNELMILL_STATIC_KERNELS",
    str,
    "",
    "Folder of installed static kernels; default ~/.local/share/kernelmill/static_kernels.",
)
RECORD_OPS = Knob(
    "KERNELMILL_RECORD_OPS", str, "", "File to which the operators that run are appended."
)
CACHE_HOME = Knob(
    "KERNELMILL_CACHE_HOME",
    str,
    "",
    "Folder of cache_compile; unset: $XDG_CACHE_HOME/kernelmill/methods.",
)
ON_UNTRUSTED = Knob(
    "KERNELMILL_ON_UNTRUSTED",
    _one_of("error", "memory"),
    "error",
    "What comes of a folder that others can write to: error, or memory: it is not used.",
)
XDG_CACHE_HOME = Knob(
    "XDG_CACHE_HOME",
    str,
    "",
    "What is kept is below it, in kernelmill, where no folder is named; unset: ~/.cache.",
)
TARGET = Knob(
    "KERNELMILL_TARGET",
    str,
    "",
    "Compile for x86-64-v2, -v3 or -v4 instead of all that this machine has (core/isa.py).",
)
DEBUG = Knob("KERNELMILL_DEBUG", _switch, False, "1: verify every IR after every pass.")
STRICT = Knob(
    "KERNELMILL_STRICT", _switch, False, "1: raise where a graph would run in torch as a whole."
)
RANK = Knob("RANK", _count, 0, "This process' number in a distributed job, for file names.")
LOCAL_WORLD_SIZE = Knob(
    "LOCAL_WORLD_SIZE",
    _positive,
    None,
    "Processes of a distributed job on this machine, which share static kernel compiles.",
)

_Any = Knob[str] | Knob[bytes] | Knob[bool] | Knob[int] | Knob[int | None] | Knob[tuple[str, ...]]

KNOBS: tuple[_Any, ...] = (
    LOGS,
    KERNEL_META,
    REMOTE,
    REMOTE_KEY,
    REMOTE_ACCESS,
    STATIC_KERNELS,
    RECORD_OPS,
    CACHE_HOME,
    ON_UNTRUSTED,
    XDG_CACHE_HOME,
    TARGET,
    DEBUG,
    STRICT,
    RANK,
    LOCAL_WORLD_SIZE,
)
"""All of them, for `kernelmill --help` and the documents."""
