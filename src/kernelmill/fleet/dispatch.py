"""Dispatch of compile tasks to workers of an executor, each object once; results to stores."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from queue import Empty, SimpleQueue

from kernelmill.core.after_fork import track
from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import StoreError
from kernelmill.core.log import get_logger
from kernelmill.core.workers import Workers, WorkItem
from kernelmill.fleet.task import (
    BatchOutcome,
    CompileTask,
    Declined,
    Wanted,
    compile_batch,
    compile_task,
)
from kernelmill.store.entry import Entry, decode, encode
from kernelmill.store.folder import FirstWarnings
from kernelmill.store.remote import SharedStore
from kernelmill.store.store import Store

BATCH_SECONDS = 0.3
"""Work in a batch: Dask's processes take 15 ms of the processors' time to send one, a twentieth."""

_PARTS = 2
"""Divisor of the work left for each worker that limits a batch, so that the last are small."""

_SECONDS, _SECONDS_OF_CHARACTER = 2e-3, 4e-6
"""First estimate of a kernel's time, fitted to 88 kernels of models: half of them take between 0.8
and 1.4 times as long."""


class TaskCosts:
    """Estimates of the seconds of tasks, from the lengths of their texts and the tasks finished."""

    def __init__(self) -> None:
        self._guessed = self._spent = 1.0  # as if one second had been guessed well

    def of(self, task: CompileTask) -> float:
        """Return the estimated seconds of a task."""
        return _at_first_sight(task) * self._spent / self._guessed

    def learn(self, task: CompileTask, seconds: float) -> None:
        """Record the time of a finished task."""
        self._guessed += _at_first_sight(task)
        self._spent += seconds


def _at_first_sight(task: CompileTask) -> float:
    return _SECONDS + _SECONDS_OF_CHARACTER * sum(len(text) for _, text in task.key.ingredients)


def batches(
    tasks: Sequence[CompileTask], costs: TaskCosts, workers: int
) -> Iterator[tuple[CompileTask, ...]]:
    """Yield all tasks, the longest first, in batches of `BATCH_SECONDS`, smaller at the end."""
    timed = sorted(((costs.of(task), task.name, task) for task in tasks), reverse=True)
    left = sum(seconds for seconds, _, _ in timed)
    batch: list[CompileTask] = []
    filled, limit = 0.0, min(BATCH_SECONDS, left / (_PARTS * workers))
    for seconds, _, task in timed:
        if batch and filled + seconds > limit:
            yield tuple(batch)
            left -= filled
            batch, filled = [], 0.0
            limit = min(BATCH_SECONDS, left / (_PARTS * workers))
        batch.append(task)
        filled += seconds
    if batch:
        yield tuple(batch)


_WRITERS = 4
_log = get_logger("fleet")


class Sharing:
    """The shared store of a run. When it does not answer, it is not used any more, after one
    warning. `missed` counts the entries that it did not get."""

    def __init__(self, shared: SharedStore | None) -> None:
        self._shared = shared
        self._serves = shared is not None
        self._writers = Workers(_WRITERS)
        self._writes: list[WorkItem[bool]] = []
        self._warn = FirstWarnings(_log)
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
        self._warn("lost", f"{error}; what is compiled stays in the folder of this machine")


ATTEMPTS = 3
"""Attempts for a kernel whose worker dies with it alone."""

_LOST_AT_FIRST = 8
"""Batches that may be lost while no worker has answered: then none will."""

_TOGETHER = 64
"""Objects that are written to the folder together."""

Batch = tuple[CompileTask, ...]


@dataclass(frozen=True)
class Failure:
    """A kernel or job that failed: its name (`what`), and why."""

    what: str
    reason: str


@dataclass
class Progress:
    """Counts of objects: `found` in a store, `compiled`, `failed` and `left`; seconds so far."""

    found: int = 0
    compiled: int = 0
    failed: int = 0
    left: int = 0
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Objects compiled per second."""
        return self.compiled / self.seconds if self.seconds else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds for the tasks left; None as long as there is no rate."""
        return self.left / self.rate if self.rate else None


class Dispatch:
    """The tasks of a run: equal ones are one.

    Workers get them in batches. One whose worker dies is tried again in two halves, and so on, so
    that a kernel that kills its worker is found and all others are compiled.

    Use in `with`: an exit after an error or Ctrl-C cancels tasks that have not begun and keeps
    finished ones. `tell` is called after each change.
    """

    def __init__(
        self,
        executor: Executor,
        store: Store,
        shared: SharedStore | None,
        tell: Callable[[Progress], None],
    ) -> None:
        self._executor, self._store = executor, store
        self._sharing = Sharing(shared)
        self._tell = tell
        self._begun = time.monotonic()
        self._known: set[str] = set()
        self._pending: dict[str, Wanted] = {}
        self._attempts: dict[str, int] = {}
        self._settled: SimpleQueue[tuple[Batch, Future[BatchOutcome]]] = SimpleQueue()
        self._futures: set[Future[BatchOutcome]] = set()
        self._costs = TaskCosts()
        self._workers: set[str] = set()
        self._lost_at_first = 0
        self._warn = FirstWarnings(_log)
        self.progress = Progress()
        self.failures: dict[str, Failure] = {}
        track(self)

    def after_fork(self) -> None:
        """Reset after a fork (core/after_fork.py). Pending tasks belong to the parent."""
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
        """Number of entries that could not be written to the shared store."""
        return self._sharing.missed

    def take(self, wanted: Iterable[Wanted]) -> None:
        """Look these objects up, and compile those that no store has."""
        new = {one.task.name: one for one in wanted if one.task.name not in self._known}
        self._known |= new.keys()
        found: dict[str, Entry] = {}
        for name, one in new.items():
            entry = self._store.get(one.task.key, one.task.type)
            if entry is not None:
                found[name] = entry
        good = self._sharing.good(list(new))
        self._store.adopt(good[name] for name in good if name not in found)
        for name in found.keys() - good.keys():
            self._sharing.keep(name, self._files(found[name]))
        self.progress.found += len(found.keys() | good.keys())
        missing = {name: new[name] for name in new if name not in found and name not in good}
        self._pending |= missing
        workers = len(self._workers) or len(os.sched_getaffinity(0))
        for batch in batches([one.task for one in missing.values()], self._costs, workers):
            self._submit(batch)
        self.settle()

    def share(self, names: Iterable[str]) -> None:
        """Write entries of the store to the shared store."""
        wanted = [name for name in names if name not in self._known]
        self._known.update(wanted)
        good = self._sharing.good(wanted)
        for name in wanted:
            entry = None if name in good else self._store.folder.load(name)
            if entry is not None:
                self._sharing.keep(name, self._files(entry))

    def _files(self, entry: Entry) -> dict[str, bytes]:
        named = self._store.files(entry)
        return {f".{name.rpartition('.')[2]}": data for name, data in named.items()}

    def settle(self, wait: bool = False) -> None:
        """Keep the results that have come back; with `wait`, all of them."""
        while self._pending:
            self._count()
            images: dict[str, bytes] = {}
            try:
                self._take_outcome(*self._settled.get(wait), images)
                while len(images) < _TOGETHER:
                    self._take_outcome(*self._settled.get_nowait(), images)
            except Empty:
                pass
            if not images and not wait:
                break
            self._keep(images)
        self._count()
        if wait:
            self._sharing.flush()

    def _count(self) -> None:
        self.progress.left = len(self._pending)
        self.progress.failed = len(self.failures)
        self.progress.seconds = time.monotonic() - self._begun
        self._tell(self.progress)

    def _submit(self, batch: Batch) -> None:
        if len(batch) == 1:
            self._attempts[batch[0].name] = self._attempts.get(batch[0].name, 0) + 1
        try:
            future = self._executor.submit(compile_batch, batch)
        except Exception as error:  # a pool of processes takes nothing after one of them died
            for task in batch:
                self._fail(task, f"the executor takes no more work ({_shown(error)})")
            return
        self._futures.add(future)
        future.add_done_callback(lambda done: self._settled.put((batch, done)))

    def _take_outcome(
        self, batch: Batch, future: Future[BatchOutcome], images: dict[str, bytes]
    ) -> None:
        """Add the objects that came back to `images`; send lost batches again."""
        self._futures.discard(future)
        try:
            done = future.result()
        except (ImportError, AttributeError) as error:  # another version of the code
            why = Declined(f"no such kernelmill ({_shown(error)})", True)
            self._take_results(batch, [why] * len(batch), images)
            return
        except Exception as error:  # not of the compile: the worker, or the way to it
            self._again(batch, _shown(error))
            return
        self._workers.add(done.worker)
        for task, seconds in zip(batch, done.seconds, strict=True):
            self._costs.learn(task, seconds)
        self._take_results(batch, done.results, images)

    def _again(self, batch: Batch, reason: str) -> None:
        first = batch[0]
        self._lost_at_first += not self._workers
        if self._lost_at_first >= _LOST_AT_FIRST and not self._workers:
            for future in list(self._futures):
                future.cancel()
            for task in batch:
                self._fail(task, f"no worker has ever answered ({reason})")
        elif len(batch) > 1:
            _log.info("%d kernels: %s; tried again in halves", len(batch), reason)
            half = len(batch) // 2
            self._submit(batch[:half])
            self._submit(batch[half:])
        elif self._attempts[first.name] < ATTEMPTS:
            _log.info("%s: %s; tried again", first.name, reason)
            self._submit(batch)
        else:
            self._fail(first, f"its worker was lost {ATTEMPTS} times ({reason})")

    def _take_results(
        self, batch: Batch, results: Sequence[bytes | Declined], images: dict[str, bytes]
    ) -> None:
        for task, result in zip(batch, results, strict=True):
            if isinstance(result, Declined) and result.elsewhere:
                self._warn(
                    "elsewhere", f"a worker has {result.reason}; its kernels are compiled here"
                )
                result = compile_task(task)
            if isinstance(result, Declined):
                self._fail(task, result.reason)
            else:
                images[task.name] = result

    def _keep(self, images: dict[str, bytes]) -> None:
        made: dict[str, tuple[Entry, dict[str, bytes]]] = {}
        for name, image in images.items():
            one = self._pending.pop(name)
            files = encode(name, one.task.key, one.compiled(image))
            made[name] = decode(name, files, "compiled"), files
        self._store.adopt(made.values())
        for name, (_, files) in made.items():
            self._sharing.keep(name, files)
        self.progress.compiled += len(made)

    def _fail(self, task: CompileTask, reason: str) -> None:
        info = self._pending.pop(task.name).info
        origin = info.get("op_info", {}).get("attrs", {}).get("origin", "")
        what = f"{task.name} ({origin})" if origin else task.name
        self.failures[task.name] = Failure(what, reason)


def _shown(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
