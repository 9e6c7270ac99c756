"""The file format: sections come back as they were, and no changed byte goes unseen."""

import os

import pytest

from kernelmill.core.errors import StoreError
from kernelmill.store.sealed import PAGE, FileKind, SealedFile, write_sealed

KIND = FileKind(b"kernelmill aot\n", "make it again")
SECTIONS = {"first": [b"abc", memoryview(b"defg")], "empty": [], "last": [b"z" * 5000]}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "file.kmill"
    write_sealed(path, KIND, SECTIONS)
    return path


def test_sections_come_back(path):
    file = SealedFile(path, KIND)
    assert {name: file.text(name) for name in file.sections} == {
        "first": "abcdefg", "empty": "", "last": "z" * 5000,
    }  # fmt: skip
    assert all(offset % PAGE == 0 for offset, _, _ in file.sections.values())
    assert path.stat().st_size % PAGE == 0


def test_a_byte_that_differs_anywhere_in_use_is_noticed(path, tmp_path):
    data, file = path.read_bytes(), SealedFile(path, KIND)
    header = file.sections["first"][0] - PAGE
    places = [0, 20, 30, header + 60, file.sections["first"][0] + 6, file.sections["last"][0]]
    bad = tmp_path / "bad.kmill"
    for place in places:
        bad.write_bytes(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])
        with pytest.raises(StoreError, match=r"bad\.kmill is (damaged|no file)"):
            damaged = SealedFile(bad, KIND)
            for name in damaged.sections:
                damaged.section(name)


@pytest.mark.parametrize("keep", [0, 14, 54, 100, PAGE, 2 * PAGE, -1])
def test_a_file_that_was_cut_is_noticed(path, keep):
    path.write_bytes(path.read_bytes()[:keep])
    if keep == -1:  # padding only
        assert SealedFile(path, KIND).text("last") == "z" * 5000
        return
    with pytest.raises(StoreError):
        SealedFile(path, KIND)


def test_another_kind_is_refused(path):
    with pytest.raises(StoreError, match="is no file of the kind 'other'"):
        SealedFile(path, FileKind(b"other\n", "make it again"))


def test_another_format_is_refused(path, monkeypatch):
    monkeypatch.setattr("kernelmill.store.sealed.FORMAT", 7)
    with pytest.raises(StoreError, match="has the format 1, and this kernelmill reads 7"):
        SealedFile(path, KIND)


def test_replacing_a_file_leaves_open_ones_as_they_are(path):
    old = SealedFile(path, KIND)
    write_sealed(path, KIND, {"first": [b"new"]})
    assert (old.text("first"), SealedFile(path, KIND).text("first")) == ("abcdefg", "new")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_sealed(path, KIND, {"first": [b"new"]})
    assert SealedFile(path, KIND).text("first") == "abcdefg"
    assert os.listdir(path.parent) == ["file.kmill"]


def test_writing_to_the_mapping_does_not_reach_the_file(path):
    file = SealedFile(path, KIND, writable=True)
    start = file.sections["first"][0]
    file.mapping[start : start + 3] = b"xyz"
    assert SealedFile(path, KIND).text("first") == "abcdefg"
