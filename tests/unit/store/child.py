"""What the store's tests run in other processes: child.py WHAT FOLDER [ARGUMENT]."""

from __future__ import annotations

import os
import random
import resource
import sys
import time

from kernelmill.store import Compiled, Store
from tests.unit.store.samples import compiled, key


def say(word: object) -> None:
    os.write(1, f"{word}\n".encode())  # one write, so that two processes' lines do not mix


def compile_all(store: Store, count: str) -> None:
    """Get `count` kernels in an order of its own; prints the number of each one it compiled."""
    numbers = list(range(int(count)))
    random.Random(os.getpid()).shuffle(numbers)

    def compile(n: int) -> Compiled:
        say(n)
        time.sleep(0.01)
        return compiled(n)

    for n in numbers:
        entry = store.get_or_compile(key(n), "Square", lambda n=n: compile(n))
        assert entry.object == compiled(n).object


def compile_forever(store: Store, fork: str = "") -> None:
    """Never finish the compile of kernel 0; with "fork", prints a child that outlives this one."""

    def compile() -> Compiled:
        if fork and os.fork() == 0:
            say(os.getpid())
            time.sleep(60)
            os._exit(0)
        say("compiling")
        time.sleep(60)
        return compiled(0)

    store.get_or_compile(key(0), "Square", compile)


def put_forever(store: Store, count: str) -> None:
    """Write the same kernels again and again."""
    say("writing")
    while True:
        for n in range(int(count)):
            store.put(key(n), "Square", compiled(n))


def use_and_wait(store: Store, count: str) -> None:
    """Use the first kernels and stay alive."""
    for n in range(int(count)):
        assert store.get(key(n), "Square") is not None
    say("using")
    time.sleep(60)


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
