"""Whose files are loaded: only those that no other user could have written."""

import os

import pytest

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


def test_one_store_for_the_same_folders(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KERNELMILL_KERNEL_META", raising=False)
    store = open_store()
    assert store.folder.path == str(tmp_path / "kernel_meta")
    assert open_store(str(tmp_path / "kernel_meta")) is store
    monkeypatch.setenv("KERNELMILL_KERNEL_META", "own")
    assert open_store().folder.path == str(tmp_path / "own")
    assert open_store("option").folder.path == str(tmp_path / "option")
