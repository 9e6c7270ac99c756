"""Upkeep and survey of a folder of compiled kernels, and the entries that live processes use.

An entry's last use is the time of its .json, which every process that uses it sets once.

Entries in use by live processes, listed in files of the folder itself.

A process lists them in a file `.use-{pid}-{random}` and holds a shared flock on it: however the
process ends, the lock ends with it, and the next reader removes the list. In an unwritable folder
nothing is listed; nothing can be removed there either.
"""

from __future__ import annotations

import fcntl
import io
import os
import re
import tarfile
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from kernelmill.core.after_fork import track
from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import StoreError
from kernelmill.store.entry import NAME, SUFFIXES, BadEntry, Entry, decode
from kernelmill.store.folder import Folder

_MARK = ".use-"


class Uses:
    """The list of this process for one folder. After a fork the child starts its own."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._begin()
        track(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._named: set[str] = set()
        self._file: int | None = None

    def add(self, name: str) -> None:
        """Note that this process uses the entry, and that it was used now."""
        if name in self._named:
            return
        with self._lock:
            self._named.add(name)
            try:
                if self._file is None:
                    self._file = self._start()
                os.write(self._file, f"{name}\n".encode())
                self._folder.touch(f"{name}.json")
            except OSError:
                pass  # read-only, full or gone

    def after_fork(self) -> None:
        """Start a list of its own in a child."""
        # The parent's descriptor stays open here, and its list in force until both are gone.
        self._begin()

    def _start(self) -> int:
        names_in_use(self._folder)  # removes the lists of the dead
        while True:
            filename = f"{_MARK}{os.getpid()}-{os.urandom(6).hex()}"
            descriptor = self._folder.open_new(filename)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            if self._folder.status(filename) is not None:
                weakref.finalize(self, _finish, self._folder, filename, descriptor, os.getpid())
                return descriptor
            os.close(descriptor)  # taken for a dead one's, before it was locked


def _finish(folder: Folder, filename: str, descriptor: int, owner: int) -> None:
    if os.getpid() == owner:
        folder.discard(filename)
    os.close(descriptor)


def names_in_use(folder: Folder) -> set[str]:
    """Return the entries that live processes use; lists of dead ones are removed. OSError when a
    list cannot be read now."""
    names: set[str] = set()
    for filename in folder.files():
        if not filename.startswith(_MARK):
            continue
        try:
            descriptor = folder.open_plain(filename)
        except (FileNotFoundError, PermissionError, StoreError):  # gone, or another user's
            continue
        with open(descriptor, "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                folder.discard(filename)
            except BlockingIOError:
                names.update(file.read().decode(errors="replace").split())
    return names


LARGEST_FILE = 1 << 28
"""Most bytes of a file that `import_archive` accepts: no kernel comes near."""

_MEMBER = re.compile(rf"({NAME.pattern})(\.o|\.info|\.json)")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
_PATIENCE_SECONDS = 5.0
_LEFTOVER_SECONDS = 24 * 3600.0
_SET_ASIDE, _TEMPORARY = ".bad-", ".tmp-"


def parse_size(text: str) -> int:
    """Return the bytes of "2G", "500M", "1.5k" or "4096"; a K is 1024. ValueError for others."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no size; write 2G, 500M or a number of bytes")
    return int(float(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " "))


@dataclass(frozen=True)
class Cleanup:
    """Result of `collect`: entries and bytes removed, bytes left, and the number of entries in
    use now. `leftovers` counts removed files of interrupted writes and of entries that were set
    aside."""

    removed: int
    removed_bytes: int
    left_bytes: int
    in_use: int
    leftovers: int


def collect(path: str, max_bytes: int) -> Cleanup:
    """Remove least recently used entries until the folder holds at most `max_bytes`.

    Entries that a live process uses stay, even when that is more. Files of interrupted writes, and
    of damaged entries that were set aside for a person to look at, go when they are a day old, or
    when space is short. StoreError when the folder is not trusted, OSError when it cannot be
    written.
    """
    folder = Folder(path)
    entries = sorted(_last_use(folder, name) for name in folder.names())
    total = sum(size for _, _, size in entries)
    leftovers = _remove_leftovers(folder, max_bytes - total)
    used = names_in_use(folder)
    removed = freed = 0
    for _, name, size in entries:
        if total - freed <= max_bytes:
            break
        if name not in used and _remove_unused(folder, name):
            removed += 1
            freed += size
    return Cleanup(removed, freed, total - freed, len(used), leftovers)


def _remove_leftovers(folder: Folder, room: int) -> int:
    """Remove old leftovers; return how many. `room` is the number of bytes that may stay."""
    names = [name for name in folder.files() if _SET_ASIDE in name or _TEMPORARY in name]
    there = [(status, name) for name in names if (status := folder.status(name))]
    found = [(status.st_mtime, name, status.st_size) for status, name in there]
    removed = 0
    for written, name, size in sorted(found, reverse=True):
        # A younger temporary file may still be written.
        old = time.time() - written > _LEFTOVER_SECONDS
        room -= size
        if old or (room < 0 and _SET_ASIDE in name):
            folder.discard(name)
            removed += 1
    return removed


def _remove_unused(folder: Folder, name: str) -> bool:
    """Remove the entry unless a process began to use it; return whether it was removed."""
    with folder.lock(name, _PATIENCE_SECONDS):
        if name in names_in_use(folder):
            return False
        folder.remove(name)
        return True


def _last_use(folder: Folder, name: str) -> tuple[int, str, int]:
    """Return the last use of an entry in nanoseconds, its name, and the size of its files."""
    found = [s for s in (folder.status(f"{name}{suffix}") for suffix in SUFFIXES) if s]
    used = max((max(s.st_atime_ns, s.st_mtime_ns) for s in found), default=0)
    return used, name, sum(s.st_size for s in found)


def export_archive(path: str, archive: str, names: Sequence[str] | None = None) -> int:
    """Write all good entries of the folder, or those of `names`, into one tar file; return how
    many. Equal entries give equal bytes. The archive gets its name when it is complete."""
    folder = Folder(path)
    temporary = f"{archive}.tmp-{os.getpid()}-{threading.get_ident()}"
    count = 0
    try:
        with tarfile.open(temporary, "w", format=tarfile.PAX_FORMAT) as tar:
            for name in folder.names() if names is None else sorted(names):
                files = _good_files(folder, name)
                for suffix in SUFFIXES if files else ():
                    member = tarfile.TarInfo(f"{name}{suffix}")
                    member.size = len(files[suffix])
                    tar.addfile(member, io.BytesIO(files[suffix]))
                count += bool(files)
        os.replace(temporary, archive)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
    return count


def _good_files(folder: Folder, name: str) -> dict[str, bytes]:
    """Return the three files; none if one is missing or damaged."""
    try:
        if files := folder.files_of(name):
            check(decode(name, files))
    except BadEntry:
        return {}
    return files


def check(entry: Entry) -> None:
    """Raise BadEntry unless the entry's name is made of the ingredients in its .info."""
    if not entry.name.endswith(f"_{entry.key.digest}"):
        raise BadEntry(f"{entry.name}.info: its ingredients give the digest {entry.key.digest}")


@dataclass(frozen=True)
class Imported:
    """Result of `import_archive`. `refused` has a line for each bad member or entry."""

    added: int
    present: int
    refused: tuple[str, ...]


def import_archive(path: str, archive: str) -> Imported:
    """Import the entries of an archive, each checked as if it could be damaged.

    Nothing is extracted: members are read into memory, and only plain files named like an entry's
    are read, so a path in the archive names no file here. StoreError for a file that is no archive.
    """
    folder = Folder(path)
    added = present = 0
    refused: list[str] = []
    for name, files in _members(archive, refused):
        try:
            missing = [suffix for suffix in SUFFIXES if suffix not in files]
            if missing:
                raise BadEntry(f"{name}: no {', '.join(missing)} in the archive")
            check(decode(name, files))
        except BadEntry as bad:
            refused.append(str(bad))
            continue
        with folder.lock(name, _PATIENCE_SECONDS):
            if _good_files(folder, name):
                present += 1
            else:
                folder.save(name, {suffix: files[suffix] for suffix in SUFFIXES})
                added += 1
    return Imported(added, present, tuple(refused))


def _members(archive: str, refused: list[str]) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Yield (entry's name, its files), one entry in memory at a time if its files are adjacent."""
    name, files = "", dict[str, bytes]()
    try:
        with tarfile.open(archive, "r:") as tar:
            for member in tar:
                match = _MEMBER.fullmatch(member.name)
                if match is None or not member.isreg() or member.size > LARGEST_FILE:
                    refused.append(f"{member.name!r} is no file of a kernel")
                    continue
                if match[1] != name:
                    if files:
                        yield name, files
                    name, files = match[1], {}
                source = tar.extractfile(member)
                files[match[2]] = source.read() if source is not None else b""
    except tarfile.TarError as error:
        raise StoreError(f"{Path(archive).name} is no archive of kernels: {error}") from error
    if files:
        yield name, files


@dataclass(frozen=True)
class KeyDifference:
    """An ingredient in which two keys differ, and the lines of it that only one of them has."""

    ingredient: str
    first: tuple[str, ...]
    second: tuple[str, ...]


def explain_difference(path: str, first: str, second: str) -> list[KeyDifference]:
    """Return each ingredient in which two entries differ. `first` and `second` are names, whose
    digests may be cut, or the beginnings of digests. StoreError if one matches no entry or
    several."""
    folder = Folder(path)
    one, two = (dict(_entry(folder, wanted).key.ingredients) for wanted in (first, second))
    found: list[KeyDifference] = []
    for ingredient in sorted(one | two):
        mine, other = one.get(ingredient, ""), two.get(ingredient, "")
        if mine != other:
            ours, theirs = mine.splitlines(), other.splitlines()
            only_ours = tuple(line for line in ours if line not in theirs)
            only_theirs = tuple(line for line in theirs if line not in ours)
            found.append(KeyDifference(ingredient, only_ours, only_theirs))
    return found


def _entry(folder: Folder, wanted: str) -> Entry:
    kind, _, digest = wanted.rpartition("_")
    split = ((name, *name.rpartition("_")) for name in folder.names())
    found = [n for n, its, _, of in split if its.startswith(kind) and of.startswith(digest)]
    if len(found) != 1:
        what = f"{len(found)} kernels begin" if found else "no kernel begins"
        raise StoreError(f"{folder.path}: {what} with {wanted!r}; 'kernelmill cache ls' lists them")
    try:
        entry = folder.load(found[0])
    except BadEntry as bad:
        raise StoreError(f"{folder.path}: {bad}; it is compiled again when needed") from bad
    if entry is None:
        raise StoreError(f"{folder.path}: {found[0]} lacks a file; it is compiled when needed")
    return entry


@dataclass(frozen=True)
class EntryState:
    """State of one entry. `state` is "ok", "incomplete" (files are missing: compiled again when
    needed), "bad" (damaged, see `reason`) or "unread" (not readable now, see `reason`). `bytes` is
    the object's size."""

    name: str
    state: str
    bytes: int = 0
    reason: str = ""


@dataclass(frozen=True)
class FolderSurvey:
    """Entries of a folder. `leftovers`: harmless files of interrupted writes and bad entries."""

    rows: tuple[EntryState, ...]
    leftovers: tuple[str, ...]

    def count(self, state: str) -> int:
        return sum(row.state == state for row in self.rows)


def survey(path: str) -> FolderSurvey:
    """Check every entry in the folder. StoreError for files that other users can write to."""
    folder = Folder(path)
    rows = tuple(_row(folder, name) for name in folder.names())
    marks = (".tmp-", ".bad-", ".lock")
    return FolderSurvey(rows, tuple(f for f in folder.files() if any(mark in f for mark in marks)))


def _row(folder: Folder, name: str) -> EntryState:
    try:
        entry = folder.load(name)
        if entry is None:
            return EntryState(name, "incomplete")
        check(entry)
    except BadEntry as bad:
        return EntryState(name, "bad", reason=str(bad))
    except OSError as error:
        return EntryState(name, "unread", reason=f"cannot be read now: {error.strerror}")
    return EntryState(name, "ok", len(entry.object))
