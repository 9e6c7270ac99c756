"""The store between processes: one compile for each key, whoever dies on the way."""

import os
import random
import signal
import time
from collections import Counter

import pytest

from kernelmill.store import Store
from kernelmill.store.survey import survey
from tests.unit.store.samples import compiled, key


def test_eight_processes_compile_each_kernel_once(folder, child):
    children = [child("compile_all", folder, 20) for _ in range(8)]
    outputs = [process.communicate(timeout=60)[0] for process in children]
    assert [process.returncode for process in children] == [0] * 8
    assert Counter("".join(outputs).split()) == Counter(map(str, range(20)))
    assert len(os.listdir(folder)) == 60


def test_a_killed_owner_is_taken_over_from(folder, child):
    owner = child("compile_forever", folder)
    assert owner.stdout.readline() == "compiling\n"
    owner.kill()
    owner.wait()
    store = Store(folder, patience=1000)
    store.get_or_compile(key(0), "Square", lambda: compiled(0))
    assert store.counts.compiled == 1
    assert len(list(folder.glob("[!.]*"))) == 3


def test_a_forked_child_does_not_keep_its_parents_lock(folder, child):
    owner = child("compile_forever", folder, "fork")
    lines = {owner.stdout.readline().strip(), owner.stdout.readline().strip()}
    (orphan,) = lines - {"compiling"}
    try:
        owner.kill()
        owner.wait()
        store = Store(folder, patience=1000)
        store.get_or_compile(key(0), "Square", lambda: compiled(0))
        assert store.counts.compiled == 1
    finally:
        os.kill(int(orphan), signal.SIGKILL)


def test_a_stopped_owner_is_waited_for_only_so_long(folder, child):
    owner = child("compile_forever", folder)
    assert owner.stdout.readline() == "compiling\n"
    owner.send_signal(signal.SIGSTOP)
    store = Store(folder, patience=0.1)
    entry = store.get_or_compile(key(0), "Square", lambda: compiled(0))
    assert entry.object == compiled(0).object
    assert Store(folder).get(key(0), "Square").object == compiled(0).object


@pytest.mark.parametrize("seed", range(12))
def test_killed_in_the_middle_of_writing_nothing_wrong_is_left(folder, child, seed):
    for n in range(3):  # so that the child also replaces files that are there
        Store(folder).put(key(n), "Square", compiled(n))
    writer = child("put_forever", folder, 4)
    assert writer.stdout.readline() == "writing\n"
    time.sleep(random.Random(seed).uniform(0, 0.05))
    writer.kill()
    writer.wait()
    assert survey(str(folder)).count("bad") == 0
    store = Store(folder)
    for n in range(4):
        entry = store.get_or_compile(key(n), "Square", lambda n=n: compiled(n))
        assert entry.object == compiled(n).object
    after = survey(str(folder))
    assert (after.count("ok"), after.count("bad"), after.count("incomplete")) == (4, 0, 0)
