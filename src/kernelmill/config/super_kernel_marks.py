"""Marks of super-kernel ranges: the data that `kernelmill.scope` attaches to operators, and its
text.

    mark    = [NAME] ["?" options] ["#" TAG "," PRIORITY] ["@" THREADS] ["~" MODE] ["<" events]
              [">" events]
    options = OPTION "=" VALUE {":" OPTION "=" VALUE}
    events  = NUMBER {"," NUMBER}

Events order operators, for `wait_tensor`, and for `wait` with `record`: operators with an event
after "<" start after those that have it after ">". THREADS is the limit of `limit_threads`. MODE is
that of `torch.set_deterministic_debug_mode` for an operator that runs in ATen; by default it is the
caller's.

Operators of a graph and steps of a plan have marks as data; the text is their printed form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import ConfigError

MARK_KEY = "kernelmill.scope"
STREAM_KEY = "kernelmill.stream"
THREADS_KEY = "kernelmill.threads"
DUMP_KEY = "kernelmill.dump"
DETERMINISTIC_KEY = "kernelmill.deterministic"
"""Keys of the marks in a traced node's `meta["custom"]`."""

_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,64}")
_CHOICES = {
    "stream-fusion": ("0", "1"),
    "strict-scope-check": ("bypass", "abort"),
    "feed-sync-all": ("0", "1"),
    "debug-sync-all": ("0", "1"),
}
_COUNTS = ("debug-aic-num", "debug-aiv-num")
"""Numbers of an NPU's cores by kind; here the larger one is a number of threads."""

HARDWARE_OPTIONS = tuple(
    (
        "split-mode preload-code early-start dcci-before-kernel-start dcci-after-kernel-end dcci- "
        "disable-on-kernel"
    ).split()
)
"""Options of TorchAir that steer the hardware of an NPU."""


@dataclass(frozen=True)
class RangeOptions:
    """Options of a super-kernel range.

    stream_fusion  as many streams as the graph offers, else two at most
    abort          a step that cannot be fused is an error; else it splits the range
    sync_all       all threads meet after every sub-kernel
    threads        the most that the range runs on; 0: all
    """

    stream_fusion: bool = False
    abort: bool = False
    sync_all: bool = False
    threads: int = 0


def parse_options(text: str) -> RangeOptions:
    """Return the options in "name=value:name=value". ConfigError names the fault and its place."""
    values: dict[str, str] = {}
    for part in text.split(":") if text else ():
        name, equals, value = part.partition("=")
        if not equals or not name or not value:
            raise ConfigError(
                f"super_kernel options {text!r}: {part!r} is not <name>=<value>; write "
                "'<name>=<value>:<name>=<value>'"
            )
        if name in values:
            raise ConfigError(f"super_kernel options {text!r}: {name} is given twice")
        _check(name, value)
        values[name] = value
    cores = [int(values.get(name, 0)) for name in _COUNTS]
    if set(_COUNTS) & set(values) and not any(cores):
        raise ConfigError(f"super_kernel options {text!r}: at least one thread is needed")
    return RangeOptions(
        values.get("stream-fusion") == "1",
        values.get("strict-scope-check") == "abort",
        "1" in (values.get("feed-sync-all"), values.get("debug-sync-all")),
        max(cores),
    )


def options_of(values: Mapping[str, Any]) -> RangeOptions:
    """Return the options in a dict of names and values. ConfigError as `parse_options`."""
    return parse_options(":".join(f"{name}={value}" for name, value in values.items()))


def _check(name: str, value: str) -> None:
    if name in HARDWARE_OPTIONS:
        raise ConfigError(
            f"super_kernel option {name!r} has no meaning on a CPU; those that have: "
            f"{', '.join((*_CHOICES, *_COUNTS))}"
        )
    if name in _COUNTS:
        if not value.isdecimal():
            raise ConfigError(f"super_kernel option {name}={value}: it is no number of cores")
        return
    if name not in _CHOICES:
        raise ConfigError(
            f"super_kernel has no option {name!r}; its options: {', '.join((*_CHOICES, *_COUNTS))}"
        )
    if value not in _CHOICES[name]:
        raise ConfigError(
            f"super_kernel option {name}={value}: the values are {', '.join(_CHOICES[name])}"
        )


@dataclass(frozen=True)
class Mark:
    """The mark of an operator: the range's name, its options, its stream's tag ("": none),
    priority; the events it waits for, and those that it gives; the most threads it may have (0:
    all); torch's mode of deterministic algorithms (None: the caller's). False outside of ranges."""

    scope: str = ""
    options: str = ""
    stream: str = ""
    priority: int = 0
    awaited: frozenset[int] = frozenset()
    given: frozenset[int] = frozenset()
    threads: int = 0
    deterministic: int | None = None

    def __bool__(self) -> bool:
        return self.scope != ""

    @property
    def taken_out(self) -> bool:
        """True if a block inside the range excludes the operator."""
        return self.scope == TAKEN_OUT.scope

    def with_events(
        self, awaited: frozenset[int] = frozenset(), given: frozenset[int] = frozenset()
    ) -> Mark:
        """Return the mark with these events added. Operators outside of ranges have none."""
        if not self or self.taken_out:
            return self
        return replace(self, awaited=self.awaited | awaited, given=self.given | given)

    def __str__(self) -> str:
        text = self.scope + (f"?{self.options}" if self.options else "")
        text += f"#{self.stream},{self.priority}" if self.stream else ""
        text += f"@{self.threads}" if self.threads else ""
        text += f"~{self.deterministic}" if self.deterministic is not None else ""
        return text + _events_text("<", self.awaited) + _events_text(">", self.given)


UNMARKED = Mark()
"""The mark of an operator outside of ranges."""

LIMITED = "limit_threads"
"""The range of operators outside of ranges that have a limit of threads."""

TAKEN_OUT = Mark("!")
"""The mark of an operator in a block whose range is None or ""."""


def _events_text(sign: str, events: frozenset[int]) -> str:
    return sign + ",".join(map(str, sorted(events))) if events else ""


def _events(text: str) -> frozenset[int]:
    return frozenset(map(int, text.split(","))) if text else frozenset()


def check_range(scope: object, options: object) -> None:
    """Raise ConfigError unless these are a range's name (or None) and options."""
    if not isinstance(options, str):
        raise ConfigError(f"super_kernel options {options!r} are no text")
    if scope is not None and scope != "":
        _check_name("super_kernel scope", scope)
    parse_options(options)


def check_stream(tag: object, priority: object) -> None:
    """Raise ConfigError unless these are a stream's tag and priority."""
    _check_name("stream_switch tag", tag)
    if type(priority) is not int or not -8 <= priority <= 8:
        raise ConfigError(f"stream_switch priority {priority!r} is no whole number from -8 to 8")


def check_threads(count: object) -> None:
    """Raise ConfigError unless this is a number of threads."""
    if type(count) is not int or count < 1:
        raise ConfigError(f"limit_threads: {count!r} is no whole number from 1")


def _check_name(what: str, name: object) -> None:
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise ConfigError(f"{what} {name!r}: a name has up to 64 letters, digits, '_', '-', '.'")


@lru_cache(1024)
def read_mark(text: str) -> Mark:
    """Return the mark of a text. ValueError for an invalid one."""
    rest, _, given = text.partition(">")
    rest, _, awaited = rest.partition("<")
    rest, _, mode = rest.partition("~")
    rest, _, threads = rest.partition("@")
    rest, _, stream = rest.partition("#")
    scope, _, options = rest.partition("?")
    tag, _, priority = stream.partition(",")
    events = _events(awaited), _events(given)
    deterministic = int(mode) if mode else None
    return Mark(scope, options, tag, int(priority or 0), *events, int(threads or 0), deterministic)


def mark_of(custom: Mapping[str, Any]) -> Mark:
    """Return the mark that tracing has kept for an operator. ConfigError if the model's is invalid:
    code that is being traced cannot raise it itself."""
    scope, options = custom.get(MARK_KEY, (None, ""))
    check_range(scope, options)
    tag, priority = "", 0
    if STREAM_KEY in custom:
        tag, priority = custom[STREAM_KEY]
        check_stream(tag, priority)
    threads = custom.get(THREADS_KEY, 0)
    if THREADS_KEY in custom:
        check_threads(threads)
    if not scope and MARK_KEY in custom:
        return TAKEN_OUT
    if not scope and not threads:
        return UNMARKED
    return Mark(scope or LIMITED, options, tag, priority, threads=threads)
