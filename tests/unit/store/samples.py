"""Keys, and what their compiles give, for the tests of the store."""

from kernelmill.store import Key, NewEntry


def key(n: int) -> Key:
    return Key.of({"kernel": f"kernel number {n}", "target": "x86-64-v4"})


def compiled(n: int) -> NewEntry:
    """What a compile of `key(n)` gives, always the same."""
    info = {"op_info": {"Type": "Square", "inputs": [{"dtype": "float32", "shape": [n]}]}}
    return NewEntry(b"\x7fELF" + bytes([n % 256]) * 2000, info, {"blockDim": n})
