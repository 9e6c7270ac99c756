"""Store of compiled kernels on disk: from named key ingredients to checked bytes. Knows no IR."""

from kernelmill.core.digest import Key
from kernelmill.store.entry import BadEntry, Entry, NewEntry
from kernelmill.store.store import Counts, Nearest, Store, default_folders, open_store

__all__ = [
    "BadEntry",
    "Counts",
    "Entry",
    "Key",
    "Nearest",
    "NewEntry",
    "Store",
    "default_folders",
    "open_store",
]
