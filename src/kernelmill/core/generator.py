"""What decides the bytes of an object besides the kernel's text: a digest of source files.

Computed, not kept by hand, so that no edit of the generator can leave old objects in use.
"""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
_BESIDE = (
    "core/dim.py", "core/dtype.py", "core/expr.py", "core/target/dot_units.py",
    "core/target/families.py", "core/target/isa.py", "kernel/ir.py", "kernel/ops.py",
    "kernel/walk.py",
)  # fmt: skip


def sources() -> list[Path]:
    """The generator, and what it asks of other layers: the ranges of dims that it decides by, and
    what types and processors have."""
    generator = (_PACKAGE / "codegen").rglob("*.py")
    return sorted([*generator, *(_PACKAGE / name for name in _BESIDE)])


def _digest() -> str:
    state = blake2b(digest_size=8)
    for path in sources():
        state.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return state.hexdigest()


GENERATOR_VERSION = _digest()
"""Changes with every change of the code generator: an ingredient of every kernel's key."""
