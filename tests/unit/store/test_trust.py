"""Whose files are loaded: only those that no other user could have written."""

import logging
import os

import pytest

from kernelmill.core.cache_home import cache_home
from kernelmill.core.errors import StoreError
from kernelmill.store import Store, open_store
from kernelmill.store.folder import Folder
from tests.unit.store.samples import compiled, key

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def filled(folder):
    Store(folder).put(key(1), "Square", compiled(1))
    return folder


def only(folder, suffix):
    (path,) = folder.glob(f"*{suffix}")
    return path


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757])
def test_a_folder_that_others_can_write_is_refused_with_the_fix(filled, mode):
    filled.chmod(mode)
    with pytest.raises(StoreError, match=f"chmod -R go-w {filled}"):
        Store(filled)
    filled.chmod(0o755)
    assert Store(filled).get(key(1), "Square")


@pytest.mark.parametrize("suffix", [".o", ".info", ".json"])
def test_a_file_that_others_can_write_is_refused(filled, suffix):
    only(filled, suffix).chmod(0o646)
    with pytest.raises(StoreError, match="chmod"):
        Store(filled).get_or_compile(key(1), "Square", lambda: compiled(1))


def test_a_folder_behind_a_symbolic_link_is_refused_with_its_real_path(filled, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(filled)
    with pytest.raises(StoreError, match=f"name the folder itself: {filled}"):
        Store(f"{link}/")


def test_a_file_behind_a_symbolic_link_is_refused(filled, tmp_path):
    object = only(filled, ".o")
    object.rename(tmp_path / "elsewhere.o")
    object.symlink_to(tmp_path / "elsewhere.o")
    with pytest.raises(StoreError, match="symbolic link"):
        Store(filled).get(key(1), "Square")


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "kernel_meta").write_text("")
    with pytest.raises(StoreError, match="is a file"):
        Store(tmp_path / "kernel_meta")


@as_root
def test_a_folder_of_another_user_is_refused(filled):
    os.chown(filled, 1234, 1234)
    with pytest.raises(StoreError, match=r"belongs to user 1234.*chown"):
        Store(filled)


@as_root
def test_a_file_of_another_user_is_refused(filled):
    os.chown(only(filled, ".o"), 1234, 1234)
    with pytest.raises(StoreError, match="belongs to user 1234"):
        Store(filled).get(key(1), "Square")


def test_a_folder_swapped_under_a_living_store_is_checked_again(filled):
    store = Store(filled)
    filled.rename(filled.with_name("moved"))
    filled.mkdir()
    filled.chmod(0o777)
    with pytest.raises(StoreError, match="chmod"):
        store.get_or_compile(key(2), "Square", lambda: compiled(2))


def test_no_lax_umask_makes_our_own_files_untrusted(folder):
    before = os.umask(0)
    try:
        Store(folder).put(key(1), "Square", compiled(1))
    finally:
        os.umask(before)
    assert Store(folder).get(key(1), "Square")


def test_lax_umasks_leave_no_folder_above_ours_to_others(tmp_path):
    before = os.umask(0)
    try:
        Store(tmp_path / "a" / "b" / "kernel_meta").put(key(1), "Square", compiled(1))
    finally:
        os.umask(before)
    for name in ("a", "a/b", "a/b/kernel_meta"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o755


def test_what_lies_in_the_working_directory_is_not_trusted(monkeypatch, tmp_path):
    # As an archive leaves it that was unpacked there: this user owns every file.
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KERNELMILL_KERNEL_META", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    Store("kernel_meta").put(key(1), "Square", compiled(1))
    store = open_store()
    assert store.get(key(1), "Square") is None
    store.put(key(1), "Square", compiled(1))
    folder = tmp_path / "cache" / "kernelmill" / "kernel_meta"
    assert store.folder.path == str(folder)
    assert {path.stat().st_mode & 0o777 for path in (folder, folder.parent)} == {0o700}
    monkeypatch.setenv("KERNELMILL_KERNEL_META", "kernel_meta")  # the seeds' name, when asked for
    assert open_store().get(key(1), "Square")


@pytest.mark.parametrize("xdg", ["", "relative"])
@pytest.mark.parametrize("home", ["/somewhere/else", ""])
def test_the_default_is_never_relative(monkeypatch, xdg, home):
    monkeypatch.setenv("XDG_CACHE_HOME", xdg)
    monkeypatch.setenv("HOME", home)
    assert cache_home() == os.path.join(home or "/", ".cache", "kernelmill")


def test_a_user_without_a_home_has_no_relative_default_either(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as for a user id unknown here
    assert cache_home() == "/.cache/kernelmill"


def test_one_store_for_the_same_folders(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    store = open_store(str(tmp_path / "kernel_meta"))
    assert open_store("kernel_meta") is store
    monkeypatch.setenv("KERNELMILL_KERNEL_META", "own")
    assert open_store().folder.path == str(tmp_path / "own")
    assert open_store("option").folder.path == str(tmp_path / "option")


# ---- on_untrusted="memory" ----------------------------------------------------------------------


def warnings_in(caplog):
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def source_of(store, n):
    return store.get_or_compile(key(n), "Square", lambda: compiled(n)).source


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def open_to_others(folder):
    folder.chmod(0o777)


def file_open_to_others(folder):
    only(folder, ".o").chmod(0o646)


def file_behind_a_link(folder):
    object = only(folder, ".o")
    object.rename(folder.parent / "elsewhere.o")
    object.symlink_to(folder.parent / "elsewhere.o")


@pytest.mark.parametrize("spoil", [open_to_others, file_open_to_others, file_behind_a_link])
def test_what_others_could_have_written_is_left_alone_when_asked(filled, caplog, spoil):
    spoil(filled)
    before = contents(filled)
    store = Store(filled, on_untrusted="memory")
    assert [source_of(store, n) for n in (1, 2)] == ["compiled", "compiled"]
    assert store.get(key(1), "Square").source == "memory"
    assert (store.counts.compiled, store.counts.unwritten) == (2, 2)
    assert contents(filled) == before
    (warning,) = warnings_in(caplog)
    assert "in memory only" in warning and str(filled) in warning
    assert "chmod" in warning or "symbolic link" in warning


@as_root
def test_a_folder_of_another_user_is_left_alone_when_asked(filled, caplog):
    os.chown(filled, 1234, 1234)
    store = Store(filled, on_untrusted="memory")
    assert store.get_or_compile(key(1), "Square", lambda: compiled(1)).source == "compiled"
    (warning,) = warnings_in(caplog)
    assert "belongs to user 1234" in warning


def test_a_folder_in_front_that_others_can_write_is_passed_by_when_asked(filled, tmp_path, caplog):
    filled.chmod(0o777)
    store = Store(tmp_path / "own", [filled], on_untrusted="memory")
    assert [source_of(store, n) for n in (1, 2)] == ["compiled", "compiled"]
    assert Store(tmp_path / "own").get(key(1), "Square")
    (warning,) = warnings_in(caplog)
    assert warning.startswith("not used: ") and "chmod" in warning


def test_a_folder_that_is_swapped_under_a_living_store_is_left_alone_when_asked(filled):
    store = Store(filled, on_untrusted="memory")
    filled.rename(filled.with_name("moved"))
    filled.mkdir()
    filled.chmod(0o777)
    assert store.get_or_compile(key(2), "Square", lambda: compiled(2)).source == "compiled"
    assert contents(filled) == {}


def test_the_option_comes_before_the_environment(filled, monkeypatch):
    filled.chmod(0o777)
    with pytest.raises(StoreError):
        open_store(str(filled))
    monkeypatch.setenv("KERNELMILL_ON_UNTRUSTED", "memory")
    assert open_store(str(filled)).folder.refused
    with pytest.raises(StoreError):
        open_store(str(filled), "error")
    monkeypatch.delenv("KERNELMILL_ON_UNTRUSTED")
    assert open_store(str(filled), "memory").folder.refused


def test_packages_that_others_can_write_to_are_left_alone_when_asked(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("KERNELMILL_STATIC_KERNELS", str(tmp_path / "packages"))
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages").chmod(0o777)
    with pytest.raises(StoreError, match="installed static kernels"):
        open_store(str(tmp_path / "own"))
    assert open_store(str(tmp_path / "own"), "memory").packages == {}
    (warning,) = warnings_in(caplog)
    assert "packages can be written by other users" in warning


@pytest.mark.parametrize("refused", [False, True])
def test_a_folder_that_is_not_there_or_not_used_is_not_the_working_directory(
    tmp_path, monkeypatch, refused
):
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    own = tmp_path / "cwd" / "own.json"
    own.write_text("mine")
    os.utime(own, (1, 1))
    if refused:
        (tmp_path / "folder").mkdir()
        (tmp_path / "folder").chmod(0o777)
    folder = Folder(tmp_path / "folder", "memory")
    assert bool(folder.refused) == refused
    folder.discard("own.json")
    assert own.read_text() == "mine"
    assert folder.files() == [] and folder.read("own.json") is None
    assert folder.status("own.json") is None
    for use in (folder.touch, folder.open_plain):
        with pytest.raises(FileNotFoundError):
            use("own.json")
    assert own.stat().st_mtime == 1
