"""`Store`: from named ingredients to checked bytes, each kernel compiled once.

It knows no IR: the caller's `compile` makes kernels. The caller always gets its kernel: a damaged
entry is set aside and compiled again, and one that cannot be written is kept in memory. Only a
folder that others can write to is an error.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from functools import cache
from itertools import islice

from kernelmill.core import knobs
from kernelmill.core.after_fork import RenewedLock
from kernelmill.core.cache_home import cache_home
from kernelmill.core.dataclass import dataclass
from kernelmill.core.digest import Key
from kernelmill.core.log import get_logger
from kernelmill.store.entry import (
    ADDED,
    BadEntry,
    Entry,
    NewEntry,
    decode,
    encode,
    entry_name,
    key_of,
)
from kernelmill.store.folder import FirstWarnings, Folder, OnUntrusted, ThreadLocks, when_untrusted
from kernelmill.store.packages import Package, installed
from kernelmill.store.remote import Remote, default_remote
from kernelmill.store.upkeep import Uses

DEFAULT_FOLDER = "kernel_meta"
"""The default folder below `cache_home()`."""
_TOGETHER = 64
"""Most entries in one batch of writes: each has four open files meanwhile."""

PATIENCE_SECONDS = 60.0
"""Longest wait for another's compile. A kernel takes tens of milliseconds."""

_log = get_logger("store")


@dataclass
class Counts:
    """Counters of a store.

    `hits` and `misses` count look-ups, `compiled` finished compiles, `waited` the hits that another
    thread or process compiled meanwhile, `set_aside` damaged entries, and `unwritten` entries that
    are in memory only. `remote` are the hits that came from the remote store.
    """

    hits: int = 0
    misses: int = 0
    compiled: int = 0
    waited: int = 0
    set_aside: int = 0
    unwritten: int = 0
    remote: int = 0

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


@dataclass(frozen=True)
class Nearest:
    """The entry most similar to a key, and the names of the ingredients that differ."""

    name: str
    differences: tuple[str, ...]


class Store:
    """Compiled kernels in `folder`, behind read-only folders and, first of all, `packages`, the
    installed static kernels.

    StoreError, at once or on use, for folders and files that others can write to. With
    `on_untrusted` "memory" such a folder is not used, and its kernels are kept in memory, with one
    warning. Safe to use from several threads, and with any number of processes on one folder.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        read_only: Sequence[str | os.PathLike[str]] = (),
        patience: float = PATIENCE_SECONDS,
        remote: Remote | None = None,
        packages: Sequence[Package] = (),
        on_untrusted: OnUntrusted = "error",
    ) -> None:
        self.folder = Folder(folder, on_untrusted)
        self.read_only = tuple(Folder(path, on_untrusted) for path in read_only)
        self.packages = {package: Folder(package.path, on_untrusted) for package in packages}
        self.patience = patience
        self.remote = remote
        self.counts = Counts()
        self._uses = Uses(self.folder)
        self._memory: dict[str, Entry] = {}
        self._thread_locks = ThreadLocks()
        self._counting = RenewedLock()
        self._warn = FirstWarnings(_log)
        for missing in (f.path for f in self.read_only if not os.path.isdir(f.path)):
            self._warn(missing, f"no folder {missing}, which was to be looked at first; skipped")
        self._tell_refused()

    # ---- looking up -----------------------------------------------------------------------------

    def get(self, key: Key, type: str) -> Entry | None:
        """Return the entry, or None. No lock is taken unless the entry turns out to be damaged."""
        name = entry_name(type, key)
        try:
            entry = self._find(name)
        except BadEntry:
            with self._locked(name):
                entry = self._find_or_set_aside(name)
        self._count(**{"misses" if entry is None else "hits": 1})
        return entry

    def get_or_compile(self, key: Key, type: str, compile: Callable[[], NewEntry]) -> Entry:
        """Return the entry; if missing, `compile` is run by one caller while the others wait.
        `Entry.source` tells which. Errors of `compile` are raised."""
        name = entry_name(type, key)
        try:
            entry = self._find(name)
        except BadEntry:
            entry = None
        if entry is not None:
            self._count(hits=1)
            _log.info("hit %s", name)
            return entry
        with self._locked(name) as waited:
            entry = self._find_or_set_aside(name)
            if entry is not None:
                self._count(hits=1, waited=int(waited))
                _log.info("hit %s, compiled by another meanwhile", name)
                return entry
            entry = self._fetch(name, key)
            if entry is not None:
                return entry
            self._count(misses=1)
            self._log_miss(key, type)
            compiled = compile()
            self._count(compiled=1)
            return self._keep(name, key, compiled)

    def add_package(self, package: Package) -> None:
        """Search a newly installed package first. StoreError for one that others can write to."""
        self.packages = {package: Folder(package.path), **self.packages}

    def packaged(self, package: Package, key: Key, type: str) -> Entry | None:
        """Return the entry in one of `packages`, or None."""
        return self._load_other(self.packages[package], entry_name(type, key))

    def files(self, entry: Entry) -> dict[str, bytes]:
        """Return the entry's three files by file name, as a package has them."""
        body = {name: value for name, value in entry.launch.items() if name not in ADDED}
        info = {name: value for name, value in entry.info.items() if name != "ingredients"}
        made = encode(entry.name, entry.key, NewEntry(entry.object, info, body))
        return {f"{entry.name}{suffix}": data for suffix, data in made.items()}

    def put(self, key: Key, type: str, compiled: NewEntry) -> Entry:
        """Store a kernel that was compiled elsewhere, replacing an old entry."""
        name = entry_name(type, key)
        with self._locked(name):
            return self._keep(name, key, compiled)

    def adopt(self, fetched: Iterable[tuple[Entry, Mapping[str, bytes]]]) -> None:
        """Store entries that were fetched or compiled elsewhere, with their files by suffix,
        checked by the caller: in batches, which is faster than one by one."""
        rest = iter(fetched)
        while some := {entry.name: (entry, files) for entry, files in islice(rest, _TOGETHER)}:
            with ExitStack() as held:
                for name in sorted(some):  # as everybody does: two never wait for each other
                    held.enter_context(self._locked(name))
                try:
                    self.folder.save_all({name: files for name, (_, files) in some.items()})
                except OSError:
                    for name, (entry, files) in some.items():
                        self._write(name, entry, files)
                    continue
                for name in some:
                    self._memory.pop(name, None)
                    self._uses.add(name)

    def nearest(self, key: Key, type: str) -> Nearest | None:
        """Return the other entry of this type with most ingredients in common; None without any. It
        reads every .info of the type, to explain a miss and not for every look-up."""
        mine = entry_name(type, key)
        found: list[tuple[int, str, tuple[str, ...]]] = []
        for folder in (*self.read_only, self.folder):
            for name in _names(folder):
                if name == mine or name.rpartition("_")[0] != type:
                    continue
                try:
                    info = folder.read(f"{name}.info")
                    differences = key.differences(key_of(info)) if info is not None else ()
                except (BadEntry, OSError):
                    continue
                if differences:
                    found.append((len(differences), name, differences))
        return Nearest(*min(found)[1:]) if found else None

    def _find(self, name: str) -> Entry | None:
        """Return the entry from memory, packages, read-only folders or the folder. BadEntry for a
        damaged one in the last; None if it cannot be read now."""
        entry = self._memory.get(name)
        if entry is not None:
            return entry
        for package, folder in self.packages.items():
            entry = self._load_other(folder, name)
            if entry is not None:
                return replace(entry, source=f"package {package.name}")
        for folder in self.read_only:
            entry = self._load_other(folder, name)
            if entry is not None:
                return entry
        try:
            entry = self.folder.load(name)
        except OSError as error:
            _log.info("%s/%s cannot be read now (%s)", self.folder.path, name, error.strerror)
            return None
        if entry is not None:
            self._uses.add(name)
        return entry

    def _load_other(self, folder: Folder, name: str) -> Entry | None:
        try:
            return folder.load(name)
        except (BadEntry, OSError) as bad:
            self._warn("read-only", f"{folder.path}: {bad}; skipped")
            return None
        finally:
            self._tell_refused()

    def _find_or_set_aside(self, name: str) -> Entry | None:
        """Return the entry as `_find`, for a caller with its lock: a damaged one is set aside."""
        try:
            return self._find(name)
        except BadEntry as bad:
            self._count(set_aside=1)
            self._warn("damaged", f"{self.folder.path}: {bad}; set aside and compiled again")
        try:
            self.folder.set_aside(name)
        except OSError as error:
            self._warn("unwritable", f"{self.folder.path} cannot be written ({error.strerror})")
        return None

    # ---- keeping --------------------------------------------------------------------------------

    def _fetch(self, name: str, key: Key) -> Entry | None:
        """Return the entry from the remote store, checked and kept in the folder."""
        files = None if self.remote is None else self.remote.read(name)
        if files is None:
            return None
        try:
            entry = decode(name, files, "remote")
            if entry.key != key:
                raise BadEntry(f"{name} is there for another key")
        except (BadEntry, ValueError) as bad:
            self._warn("remote", f"remote store: {bad}; compiled here instead")
            return None
        self._count(hits=1, remote=1)
        _log.info("hit %s in the remote store", name)
        self._write(name, entry, files)
        return entry

    def _keep(self, name: str, key: Key, compiled: NewEntry) -> Entry:
        files = encode(name, key, compiled)
        entry = decode(name, files, "compiled")
        self._write(name, entry, files)
        if self.remote is not None:
            self.remote.write(name, files)
        return entry

    def _write(self, name: str, entry: Entry, files: Mapping[str, bytes]) -> None:
        """Write the entry to the folder, else keep it in memory."""
        try:
            self.folder.save(name, files)
            self._memory.pop(name, None)
            self._uses.add(name)
        except OSError as error:
            self._count(unwritten=1)
            self._memory[name] = replace(entry, source="memory")
            self._warn(
                "unwritable",
                f"{self.folder.path} cannot be written ({error.strerror}); what is compiled is "
                "kept in memory only, and compiled again by the next process",
            )

    @contextmanager
    def _locked(self, name: str) -> Generator[bool, None, None]:
        """Hold the entry's lock, True if it had to be waited for. Where the folder cannot be
        written or has no locks, only among this process' threads."""
        with self._thread_locks.lock(name, self.patience) as waited, ExitStack() as stack:
            with suppress(OSError):
                waited |= stack.enter_context(self.folder.lock(name, self.patience))
            yield waited

    # ---- telling --------------------------------------------------------------------------------

    def _count(self, **changes: int) -> None:
        with self._counting.lock:
            for name, change in changes.items():
                setattr(self.counts, name, getattr(self.counts, name) + change)

    def _tell_refused(self) -> None:
        """Warn of refused read-only folders and packages; the last folder warns on writing."""
        for folder in (*self.packages.values(), *self.read_only):
            if folder.refused and folder.path not in self._warn.kinds:
                self._warn(folder.path, f"not used: {folder.refused}")

    def _log_miss(self, key: Key, type: str) -> None:
        if not _log.isEnabledFor(logging.INFO):
            return
        near = self.nearest(key, type)
        differs = f"; differs from {near.name} in {', '.join(near.differences)}" if near else ""
        _log.info("compiling %s%s", entry_name(type, key), differs)


def _names(folder: Folder) -> list[str]:
    """Return the entries in a folder; none if it cannot be read now."""
    with suppress(OSError):
        return folder.names()
    return []


def default_folders() -> tuple[str, ...]:
    """Return KERNELMILL_KERNEL_META, else a folder in `cache_home()`; the last is written to."""
    return knobs.KERNEL_META.get() or (os.path.join(cache_home(), DEFAULT_FOLDER),)


def open_store(
    kernel_meta_dir: str | None = None, on_untrusted: OnUntrusted | None = None
) -> Store:
    """Return the store of a config: its option `kernel_meta_dir`, else `default_folders`.

    Its option `on_untrusted`, else KERNELMILL_ON_UNTRUSTED, decides about folders that others can
    write to. The same folders give the same store within a process. StoreError as in `Store`.
    """
    paths = (kernel_meta_dir,) if kernel_meta_dir else default_folders()
    absolute = tuple(os.path.abspath(path) for path in paths)
    untrusted = when_untrusted(on_untrusted)
    return _store_at(absolute, default_remote(), installed(untrusted), untrusted)


@cache
def _store_at(
    paths: tuple[str, ...],
    remote: Remote | None,
    packages: tuple[Package, ...],
    on_untrusted: OnUntrusted,
) -> Store:
    return Store(paths[-1], paths[:-1], remote=remote, packages=packages, on_untrusted=on_untrusted)
