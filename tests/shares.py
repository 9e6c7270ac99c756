"""Parts of the tests that are the same in each run: what the option --share chooses by."""

from __future__ import annotations

import hashlib
import re


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
