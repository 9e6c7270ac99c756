"""Parts of the tests that are the same in each run: what --quick and --share choose by.

The quick part is what `make test` runs: each test once, with the first of its parameters, but for
those that take long (`LONG`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any

LONG = (
    "tests/properties/",
    "tests/e2e/cached/test_edited_models.py",
    "tests/e2e/cached/test_mutations.py",
    "tests/e2e/cached/test_processes.py",
    "tests/e2e/test_cached_generate.py",
    "tests/e2e/test_demo.py",
    "tests/e2e/test_gunicorn.py",
    "tests/e2e/test_serve.py",
    "tests/e2e/test_sliding_windows.py",
    "tests/e2e/test_static_ranks.py",
    "tests/e2e/test_symbolic_models.py",
    "tests/e2e/test_tutorials.py",
    "tests/repo/test_document_blocks.py",
    "tests/unit/tools/test_without_each.py",
    "tests/unit/torch_internals/test_sizes_when_read.py",
)
"""Beginnings of the names of tests that run random programs, servers, whole models or documents, or
dozens of processes."""


def quick_of(items: Iterable[Any]) -> list[Any]:
    """Return the tests of the quick part, of those that were collected."""
    seen: dict[tuple[object, str], Any] = {}
    for item in items:
        if not item.nodeid.startswith(LONG):
            seen.setdefault((item.parent, getattr(item, "originalname", item.name)), item)
    return list(seen.values())


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
