"""Kills, damage, deletion, cold starts and full disks, with real processes."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelmill.cli.main import main
from kernelmill.store import Key, Store
from kernelmill.store.entry import decode, encode
from kernelmill.store.upkeep import survey
from tests.unit.store.samples import compiled, key


def verify(folder):
    return main(["cache", "verify", "--folder", str(folder)])


def test_200_kills_and_as_many_faults():
    """In a process of its own, which may fork at will."""
    command = [sys.executable, "-m", "tools.torture", "--kills", "200", "--seed", "1"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[0]) >= 200


def test_16_processes_starting_cold_compile_each_kernel_once(folder, child):
    children = [child("compile_all", folder, 10) for _ in range(16)]
    outputs = [process.communicate(timeout=6000)[0] for process in children]
    assert [process.returncode for process in children] == [0] * 16
    assert Counter("".join(outputs).split()) == Counter(map(str, range(10)))
    assert verify(folder) == 0


def test_files_and_the_folder_may_be_deleted_while_processes_run(folder, child):
    children = [child("compile_all", folder, 30) for _ in range(3)]
    while any(process.poll() is None for process in children):
        for path in list(folder.glob("*"))[::3] if folder.exists() else ():
            path.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.01)
    assert [process.wait() for process in children] == [0] * 3
    store = Store(folder)
    for n in range(30):
        assert store.get_or_compile(key(n), "Square", lambda n=n: compiled(n))
    assert verify(folder) == 0
    assert survey(str(folder)).count("ok") == 30


@pytest.fixture
def small_disk(tmp_path):
    """A tmpfs of 64 KiB: fewer than 30 kernels."""
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=755", "tmpfs", str(path)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("mounting is not permitted here; RLIMIT_FSIZE stands in elsewhere")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def test_a_disk_that_fills_up(small_disk, child, capsys):
    folder = small_disk / "kernel_meta"
    process = child("compile_all", folder, 30)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert 0 < survey(str(folder)).count("ok") < 30
    assert survey(str(folder)).leftovers == ()
    assert verify(folder) == 0


def test_of_entries_that_come_together_a_full_disk_takes_what_it_can(small_disk):
    folder = small_disk / "kernel_meta"
    store, wanted = Store(folder), {}
    for n in range(30):
        name = f"Square_{key(n).digest}"
        files = encode(name, key(n), compiled(n))
        wanted[name] = decode(name, files), files
    store.adopt(wanted.values())
    good = survey(str(folder)).count("ok")
    assert 0 < good < 30 and store.counts.unwritten == 30 - good
    assert survey(str(folder)).leftovers == ()
    assert all(store.get(key(n), "Square") is not None for n in range(30))


INGREDIENTS = st.dictionaries(st.text(max_size=20), st.text(max_size=50), max_size=5)


@settings(max_examples=4)
@given(keys=st.lists(INGREDIENTS, min_size=20, max_size=20))
def test_digests_are_the_same_in_every_process(keys, tmp_path_factory):
    script = (
        "import json, sys; from kernelmill.store import Key; "
        "print(*(Key.of(k).digest for k in json.load(sys.stdin)))"
    )
    mine = [Key.of(ingredients).digest for ingredients in keys]
    reversed_order = [dict(reversed(ingredients.items())) for ingredients in keys]
    for seed in ("0", "12345"):
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
            "PYTHONHASHSEED": seed,
        }
        done = subprocess.run(
            [sys.executable, "-c", script],
            input=json.dumps(reversed_order),
            cwd=tmp_path_factory.mktemp("elsewhere"),
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == mine
