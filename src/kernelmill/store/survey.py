"""Survey of a folder of compiled kernels: every entry read and checked, nothing changed."""

from __future__ import annotations

from kernelmill.core.dataclass import dataclass
from kernelmill.store.entry import BadEntry
from kernelmill.store.folder import Folder


@dataclass(frozen=True)
class Row:
    """State of one entry. `state` is "ok", "incomplete" (files are missing: compiled again when
    needed), "bad" (damaged, see `reason`) or "unread" (not readable now, see `reason`). `bytes` is
    the object's size."""

    name: str
    state: str
    bytes: int = 0
    reason: str = ""


@dataclass(frozen=True)
class Survey:
    """Entries of a folder. `leftovers`: harmless files of interrupted writes and bad entries."""

    rows: tuple[Row, ...]
    leftovers: tuple[str, ...]

    def count(self, state: str) -> int:
        return sum(row.state == state for row in self.rows)


def survey(path: str) -> Survey:
    """Check every entry in the folder. StoreError for files that other users can write to."""
    folder = Folder(path)
    rows = tuple(_row(folder, name) for name in folder.names())
    marks = (".tmp-", ".bad-", ".lock")
    return Survey(rows, tuple(f for f in folder.files() if any(mark in f for mark in marks)))


def _row(folder: Folder, name: str) -> Row:
    try:
        entry = folder.load(name)
        if entry is None:
            return Row(name, "incomplete")
        if not name.endswith(f"_{entry.key.digest}"):
            raise BadEntry(f"{name}.info: its ingredients give the digest {entry.key.digest}")
    except BadEntry as bad:
        return Row(name, "bad", reason=str(bad))
    except OSError as error:
        return Row(name, "unread", reason=f"cannot be read now: {error.strerror}")
    return Row(name, "ok", len(entry.object))
