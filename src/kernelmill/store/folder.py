"""A folder of entries on disk: checks of trust, reads, writes and locks.

All access is through one open descriptor of the folder, which was checked when it was opened: a
folder swapped in later under the same path is never used unchecked.

Outcomes of reading a file, for all readers:

    missing     None
    damaged     BadEntry, or Damaged of store/sealed.py: its bytes were read whole, and their
                checksums do not match. This alone is a reason to set a file aside
    refused     StoreError: another user could have written it
    unreadable  OSError: any other error of the system, as "too many open files". It says nothing
                about the file, which may be good for other processes

Locks between the threads of a process, and between processes.

Between processes a lock is `flock` on a file that exists only during a compile. The system releases
it the moment its owner dies, so a takeover needs no time-out. Waiting is limited all the same
(`patience`): an owner that was stopped, not killed, must not stop all others. After that a process
continues without the lock, which costs a second compile and breaks nothing, since files appear by
rename.
"""

from __future__ import annotations

import errno
import fcntl
import io
import logging
import os
import shlex
import stat
import threading
import time
import weakref
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import BinaryIO, Literal, NamedTuple

from kernelmill.core import knobs
from kernelmill.core.after_fork import after_fork, track
from kernelmill.core.cache_home import cache_home
from kernelmill.core.errors import StoreError
from kernelmill.core.workers import Workers
from kernelmill.store.entry import NAME, SUFFIXES, BadEntry, Entry, decode

_POLL_SECONDS = 0.002


class ThreadLocks:
    """A lock for each name, among the threads of this process."""

    def __init__(self) -> None:
        self._locks: dict[str, threading.Lock] = {}
        track(self)

    @contextmanager
    def lock(self, name: str, patience: float) -> Generator[bool, None, None]:
        """Hold the name's lock, or continue without after `patience` seconds; True: had to wait."""
        lock = self._locks.setdefault(name, threading.Lock())
        held = lock.acquire(blocking=False)
        waited = not held
        if waited:
            held = lock.acquire(timeout=patience)
        try:
            yield waited
        finally:
            if held:
                lock.release()

    def after_fork(self) -> None:
        """Forget all locks."""
        self._locks = {}


class FileLock(NamedTuple):
    """The state of a lock file. `waited`: another owner had it first. `stale`: the file existed
    already, so its maker may have died and left other files behind."""

    waited: bool
    stale: bool


@contextmanager
def file_lock(folder: int, filename: str, patience: float) -> Generator[FileLock, None, None]:
    """Hold the lock file `filename` of the open folder `folder`; see the module's text. OSError
    when the folder cannot be written or the file system has no locks."""
    deadline = time.monotonic() + patience
    waited = stale = False
    file: io.FileIO | None = None
    while file is None and (not waited or time.monotonic() < deadline):
        file, existed = _try_lock(folder, filename)
        stale |= existed
        if file is None:
            waited = True
            time.sleep(_POLL_SECONDS)
    try:
        yield FileLock(waited, stale)
    finally:
        if file is not None and not file.closed:
            # While the lock is held: who waits on this file finds that the name is gone, and starts
            # over with a new one.
            with suppress(OSError):  # the folder may have been cleaned
                os.unlink(filename, dir_fd=folder)
            _HELD.discard(file)
            file.close()


def _try_lock(folder: int, filename: str) -> tuple[io.FileIO | None, bool]:
    """Return (the locked file or None, whether it existed before)."""
    existed = False

    def opener(path: str, _: int) -> int:
        nonlocal existed
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            return os.open(path, flags | os.O_EXCL, 0o600, dir_fd=folder)
        except FileExistsError:
            existed = True
            return os.open(path, flags, 0o600, dir_fd=folder)

    file = io.FileIO(filename, "r+", opener=opener)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        named = os.stat(filename, dir_fd=folder, follow_symlinks=False)
        if os.path.samestat(os.fstat(file.fileno()), named):
            _HELD.add(file)
            return file, existed
    except (BlockingIOError, FileNotFoundError):
        pass  # another has it, or has just removed it
    except BaseException:
        file.close()
        raise
    file.close()
    return None, existed


_HELD: set[io.FileIO] = set()


@after_fork
def _let_go() -> None:
    """Close the parent's lock files in a child, which owns none and must not keep them alive."""
    for file in _HELD:
        file.close()
    _HELD.clear()


class FirstWarnings:
    """Messages to a log: the first of each kind is a warning, later ones are at INFO."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self.kinds: set[str] = set()

    def __call__(self, kind: str, message: str) -> None:
        self._log.log(logging.INFO if kind in self.kinds else logging.WARNING, "%s", message)
        self.kinds.add(kind)


_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Not blocking: opening a named pipe must not hang.
_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_PIECE = 1 << 20
_SYNCING = 16
"""Files that are synced in parallel: 390 of them took 1.2 s one by one, and 40 ms so."""

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


_ANOTHER_FOLDER = (
    "or choose another folder with KERNELMILL_KERNEL_META or "
    "config.experimental_config.kernel_meta_dir"
)


def check_trust(status: os.stat_result, path: str, otherwise: str = _ANOTHER_FOLDER) -> None:
    """Raise StoreError if another user could have written the file of this `status`. `otherwise` is
    the alternative to taking it over, for the message."""
    quoted = shlex.quote(path)
    if status.st_uid not in (os.geteuid(), 0):
        raise StoreError(
            f"{path} belongs to user {status.st_uid}, and compiled code of another user is not "
            f"run. Take it over (chown -R {os.geteuid()} {quoted}), {otherwise}"
        )
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise StoreError(
            f"{path} can be written by other users (mode {stat.S_IMODE(status.st_mode):o}), and "
            f"compiled code that others can change is not run. Fix: chmod -R go-w {quoted}"
        )


def make_folders(path: str) -> None:
    """Make a folder and its missing parents, writable by this user alone, and below
    `cache_home()` readable by this user alone: the weights of models are kept there. OSError if
    it cannot be made."""
    above, name = os.path.split(path)
    if name and not os.path.isdir(above):
        make_folders(above)
    home = cache_home()
    with suppress(FileExistsError):
        os.mkdir(path, 0o700 if os.path.commonpath((home, path)) == home else 0o755)


OnUntrusted = Literal["error", "memory"]


def when_untrusted(option: OnUntrusted | None) -> OnUntrusted:
    """Return the treatment of untrusted folders: the option, else KERNELMILL_ON_UNTRUSTED."""
    return option or ("memory" if knobs.ON_UNTRUSTED.get() == "memory" else "error")


class Folder:
    """Entries under one path. The folder is made by the first write.

    StoreError, at once or on use, for files that others could have written. With `on_untrusted`
    "memory" the folder is not used from then on: nothing is in it, it cannot be written (OSError),
    and `refused` says why.
    """

    def __init__(self, path: str | os.PathLike[str], on_untrusted: OnUntrusted = "error") -> None:
        self.path = os.path.abspath(path)
        self.refused = ""
        self._on_untrusted = on_untrusted
        self._descriptor: int | None = None
        with suppress(OSError):  # reads and writes raise it
            self._there()

    # ---- the folder itself ------------------------------------------------------------------

    def _open(self) -> int:
        """Return a checked descriptor. OSError if the folder is missing or cannot be used."""
        try:
            descriptor = os.open(self.path, _OPEN_FOLDER)
        except NotADirectoryError:
            if not os.path.lexists(self.path):
                raise
            self.refuse(StoreError(self._not_a_folder()))
            raise self._refusal() from None
        weakref.finalize(self, os.close, descriptor)
        try:
            check_trust(os.fstat(descriptor), self.path)
        except StoreError as error:
            self.refuse(error)
            raise self._refusal() from None
        return descriptor

    def _refusal(self) -> PermissionError:
        return PermissionError(errno.EACCES, self.refused, self.path)

    def refuse(self, error: StoreError) -> None:
        """Raise this error about a file that others could have written, or give up the folder."""
        if self._on_untrusted == "error":
            raise error
        self.refused = str(error)
        self._descriptor = None

    def _not_a_folder(self) -> str:
        if os.path.islink(self.path):
            real = os.path.realpath(self.path)
            return (
                f"{self.path} is a symbolic link, which could be pointed elsewhere. Where it is "
                f"named (an option, a variable), name the folder itself: {shlex.quote(real)}"
            )
        return f"{self.path} is a file; kernels need a folder there, or another path"

    def _made(self) -> int:
        """Return a descriptor of the folder, made if need be. OSError if it cannot be made."""
        if self.refused:
            raise self._refusal()
        if self._descriptor is None or not self._still_there(self._descriptor):
            make_folders(self.path)
            self._descriptor = self._open()
        return self._descriptor

    def _there(self) -> int:
        """Return a descriptor of the folder. FileNotFoundError if it is missing or refused; OSError
        if it cannot be opened now."""
        if self.refused:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.path)
        if self._descriptor is None:
            self._descriptor = self._open()
        return self._descriptor

    def _still_there(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), os.stat(self.path))
        except OSError:
            return False

    @contextmanager
    def lock(self, name: str, patience: float) -> Generator[bool, None, None]:
        """Hold the entry's lock; True if it had to be waited for. Makes the folder. OSError if the
        folder cannot be written or has no locks."""
        with file_lock(self._made(), f"{name}.lock", patience) as got:
            if got.stale:
                self._remove_temporaries(name)
            yield got.waited

    # ---- reading ----------------------------------------------------------------------------

    def load(self, name: str) -> Entry | None:
        """Return the entry, checked; None if one of its files is missing. No lock is taken. Raises
        as `read`, and BadEntry for damaged files."""
        files = self.files_of(name)
        return decode(name, files) if files else None

    def files_of(self, name: str) -> dict[str, bytes]:
        """Return the files of an entry by suffix, unchecked; none if one is missing."""
        files: dict[str, bytes] = {}
        for suffix in reversed(SUFFIXES):
            data = self.read(f"{name}{suffix}")
            if data is None:
                return {}
            files[suffix] = data
        return files

    def read(self, filename: str) -> bytes | None:
        """Return the bytes of a file, None if it is missing or refused. StoreError if refusal is an
        error; OSError if it cannot be read now, or not whole; BadEntry if it is no plain file."""
        try:
            descriptor = self.open_plain(filename)
        except FileNotFoundError:
            return None
        except StoreError as error:
            self.refuse(error)
            return None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise BadEntry(f"{filename} is no plain file")
            check_trust(status, f"{self.path}/{filename}")
            data = b"".join(iter(lambda: os.read(descriptor, _PIECE), b""))
        except StoreError as error:
            self.refuse(error)
            return None
        finally:
            os.close(descriptor)
        if len(data) != status.st_size:
            raise OSError(errno.EIO, f"{len(data)} of {status.st_size} bytes were read", filename)
        return data

    def names(self) -> list[str]:
        """Return the names of entries with any of the three files, sorted."""
        stems = (name.rpartition(".") for name in self.files())
        return sorted(
            {s for s, _, suffix in stems if f".{suffix}" in SUFFIXES and NAME.fullmatch(s)}
        )

    def files(self) -> list[str]:
        """Return all file names in the folder, sorted; none if it is missing."""
        try:
            return sorted(os.listdir(self._there()))
        except FileNotFoundError:
            return []

    def status(self, filename: str) -> os.stat_result | None:
        """Return sizes and times of a file, None if it is missing."""
        try:
            return os.stat(filename, dir_fd=self._there(), follow_symlinks=False)
        except FileNotFoundError:
            return None

    def open_plain(self, filename: str) -> int:
        """Return a descriptor for reading. FileNotFoundError if the file is missing, OSError if it
        cannot be opened now, StoreError for a symbolic link."""
        folder = self._there()
        try:
            return os.open(filename, _OPEN_FILE, dir_fd=folder)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise StoreError(
                f"{self.path}/{filename} is a symbolic link; compiled code is not loaded through "
                "one. Remove it: it is compiled again"
            ) from None

    # ---- files of a process' own, and times -----------------------------------------------------

    def open_new(self, filename: str) -> int:
        """Return a descriptor for writing a new file. OSError if it cannot be made."""
        return os.open(filename, _CREATE, 0o600, dir_fd=self._made())

    def touch(self, filename: str) -> None:
        """Set the file's access and change times to now. OSError when that is not allowed."""
        os.utime(filename, dir_fd=self._there(), follow_symlinks=False)

    def discard(self, filename: str) -> None:
        """Remove a file if it exists and may be removed."""
        with suppress(OSError):
            os.unlink(filename, dir_fd=self._there())

    # ---- writing: only while holding the entry's turn ------------------------------------------

    def save(self, name: str, files: Mapping[str, bytes]) -> None:
        """Write an entry. OSError, with nothing of it left behind, when that fails."""
        self.save_all({name: files})

    def save_all(self, entries: Mapping[str, Mapping[str, bytes]]) -> None:
        """Write entries, each with its files by suffix, whose locks the caller holds. OSError when
        that fails; each entry is then complete or absent.

        Each file is on the disk (fsync) before it gets its name, and the .json, without which there
        is no entry, gets its name last. All are written before the first is synced, and many are
        synced in parallel: a file system with a journal then writes them to the disk together. The
        folder is not synced: a rename that a power cut undoes leaves a missing entry, or old files
        that the checksums reveal.
        """
        folder = self._made()
        mark = f".tmp-{os.getpid()}-{threading.get_ident()}"
        contents = {
            f"{name}{suffix}": data for name in entries for suffix, data in entries[name].items()
        }
        try:
            with ExitStack() as opened:
                descriptors: list[int] = []
                for filename, data in contents.items():
                    file = opened.enter_context(_created(folder, f"{filename}{mark}"))
                    file.write(data)
                    file.flush()
                    descriptors.append(file.fileno())
                _sync(descriptors)
            for final in contents:
                os.replace(f"{final}{mark}", final, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            for filename in contents:
                _remove(folder, f"{filename}{mark}")
            raise

    def set_aside(self, name: str, suffixes: Sequence[str] = SUFFIXES) -> None:
        """Rename the files of a bad entry to *.bad-TIME, which nothing but a person reads."""
        folder = self._made()
        for suffix in reversed(suffixes):
            filename = f"{name}{suffix}"
            bad = f"{filename}.bad-{time.time_ns()}"
            try:
                os.rename(filename, bad, src_dir_fd=folder, dst_dir_fd=folder)
            except FileNotFoundError:
                continue

    def remove(self, name: str, suffixes: Sequence[str] = SUFFIXES) -> None:
        """Remove an entry: the .json first, without which it counts as missing."""
        for suffix in reversed(suffixes):
            _remove(self._made(), f"{name}{suffix}")

    def _remove_temporaries(self, name: str) -> None:
        for filename in self.files():
            if filename.startswith(f"{name}.") and ".tmp-" in filename:
                _remove(self._made(), filename)


def _sync(descriptors: Sequence[int]) -> None:
    if len(descriptors) <= len(SUFFIXES):  # not worth threads
        for descriptor in descriptors:
            os.fsync(descriptor)
        return
    with Workers(_SYNCING) as workers:
        for _ in workers.results(partial(os.fsync, descriptor) for descriptor in descriptors):
            pass


def _created(folder: int, filename: str) -> BinaryIO:
    _remove(folder, filename)
    return open(os.open(filename, _CREATE, 0o644, dir_fd=folder), "wb")


def _remove(folder: int, filename: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(filename, dir_fd=folder)
