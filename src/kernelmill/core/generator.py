"""The version of the code generator: a digest of the source files that decide the bytes of objects.

Computed, not kept by hand, so that no edit of the generator can leave old objects in use.
"""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
_BESIDE = (
    "core/dim.py", "core/dtype.py", "core/expr.py", "core/target/dot_units.py",
    "core/target/families.py", "core/target/isa.py", "kernel/ir.py",
)  # fmt: skip


def sources() -> list[Path]:
    """Return the generator's files, and those of other layers that it relies on: ranges of dims,
    types and processors."""
    generator = (_PACKAGE / "codegen").rglob("*.py")
    return sorted([*generator, *(_PACKAGE / name for name in _BESIDE)])


def _digest() -> str:
    state = blake2b(digest_size=8)
    for path in sources():
        state.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return state.hexdigest()


GENERATOR_VERSION = _digest()
"""Digest of the code generator: an ingredient of every kernel's key."""
