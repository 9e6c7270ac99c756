"""Parts of the tests that are the same in each run: what --quick and --share choose by.

The quick part is what `make test` runs: of each test function the first of its parameters. The
shortest of each file that is not `LONG` comes first, then all others from the shortest on, as many
as fit into `BUDGET`.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path
from typing import Any

DURATIONS = Path(__file__).with_name("durations.txt")
"""Seconds and names of test functions, which `pytest --write-durations` has measured."""
BUDGET = 600.0
"""Seconds of two processes together: seven minutes, but for what both take to begin and end."""
LONG = 10.0
"""Seconds. A file whose tests all take longer waits for its turn with all others."""
FIRST = ("parameters", "first")
"""The property of the test that counts for its function."""


def firsts_of(items: Iterable[Any]) -> dict[str, Any]:
    """Return of each test function the first of its tests, by the function's name."""
    return {item.nodeid.partition("[")[0]: item for item in reversed([*items])}


def read_durations() -> dict[str, float]:
    """Return the seconds of each test function of `DURATIONS`."""
    pairs = (line.split(" ", 1) for line in DURATIONS.read_text().splitlines())
    return {name: float(seconds) for seconds, name in pairs}


def quick_of(items: Iterable[Any]) -> list[Any]:
    """Return the tests of the quick part, of those that were collected."""
    firsts, known = firsts_of(items), read_durations()
    seconds = {name: known.get(name, 1.0) for name in firsts}
    order = sorted(firsts, key=lambda name: (seconds[name], name))
    shortest = {name.partition("::")[0]: name for name in reversed(order)}.values()
    order.sort(key=lambda name: name not in shortest or seconds[name] > LONG)
    spent = accumulate(seconds[name] for name in order)
    return [firsts[name] for name, sum in zip(order, spent, strict=True) if sum <= BUDGET]


class Durations:
    """Measures test functions, and writes those of all files that ran to `DURATIONS`."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: Any) -> None:
        if FIRST in map(tuple, report.user_properties):
            self.seconds[report.nodeid.partition("[")[0]] += report.duration

    def pytest_sessionfinish(self) -> None:
        found, ran = {**self.seconds}, {name.partition("::")[0] for name in self.seconds}
        for name, seconds in read_durations().items():
            file = name.partition("::")[0]
            if file not in ran and (DURATIONS.parents[1] / file).exists():
                found[name] = seconds
        lines = (f"{seconds:.1f} {name}\n" for name, seconds in sorted(found.items()))
        DURATIONS.write_text("".join(lines))


def part_of(text: str) -> tuple[int, int]:
    """(K, N) of "K/N": the K-th of N parts, counted from 1. ValueError for another text."""
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    part, parts = map(int, match.groups()) if match else (0, 0)
    if not 0 < part <= parts:
        raise ValueError(f"--share={text}: expected K/N, with K from 1 to N")
    return part, parts


def is_in(name: str, share: tuple[int, int]) -> bool:
    """Whether the test of that name is in the part, by a digest: no other test changes that."""
    part, parts = share
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest) % parts == part - 1
