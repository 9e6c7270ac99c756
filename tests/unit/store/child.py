"""What the store's tests run in other processes: child.py WHAT FOLDER [ARGUMENT]."""

from __future__ import annotations

import itertools
import os
import random
import resource
import signal
import sys
import time

from kernelmill.store import NewEntry, Store
from tests.unit.store.samples import compiled, key


def say(word: object) -> None:
    os.write(1, f"{word}\n".encode())  # one write, so that two processes' lines do not mix


def compile_all(store: Store, count: str) -> None:
    """Get `count` kernels in an order of its own; prints the number of each one it compiled."""
    numbers = list(range(int(count)))
    random.Random(os.getpid()).shuffle(numbers)

    def compile(n: int) -> NewEntry:
        say(n)
        time.sleep(0.01)
        return compiled(n)

    for n in numbers:
        entry = store.get_or_compile(key(n), "Square", lambda n=n: compile(n))
        assert entry.object == compiled(n).object


def compile_forever(store: Store, fork: str = "") -> None:
    """Never finish the compile of kernel 0; with "fork", prints a child that outlives this one."""

    def compile() -> NewEntry:
        if fork and os.fork() == 0:
            say(os.getpid())
        else:
            say("compiling")
        while True:
            signal.pause()

    store.get_or_compile(key(0), "Square", compile)


def die_at_each_step(store: Store) -> None:
    """In the folders 1, 2 and so on: replace an entry and add another, in a process that is killed
    before its first, second, ... access to files. Prints each number; ends after one that lived.
    """
    for step in itertools.count(1):
        place = f"{store.folder.path}/{step}"
        Store(place).put(key(0), "Square", compiled(0))
        process = os.fork()
        if process == 0:
            _die_at(step)
            for n in range(2):
                Store(place).put(key(n), "Square", compiled(n))
            os._exit(0)
        _, status = os.waitpid(process, 0)
        if not status:
            break
        say(step)


def _die_at(step: int) -> None:
    """Kill this process before its `step`-th access to files."""
    steps = itertools.count(1)

    def count(event: str, arguments: object) -> None:
        is_access = event == "open" or event.startswith(("os.", "fcntl."))
        if is_access and next(steps) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)


def use_and_wait(store: Store, count: str) -> None:
    """Use the first kernels and stay alive."""
    for n in range(int(count)):
        assert store.get(key(n), "Square") is not None
    say("using")
    while True:
        signal.pause()


def without_space(store: Store) -> None:
    """Compile on what looks like a full disk: no file can grow past 1000 bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    for source in ("compiled", "memory", "memory"):
        entry = store.get_or_compile(key(1), "Square", lambda: compiled(1))
        assert entry.object == compiled(1).object
        assert entry.source == source, entry.source
    say(store.counts.as_dict())


if __name__ == "__main__":
    what, folder, *rest = sys.argv[1:]
    globals()[what](Store(folder), *rest)
