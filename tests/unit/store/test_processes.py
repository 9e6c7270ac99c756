"""The store between processes: one compile for each key, whoever dies on the way."""

import os
import signal
from collections import Counter

from kernelmill.store import Store
from kernelmill.store.upkeep import survey
from tests.unit.store.samples import compiled, key


def test_eight_processes_compile_each_kernel_once(folder, child):
    children = [child("compile_all", folder, 20) for _ in range(8)]
    outputs = [process.communicate(timeout=600)[0] for process in children]
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


def test_killed_at_any_step_of_writing_nothing_wrong_is_left(folder, child):
    output, _ = child("die_at_each_step", folder).communicate(timeout=600)
    died = output.split()
    assert len(died) > 20
    for step in died:
        place = folder / step
        assert survey(str(place)).count("bad") == 0
        store = Store(place)
        for n in range(2):
            entry = store.get_or_compile(key(n), "Square", lambda n=n: compiled(n))
            assert entry.object == compiled(n).object
        after = survey(str(place))
        assert (after.count("ok"), after.count("bad"), after.count("incomplete")) == (2, 0, 0)
