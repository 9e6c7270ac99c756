"""Store: what it answers, counts and warns of, whatever happened to its folder."""

import itertools
import logging
import os
import shutil
import tempfile
import threading
from pathlib import Path

import pytest

from kernelmill.store import Store
from kernelmill.store.entry import decode, encode
from tests.unit.store.samples import compiled, key


def fail():
    raise AssertionError("compiled what was already there")


def warnings_of(caplog):
    return [record.message for record in caplog.records if record.levelno >= logging.WARNING]


def check(store, n=1, source=None):
    """The kernel comes out right, by whatever way; `source` says which way it must be."""
    entry = store.get_or_compile(key(n), "Square", lambda: compiled(n))
    assert entry.object == compiled(n).object
    assert entry.launch["blockDim"] == n
    assert source is None or entry.source == source


def test_compiled_once_then_found_by_this_and_later_processes(folder):
    store = Store(folder)
    assert store.get(key(1), "Square") is None
    check(store, source="compiled")
    check(store, source="folder")
    later = Store(folder)
    assert later.get_or_compile(key(1), "Square", fail).object == compiled(1).object
    assert store.counts.as_dict() | {"unwritten": 0} == store.counts.as_dict()
    assert (store.counts.hits, store.counts.misses, store.counts.compiled) == (1, 2, 1)
    assert (later.counts.hits, later.counts.misses, later.counts.compiled) == (1, 0, 0)


def test_the_folder_holds_three_files_for_a_kernel_and_nothing_else(folder):
    check(Store(folder))
    name = f"Square_{key(1).digest}"
    assert sorted(os.listdir(folder)) == [f"{name}{suffix}" for suffix in (".info", ".json", ".o")]


def test_nothing_is_made_before_something_is_kept(folder):
    assert Store(folder).get(key(1), "Square") is None
    assert not folder.exists()


def test_what_compile_raises_comes_through_and_leaves_nothing(folder):
    store = Store(folder)
    with pytest.raises(ZeroDivisionError):
        store.get_or_compile(key(1), "Square", lambda: 1 / 0)
    assert os.listdir(folder) == []
    check(store, source="compiled")


SUBSETS = [lost for n in (1, 2, 3) for lost in itertools.combinations((".o", ".info", ".json"), n)]


@pytest.mark.parametrize("lost", SUBSETS)
def test_any_subset_of_files_may_be_deleted(folder, caplog, lost):
    store = Store(folder)
    check(store)
    for suffix in lost:
        (folder / f"Square_{key(1).digest}{suffix}").unlink()
    check(store, source="compiled")
    check(Store(folder), source="folder")
    assert warnings_of(caplog) == []


def test_the_whole_folder_may_be_deleted(folder):
    store = Store(folder)
    check(store)
    shutil.rmtree(folder)
    check(store, source="compiled")
    check(Store(folder), source="folder")


def flip(path: Path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


DAMAGE = {
    "bit flip": flip,
    "truncation": lambda path: path.write_bytes(path.read_bytes()[:100]),
    "zero length": lambda path: path.write_bytes(b""),
    "folder in its place": lambda path: (path.unlink(), path.mkdir()),
    "named pipe": lambda path: (path.unlink(), os.mkfifo(path, 0o600)),
}


@pytest.mark.parametrize("suffix", [".o", ".info", ".json"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_set_aside_and_compiled_again_with_one_warning(folder, caplog, suffix, damage):
    for n in (1, 2):
        check(Store(folder), n)
        DAMAGE[damage](folder / f"Square_{key(n).digest}{suffix}")
    store = Store(folder)
    check(store, 1, source="compiled")
    check(store, 2, source="compiled")
    assert store.counts.set_aside == 2
    assert len(warnings_of(caplog)) == 1
    assert "set aside" in warnings_of(caplog)[0]
    assert len(list(folder.glob("*.bad-*"))) == 6
    check(Store(folder), source="folder")


def test_get_sets_damage_aside_too(folder):
    check(Store(folder))
    flip(folder / f"Square_{key(1).digest}.o")
    store = Store(folder)
    assert store.get(key(1), "Square") is None
    assert (store.counts.set_aside, store.counts.misses) == (1, 1)


def test_put_replaces_what_is_there(folder):
    store = Store(folder)
    store.put(key(1), "Square", compiled(7))
    store.put(key(1), "Square", compiled(1))
    check(Store(folder), source="folder")


def fetched(*numbers):
    for n in numbers:
        name = f"Square_{key(n).digest}"
        files = encode(name, key(n), compiled(n))
        yield decode(name, files, "remote"), files


def test_entries_that_come_together_are_all_kept(folder):
    Store(folder).adopt(fetched(*range(150)))
    store = Store(folder)
    for n in range(150):
        check(store, n, source="folder")
    assert len(list(folder.glob("*.o"))) == 150
    assert not list(folder.glob("*.lock")) + list(folder.glob("*.tmp-*"))


@pytest.fixture
def unwritable():
    """A folder, outside of pytest's private one, that this process may read but not write."""
    parent = Path(tempfile.mkdtemp())
    folder = parent / "kernel_meta"
    check(Store(folder), 1)
    modes = {parent: 0o555, folder: 0o555}
    if os.geteuid() == 0:
        parent.chmod(0o755)
        os.seteuid(65534)
    else:
        for path, mode in modes.items():
            path.chmod(mode)
    yield folder
    if os.getuid() == 0:
        os.seteuid(0)
    for path in modes:
        path.chmod(0o755)
    shutil.rmtree(parent)


def test_a_folder_that_cannot_be_written_serves_and_the_rest_stays_in_memory(unwritable, caplog):
    store = Store(unwritable)
    check(store, 1, source="folder")
    check(store, 2, source="compiled")
    check(store, 2, source="memory")
    check(store, 3, source="compiled")
    assert (store.counts.unwritten, store.counts.compiled) == (2, 2)
    assert len(warnings_of(caplog)) == 1
    assert "cannot be written" in warnings_of(caplog)[0]


def test_entries_that_come_together_stay_in_memory_where_the_folder_cannot_be_written(unwritable):
    store = Store(unwritable)
    store.adopt(fetched(2, 3))
    assert store.counts.unwritten == 2
    check(store, 2, source="memory")
    check(store, 3, source="memory")


def test_damage_in_a_folder_that_cannot_be_written_is_survived(unwritable, caplog):
    object = unwritable / f"Square_{key(1).digest}.o"
    euid = os.geteuid()
    os.seteuid(os.getuid())
    flip(object)
    os.seteuid(euid)
    store = Store(unwritable)
    check(store, 1, source="compiled")
    check(store, 1, source="memory")
    assert len(warnings_of(caplog)) == 2  # the damage, and that it cannot be mended


def test_a_folder_that_cannot_be_made_is_no_error(unwritable, caplog):
    store = Store(unwritable / "deeper")
    check(store, 1, source="compiled")
    check(store, 1, source="memory")
    assert len(warnings_of(caplog)) == 1


def test_memory_only_threads_compile_once(unwritable):
    store = Store(unwritable)
    entered = threading.Barrier(4)
    compiles = []

    def work():
        entered.wait()
        store.get_or_compile(key(5), "Square", lambda: (compiles.append(1), compiled(5))[1])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(compiles) == 1
    assert store.counts.compiled == 1


def test_a_full_disk_is_survived_in_memory(folder, child):
    output, _ = child("without_space", folder).communicate(timeout=600)
    assert "'unwritten': 1" in output
    assert "'compiled': 1" in output
    assert os.listdir(folder) == []


def test_read_only_folders_are_looked_at_first_and_never_written(folder, tmp_path):
    shipped = tmp_path / "shipped"
    check(Store(shipped), 1)
    before = sorted(os.listdir(shipped))
    store = Store(folder, read_only=[shipped])
    check(store, 1, source="folder")
    check(store, 2, source="compiled")
    assert sorted(os.listdir(shipped)) == before
    assert len(list(folder.glob("[!.]*"))) == 3


def test_damage_in_a_read_only_folder_is_skipped_with_one_warning(folder, tmp_path, caplog):
    shipped = tmp_path / "shipped"
    for n in (1, 2):
        check(Store(shipped), n)
        flip(shipped / f"Square_{key(n).digest}.o")
    before = sorted(os.listdir(shipped))
    store = Store(folder, read_only=[shipped])
    check(store, 1, source="compiled")
    check(store, 2, source="compiled")
    assert len(warnings_of(caplog)) == 1
    assert sorted(os.listdir(shipped)) == before


def test_a_read_only_folder_that_is_not_there_is_told(folder, tmp_path, caplog):
    check(Store(folder, read_only=[tmp_path / "nowhere"]))
    assert len(warnings_of(caplog)) == 1
    assert "nowhere" in warnings_of(caplog)[0]


def test_a_miss_says_what_differs_from_the_nearest_entry(folder, caplog):
    store = Store(folder)
    assert store.nearest(key(1), "Square") is None
    check(store, 1)
    store.put(key(2), "Relu", compiled(2))
    near = store.nearest(key(3), "Square")
    assert near.name == f"Square_{key(1).digest}"
    assert near.differences == ("kernel",)
    with caplog.at_level(logging.INFO, "kernelmill.store"):
        check(store, 3)
    assert f"differs from {near.name} in kernel" in caplog.text
