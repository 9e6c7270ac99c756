"""Removing what is least used, moving archives, telling two keys apart."""

import io
import os
import tarfile

import pytest

from kernelmill.core.errors import StoreError
from kernelmill.store import Store
from kernelmill.store.folder import Folder
from kernelmill.store.upkeep import (
    KeyDifference,
    collect,
    explain_difference,
    export_archive,
    import_archive,
    names_in_use,
    parse_size,
    survey,
)
from tests.unit.store.samples import compiled, key


def name(n):
    return f"Square_{key(n).digest}"


@pytest.fixture
def filled(folder):
    """Four kernels, used at times 0 to 3 by a process that is over."""
    store = Store(folder)
    for n in range(4):
        store.put(key(n), "Square", compiled(n))
    del store
    for n in range(4):
        for suffix in (".o", ".info", ".json"):
            os.utime(folder / f"{name(n)}{suffix}", (n + 1, n + 1))
    return folder


def names(folder):
    return Folder(folder).names()


def test_leftovers_go_when_they_are_old_or_in_the_way(filled):
    young, old = filled / f"{name(0)}.o.bad-1", filled / f"{name(0)}.json.bad-2"
    writing, dead = filled / f"{name(1)}.o.tmp-1-1", filled / f"{name(2)}.o.tmp-2-2"
    for file in (young, old, writing, dead):
        file.write_bytes(b"x" * 1000)
    for file in (old, dead):
        os.utime(file, (1, 1))
    assert collect(str(filled), 1 << 30).leftovers == 2
    assert young.exists() and writing.exists() and not old.exists() and not dead.exists()
    done = collect(str(filled), 0)
    assert (done.leftovers, done.removed) == (1, 4)
    assert writing.exists() and not young.exists()


@pytest.mark.parametrize(
    ("text", "size"), [("2G", 2 << 30), ("1.5k", 1536), ("7", 7), ("3MiB", 3 << 20), ("0", 0)]
)
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "-1", "2X", "G", "1e3", "nan"])
def test_what_is_no_size(text):
    with pytest.raises(ValueError, match="is no size"):
        parse_size(text)


def test_least_recently_used_go_first(filled):
    each = sum(file.stat().st_size for file in filled.iterdir()) // 4
    Store(filled).get(key(0), "Square")  # now the most recent one
    done = collect(str(filled), 2 * each + 100)
    assert done.removed == 2
    assert names(filled) == sorted([name(0), name(3)])
    assert survey(str(filled)).count("ok") == 2


def test_what_a_live_process_uses_stays(filled, child):
    process = child("use_and_wait", filled, 2)
    assert process.stdout.readline() == "using\n"
    assert names_in_use(Folder(filled)) == {name(0), name(1)}
    done = collect(str(filled), 0)
    assert (done.removed, done.in_use) == (2, 2)
    assert names(filled) == sorted([name(0), name(1)])
    process.kill()
    process.wait()
    assert collect(str(filled), 0).removed == 2
    assert os.listdir(filled) == []


def test_a_fork_keeps_what_its_parent_used(filled):
    store = Store(filled)
    store.get(key(0), "Square")
    pid = os.fork()
    if pid == 0:
        store.get(key(1), "Square")
        used = names_in_use(Folder(filled))
        os._exit(0 if used == {name(0), name(1)} else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert names_in_use(Folder(filled)) == {name(0)}


def test_export_and_import_carry_every_good_entry(filled, tmp_path):
    (filled / f"{name(0)}.o").write_bytes(b"")
    archive = str(tmp_path / "kernels.tar")
    assert export_archive(str(filled), archive) == 3
    first = (tmp_path / "kernels.tar").read_bytes()
    export_archive(str(filled), archive)
    assert (tmp_path / "kernels.tar").read_bytes() == first
    other = tmp_path / "other"
    done = import_archive(str(other), archive)
    assert (done.added, done.present, done.refused) == (3, 0, ())
    assert survey(str(other)).count("ok") == 3
    again = import_archive(str(other), archive)
    assert (again.added, again.present) == (0, 3)


def packed(path, members):
    with tarfile.open(path, "w") as tar:
        for member, data in members:
            info = member if isinstance(member, tarfile.TarInfo) else tarfile.TarInfo(member)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return str(path)


def link(name, target):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, target
    return info


def test_nothing_of_an_archive_gets_outside_of_the_folder(filled, tmp_path):
    outside = tmp_path / "victim"
    outside.write_text("as it was")
    files = {s: (filled / f"{name(1)}{s}").read_bytes() for s in (".o", ".info", ".json")}
    members = [
        ("../victim", b"x"),
        (str(outside), b"x"),
        (f"../{name(1)}.o", files[".o"]),
        (f"a/../../{name(1)}.json", files[".json"]),
        (link(f"{name(2)}.o", str(outside)), b""),
        *((f"{name(1)}{suffix}", data) for suffix, data in files.items()),
    ]
    archive = packed(tmp_path / "bad.tar", members)
    other = tmp_path / "other"
    done = import_archive(str(other), archive)
    assert done.added == 1
    assert len(done.refused) == 5
    assert names(other) == [name(1)]
    assert outside.read_text() == "as it was"
    assert {p.name for p in tmp_path.iterdir()} == {"victim", "bad.tar", "other", "kernel_meta"}


def test_damaged_and_renamed_members_are_refused(filled, tmp_path):
    def members(n, called, damage=b""):
        for suffix in (".o", ".info", ".json"):
            yield f"{called}{suffix}", (filled / f"{name(n)}{suffix}").read_bytes() + damage

    archive = packed(
        tmp_path / "bad.tar",
        [*members(0, name(0), b"x"), *members(1, name(2)), *members(3, name(3))],
    )
    done = import_archive(str(tmp_path / "other"), archive)
    assert (done.added, len(done.refused)) == (1, 2)
    assert names(tmp_path / "other") == [name(3)]


def test_what_is_no_archive(tmp_path):
    (tmp_path / "x.tar").write_bytes(b"not a tar file" * 100)
    with pytest.raises(StoreError, match=r"x\.tar is no archive"):
        import_archive(str(tmp_path / "other"), str(tmp_path / "x.tar"))


def test_why_shows_the_lines_that_differ(filled):
    found = explain_difference(str(filled), name(0), key(1).digest[:10])
    assert found == [KeyDifference("kernel", ("kernel number 0",), ("kernel number 1",))]
    cut = [name(n)[: len("Square_") + 12] for n in (0, 1)]
    assert explain_difference(str(filled), *cut) == found
    with pytest.raises(StoreError, match="no kernel begins"):
        explain_difference(str(filled), name(0), "Cube_" + key(1).digest[:10])
    with pytest.raises(StoreError, match="no kernel begins"):
        explain_difference(str(filled), name(0), "zz")
