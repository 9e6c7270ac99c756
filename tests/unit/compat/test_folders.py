"""Which folders in the working directory a script's run uses."""

import os
import shutil

import pytest

from kernelmill.compat import folders
from kernelmill.core import knobs


@pytest.fixture
def working(tmp_path, monkeypatch):
    for name in ("KERNELMILL_KERNEL_META", "KERNELMILL_CACHE_HOME", "TORCHAIR_CACHE_HOME"):
        # Set first, so that what a test has proposed is taken away after it.
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def forget(monkeypatch):
    monkeypatch.setenv("KERNELMILL_KERNEL_META", "")
    monkeypatch.setenv("KERNELMILL_CACHE_HOME", "")


def test_new_folders_are_made_and_used_again(working, monkeypatch, recwarn):
    folders.propose_settings()
    expected = (str(working / "kernel_meta"),), str(working / ".torchair_cache")
    assert (knobs.KERNEL_META.get(), knobs.CACHE_HOME.get()) == expected
    forget(monkeypatch)
    folders.propose_settings()
    assert (knobs.KERNEL_META.get(), knobs.CACHE_HOME.get()) == expected
    assert os.stat("kernel_meta").st_mode & 0o77 == 0
    assert not recwarn.list


def test_a_folder_that_came_from_elsewhere_is_not_used(working):
    (working / "kernel_meta").mkdir()
    with pytest.warns(UserWarning, match="it may have come with an archive"):
        folders.propose_settings()
    assert knobs.KERNEL_META.get() == ()
    assert knobs.CACHE_HOME.get() == str(working / ".torchair_cache")


@pytest.mark.parametrize("mark", ["none", "another", "pipe"])
def test_a_folder_in_the_place_of_one_that_was_removed_is_not_used(working, monkeypatch, mark):
    folders.propose_settings()
    forget(monkeypatch)
    # File systems may give the next folder the inode of one that was removed.
    first = os.lstat("kernel_meta")
    shutil.rmtree("kernel_meta")
    (working / "kernel_meta").mkdir()
    same = os.lstat
    monkeypatch.setattr(os, "lstat", lambda p: first if "kernel_meta" in str(p) else same(p))
    if mark == "another":
        (working / "kernel_meta" / folders.MARK).write_text("0" * 32)
    elif mark == "pipe":
        os.mkfifo(working / "kernel_meta" / folders.MARK)
    with pytest.warns(UserWarning, match="kernel_meta is not used"):
        folders.propose_settings()
    assert knobs.KERNEL_META.get() == ()


def test_a_link_to_a_folder_that_a_run_made_is_none(working, monkeypatch):
    folders.propose_settings()
    forget(monkeypatch)
    (working / "other").mkdir()
    monkeypatch.chdir(working / "other")
    os.symlink("../kernel_meta", "kernel_meta")
    with pytest.warns(UserWarning, match="kernel_meta is not used"):
        folders.propose_settings()


def test_variables_come_first_and_torchairs_own_is_read(working, monkeypatch):
    monkeypatch.setenv("KERNELMILL_KERNEL_META", "/named")
    monkeypatch.setenv("TORCHAIR_CACHE_HOME", "methods")
    folders.propose_settings()
    assert knobs.KERNEL_META.get() == ("/named",)
    assert knobs.CACHE_HOME.get() == str(working / "methods")
    assert os.listdir() == []


def test_a_level_of_logs_that_is_none_is_left_out(working, monkeypatch):
    monkeypatch.setenv("TNG_LOG_LEVEL", "5")
    monkeypatch.setenv("KERNELMILL_LOGS", "")
    with pytest.warns(UserWarning, match="TNG_LOG_LEVEL=5 has no effect here"):
        folders.propose_settings()
    assert knobs.LOGS.get() == ""
