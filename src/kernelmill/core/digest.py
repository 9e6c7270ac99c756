"""Keys: named ingredients, and one digest over them.

A key has all that decides the bytes of a product as ingredients, and nothing else: no path, process
or device number. Since ingredients have names, the difference of two keys can be shown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property

from kernelmill.core.dataclass import dataclass

DIGEST_BYTES = 20
"""160 bits of BLAKE2b: no accidental collision, and file names that still fit on a line."""


@dataclass(frozen=True)
class Key:
    """Ingredients as (name, value) pairs, sorted by name. ValueError for a name given twice."""

    ingredients: tuple[tuple[str, str], ...]

    def __post_init__(self) -> None:
        ordered = tuple(sorted(self.ingredients))
        names = [name for name, _ in ordered]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise ValueError(f"key ingredients given twice: {', '.join(sorted(twice))}")
        object.__setattr__(self, "ingredients", ordered)

    @classmethod
    def of(cls, ingredients: Mapping[str, str]) -> Key:
        return cls(tuple(ingredients.items()))

    @cached_property
    def digest(self) -> str:
        """BLAKE2b over the length-prefixed names and values, in hex, the same in every process. The
        lengths keep ("ab", "c") and ("a", "bc") apart."""
        state = hashlib.blake2b(digest_size=DIGEST_BYTES)
        for pair in self.ingredients:
            for part in pair:
                data = part.encode()
                state.update(len(data).to_bytes(8, "little"))
                state.update(data)
        return state.hexdigest()

    def differences(self, other: Key) -> tuple[str, ...]:
        """Return the names of the ingredients that only one has, or that have different values."""
        mine, theirs = dict(self.ingredients), dict(other.ingredients)
        return tuple(sorted(n for n in mine | theirs if mine.get(n) != theirs.get(n)))


def digest_of(data: bytes) -> str:
    """Return BLAKE2b in hex, as long as digests of keys."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).hexdigest()


def sha256(data: bytes) -> str:
    """Return SHA-256 in hex: the checksum of files at rest."""
    return hashlib.sha256(data).hexdigest()
