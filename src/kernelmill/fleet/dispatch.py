"""Compile tasks to the workers of an executor, each object once; what comes back goes to stores."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from kernelmill.core.after_fork import track
from kernelmill.core.errors import StoreError
from kernelmill.core.log import get_logger
from kernelmill.fleet.task import Refusal, Wanted, compile_task
from kernelmill.store.entry import Entry
from kernelmill.store.shared import SharedStore
from kernelmill.store.store import Store

ATTEMPTS = 3
"""For a task whose worker dies."""

_WRITERS = 4
_log = get_logger("fleet")


@dataclass(frozen=True)
class Failure:
    """A kernel or a job, and why there is nothing of it."""

    what: str
    reason: str


@dataclass
class Progress:
    """What is done so far. `found` are objects that a store had, `left` those still to come."""

    found: int = 0
    compiled: int = 0
    failed: int = 0
    left: int = 0
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Compiled objects a second."""
        return self.compiled / self.seconds if self.seconds else 0.0

    @property
    def seconds_left(self) -> float | None:
        """For what is known to be left; None as long as there is no rate."""
        return self.left / self.rate if self.rate else None


class Dispatch:
    """The tasks of a run: equal ones are one.

    To be used in `with`: leaving it after an error or Ctrl-C cancels what has not begun and keeps
    what is done. `tell` is called after each change.
    """

    def __init__(
        self,
        executor: Executor,
        store: Store,
        shared: SharedStore | None,
        tell: Callable[[Progress], None],
    ) -> None:
        self._executor, self._store = executor, store
        self._sharing = _Sharing(shared)
        self._tell = tell
        self._begun = time.monotonic()
        self._known: set[str] = set()
        self._pending: dict[str, Wanted] = {}
        self._attempts: dict[str, int] = {}
        self._settled: SimpleQueue[tuple[str, Future[bytes | Refusal]]] = SimpleQueue()
        self._futures: set[Future[bytes | Refusal]] = set()
        self._told_elsewhere = False
        self.progress = Progress()
        self.failures: dict[str, Failure] = {}
        track(self)

    def after_fork(self) -> None:
        """See core/after_fork.py. What is under way is the parent's to keep."""
        self._settled = SimpleQueue()
        self._pending.clear()
        self._futures.clear()

    def __enter__(self) -> Dispatch:
        return self

    def __exit__(self, *_: object) -> None:
        for future in list(self._futures):
            future.cancel()
        self._sharing.close()

    @property
    def unshared(self) -> int:
        """Entries that the shared store could not be given."""
        return self._sharing.missed

    def take(self, wanted: Iterable[Wanted]) -> None:
        """Look for these objects, and have those compiled that no store has."""
        new = {one.task.name: one for one in wanted if one.task.name not in self._known}
        self._known |= new.keys()
        found: dict[str, Entry] = {}
        for name, one in new.items():
            entry = self._store.get(one.task.key, one.task.type)
            if entry is not None:
                found[name] = entry
        good = self._sharing.good(list(new))
        for name, (entry, files) in good.items():
            if name not in found:
                self._store.adopt(entry, files)
        for name in found.keys() - good.keys():
            self._sharing.keep(name, self._store.files(found[name]))
        self.progress.found += len(found.keys() | good.keys())
        for name, one in new.items():
            if name not in found and name not in good:
                self._pending[name] = one
                self._submit(name)
        self.settle()

    def share(self, names: Iterable[str]) -> None:
        """Give the shared store entries that are in the store already."""
        wanted = [name for name in names if name not in self._known]
        self._known.update(wanted)
        good = self._sharing.good(wanted)
        for name in wanted:
            entry = None if name in good else self._store.folder.load(name)
            if entry is not None:
                self._sharing.keep(name, self._store.files(entry))

    def settle(self, wait: bool = False) -> None:
        """Keep what has come back; with `wait`, all that is to come."""
        while self._pending:
            self._count()
            try:
                name, future = self._settled.get(wait)
            except Empty:
                break
            self._futures.discard(future)
            self._take_result(name, future)
        self._count()
        if wait:
            self._sharing.flush()

    def _count(self) -> None:
        self.progress.left = len(self._pending)
        self.progress.failed = len(self.failures)
        self.progress.seconds = time.monotonic() - self._begun
        self._tell(self.progress)

    def _submit(self, name: str) -> None:
        self._attempts[name] = self._attempts.get(name, 0) + 1
        future = self._executor.submit(compile_task, self._pending[name].task)
        self._futures.add(future)
        future.add_done_callback(lambda done: self._settled.put((name, done)))

    def _take_result(self, name: str, future: Future[bytes | Refusal]) -> None:
        try:
            result = future.result()
        except Exception as error:  # not of the compile: the worker, or the way to it
            reason = f"{type(error).__name__}: {error}"
            if self._attempts[name] < ATTEMPTS:
                _log.info("%s: %s; tried again", name, reason)
                self._submit(name)
            else:
                self._fail(name, f"its worker was lost {ATTEMPTS} times ({reason})")
            return
        if isinstance(result, Refusal) and result.elsewhere:
            if not self._told_elsewhere:
                self._told_elsewhere = True
                _log.warning("a worker has %s; what it is given is compiled here", result.reason)
            result = compile_task(self._pending[name].task)
        if isinstance(result, Refusal):
            self._fail(name, result.reason)
            return
        one = self._pending.pop(name)
        entry = self._store.put(one.task.key, one.task.type, one.compiled(result))
        self._sharing.keep(name, self._store.files(entry))
        self.progress.compiled += 1

    def _fail(self, name: str, reason: str) -> None:
        origin = self._pending.pop(name).info.get("op_info", {}).get("attrs", {}).get("origin", "")
        what = f"{name} ({origin})" if origin else name
        self.failures[name] = Failure(what, reason)


class _Sharing:
    """The shared store as a run uses it: when it does not serve, it is left alone from then on."""

    def __init__(self, shared: SharedStore | None) -> None:
        self._shared = shared
        self._writers = ThreadPoolExecutor(_WRITERS, "kernelmill-share")
        self._writes: list[Future[None]] = []
        self._was_lost = False
        self.missed = 0

    def good(self, names: list[str]) -> dict[str, tuple[Entry, dict[str, bytes]]]:
        """The entries of these that are there and good."""
        if self._shared is None or not names:
            return {}
        try:
            return {entry.name: (entry, files) for entry, files in self._shared.fetch(names)}
        except StoreError as error:
            self._lost(error)
            return {}

    def keep(self, name: str, files: dict[str, bytes]) -> None:
        """Have an entry written."""
        if self._shared is not None:
            self._writes.append(self._writers.submit(self._shared.keep, name, _by_suffix(files)))
        elif self._was_lost:
            self.missed += 1

    def flush(self) -> None:
        """Wait for all writes, or, when one fails, for those that have begun."""
        writes, self._writes = self._writes, []
        for write in writes:
            try:
                if self._was_lost:
                    write.cancel()
                write.result()
            except CancelledError:
                self.missed += 1
            except StoreError as error:
                self.missed += 1
                self._lost(error)

    def close(self) -> None:
        """What is being written is, nothing else."""
        self._writers.shutdown(wait=True, cancel_futures=True)

    def _lost(self, error: StoreError) -> None:
        if not self._was_lost:
            self._was_lost = True
            _log.warning("%s; what is compiled stays in the folder of this machine", error)
        self._shared = None


def _by_suffix(files: dict[str, bytes]) -> dict[str, bytes]:
    return {f".{name.rpartition('.')[2]}": data for name, data in files.items()}
