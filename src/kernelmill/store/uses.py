"""Entries in use by live processes, listed in files of the folder itself.

A process lists them in a file `.use-{pid}-{random}` and holds a shared flock on it: however the
process ends, the lock ends with it, and the next reader removes the list. In an unwritable folder
nothing is listed; nothing can be removed there either.
"""

from __future__ import annotations

import fcntl
import os
import threading
import weakref

from kernelmill.core.after_fork import track
from kernelmill.core.errors import StoreError
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
