"""Schedules as text: a kernel's loops, tiles and copies on one line.

    schedule = body | "n <= " INT ":" body {"|" ...} "|" body       (a body for each class of sizes)
    body     = KIND ["(" field {"," field} ")"]
    field    = NAME "=" value | NAME                                (the name alone: true)
    value    = INT | size | WORD | body | "[" [value {"," value}] "]"

KIND is the schedule's class, a word a member of an enumeration, `axis:size` a loop. Fields with
their defaults are left out, and so are those that follow from other fields or from the processor.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum

from kernelmill.core.dim import Dim, Expr, render
from kernelmill.core.errors import ConfigError
from kernelmill.lower.elements.domain import Axis
from kernelmill.lower.schedule.candidate import Candidate

_FOLLOWS = frozenset(
    "accesses by_lane far_bytes grid merged outputs pixel row_blocks scratch_bytes single_block "
    "tasks use_fma work".split()
)
"""Fields that are costs, or follow from the sizes, the operands or the processor."""

_SIZES = re.compile(r"\b(\w+)=(\d+)\b")


def print_schedule(schedule: object) -> str:
    """Return the text of a template's schedule, a body for each class; "" for None."""
    if schedule is None:
        return ""
    if not isinstance(schedule, Sequence):
        return _value(schedule)
    *smaller, rest = ((getattr(one, "most", None), one.schedule) for one in schedule)
    return " | ".join([*(f"n <= {most}: {_value(one)}" for most, one in smaller), _value(rest[1])])


def _value(value: object) -> str:
    if isinstance(value, Axis):
        return f"{value.name}:{_size(value.extent)}"
    if isinstance(value, Enum):
        return value.name.lower()
    if isinstance(value, int | Expr):
        return _size(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(_value, value))}]"
    if not is_dataclass(value):
        return str(value)
    named = getattr(value, "name", None)
    if isinstance(named, str):
        return named
    kind = re.sub(r"(?<!^)(?=[A-Z])", "_", type(value).__name__).lower().removesuffix("_schedule")
    inside = ", ".join(_fields(value))
    return f"{kind}({inside})" if inside else kind


def _fields(schedule: object) -> Iterator[str]:
    for each in fields(schedule):  # type: ignore[arg-type]
        value = getattr(schedule, each.name)
        left_out = each.name in _FOLLOWS or value is None or value is False or value == []
        if left_out or (each.default is not MISSING and value == each.default):
            continue
        yield each.name if value is True else f"{each.name}={_value(value)}"


def _size(size: Dim) -> str:
    return str(size) if isinstance(size, int) else render(size, {})


def parse_candidate(text: str) -> Candidate:
    """Parse a text such as "rows=4 vectors=2". ConfigError for an unknown name, for a value that is
    no size, and for a name given twice."""
    known = tuple(Candidate.__dataclass_fields__)
    settled: dict[str, int] = {}
    for part in text.replace(",", " ").split():
        name, _, size = part.partition("=")
        if name not in known:
            raise ConfigError(f"--schedule {part}: the sizes are {', '.join(known)}")
        if not size.isdecimal() or int(size) == 0 or name in settled:
            raise ConfigError(f"--schedule {part}: a size is given once, as {name}=4")
        settled[name] = int(size)
    return Candidate(**settled)


def check_sizes(candidate: Candidate, schedules: Mapping[str, str]) -> None:
    """Raise ConfigError unless one of the kernels (name: text of its schedule) has all the sizes of
    the candidate, which others lack or cannot have."""
    wanted, found = candidate.settled.items(), map(_SIZES.findall, schedules.values())
    if not wanted or any(wanted <= {(name, int(n)) for name, n in sizes} for sizes in found):
        return
    texts = "".join(f"\n  {name}: {text}" for name, text in schedules.items())
    raise ConfigError(f"--schedule {candidate}: no kernel can be cut so; the schedules are{texts}")
