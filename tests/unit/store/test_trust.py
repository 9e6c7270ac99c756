"""Whose files are loaded: only those that no other user could have written."""

import os

import pytest

from kernelmill.core.cache_home import cache_home
from kernelmill.core.errors import StoreError
from kernelmill.store import Store, open_store
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
    with pytest.raises(StoreError, match=f"KERNELMILL_KERNEL_META={filled}"):
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
