"""Shapes of calls as lines of JSON: `{"shapes": {"input_ids": [2, 7], "inputs[0]": [2, 7]}}`.

Each call is a line. Names are expressions of `forward`'s parameters.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kernelmill.core.errors import GearError

Shapes = tuple[tuple[str, tuple[int, ...]], ...]
"""The tensors of one call, by name."""


def line_of(shapes: Mapping[str, Sequence[int]]) -> str:
    """Return the line of one call, with its newline."""
    listed = {name: list(shape) for name, shape in shapes.items()}
    return json.dumps({"shapes": listed}, ensure_ascii=False) + "\n"


def read_shapes(lines: Iterable[str]) -> Counter[Shapes]:
    """Return the number of occurrences of each call. GearError names the number of a bad line."""
    found: Counter[Shapes] = Counter()
    for number, line in enumerate(lines, 1):
        if line.strip():
            found[_shapes(line, number)] += 1
    return found


def _shapes(line: str, number: int) -> Shapes:
    try:
        record: Any = json.loads(line)
        shapes: dict[str, list[int]] = record["shapes"]
        pairs = tuple((name, tuple(shape)) for name, shape in shapes.items())
    except (ValueError, TypeError, KeyError, AttributeError):
        raise _error(number, line) from None
    if any(type(size) is not int or size < 0 for _, shape in pairs for size in shape):
        raise _error(number, line)
    return pairs


def _error(number: int, line: str) -> GearError:
    return GearError(
        f"line {number} is no record of shapes: {line.strip()[:60]!r}; "
        "kernelmill.inference.record_shapes writes such files"
    )
