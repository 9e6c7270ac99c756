"""What of this room decides the bytes of an object: a digest of its own source files.

Computed, not kept by hand, so that no edit of the generator can leave old objects in use.
"""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path


def _digest() -> str:
    """Over the generator and the ranges of dims that it decides by, in the order of their paths."""
    room = Path(__file__).parent
    core = room.parent / "core"
    sources = [*room.rglob("*.py"), core / "dim.py", core / "expr.py"]
    state = blake2b(digest_size=8)
    for path in sorted(sources):
        state.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return state.hexdigest()


GENERATOR_VERSION = _digest()
"""Changes with every change of the code generator: an ingredient of every kernel's key."""
