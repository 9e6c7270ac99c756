"""The shared store in a run: written in the background, not used any more once it fails."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from kernelmill.core.errors import StoreError
from kernelmill.core.log import get_logger
from kernelmill.core.workers import Job, Workers
from kernelmill.store.entry import Entry
from kernelmill.store.shared import SharedStore

_WRITERS = 4
_log = get_logger("fleet")


class Sharing:
    """The shared store of a run. When it does not serve, it is not used any more, after one
    warning. `missed` counts the entries that it did not get."""

    def __init__(self, shared: SharedStore | None) -> None:
        self._shared = shared
        self._serves = shared is not None
        self._writers = Workers(_WRITERS)
        self._writes: list[Job[bool]] = []
        self._told = False
        self.missed = 0

    def good(self, names: list[str]) -> dict[str, tuple[Entry, dict[str, bytes]]]:
        """Return the valid entries of these names that the store has."""
        if self._shared is None or not self._serves or not names:
            return {}
        try:
            return {entry.name: (entry, files) for entry, files in self._shared.fetch(names)}
        except StoreError as error:
            self._lost(error)
            return {}

    def keep(self, name: str, files: Mapping[str, bytes]) -> None:
        """Write an entry in the background; `files` are by suffix."""
        if self._shared is not None:
            self._writes.append(
                self._writers.submit(partial(self._write, self._shared, name, files))
            )

    def flush(self) -> None:
        """Wait for all writes."""
        writes, self._writes = self._writes, []
        for write in writes:
            self._writers.wait([write])
            try:
                self.missed += not write.result()
            except StoreError as error:
                self.missed += 1
                self._lost(error)

    def close(self) -> None:
        """Finish running writes, and drop the others."""
        self._writers.end()

    def _write(self, shared: SharedStore, name: str, files: Mapping[str, bytes]) -> bool:
        """Write an entry; return whether the store serves."""
        try:
            if self._serves:
                shared.keep(name, files)
            return self._serves
        except StoreError:
            self._serves = False
            raise

    def _lost(self, error: StoreError) -> None:
        self._serves = False
        if not self._told:
            self._told = True
            _log.warning("%s; what is compiled stays in the folder of this machine", error)
