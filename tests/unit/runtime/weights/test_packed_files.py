"""Packed weights in files: found again for the same contents and no others, mapped, checked."""

import os
import time

import pytest
import torch

from kernelmill.core.errors import StoreError
from kernelmill.runtime.weights.packed_files import KEPT_SECONDS, PackedFiles

SOURCES = [torch.arange(12.0).reshape(3, 4), torch.ones(5, dtype=torch.bfloat16)]
PACKED = [torch.arange(7.0), torch.arange(6, dtype=torch.int8).reshape(2, 3)]


@pytest.fixture
def files(tmp_path):
    files = PackedFiles(str(tmp_path / "packed"))
    assert files.find("recipe", SOURCES) is None
    assert files.keep("recipe", SOURCES, PACKED) is not None
    return files


def contents(found):
    return [bytes(tensor.numpy()) for tensor in found]


def test_what_was_packed_is_found(files):
    expected = [bytes(tensor.view(torch.uint8).numpy()) for tensor in PACKED]
    found = files.find("recipe", [source.clone() for source in SOURCES])
    assert contents(found) == expected
    assert all(tensor.data_ptr() % 64 == 0 for tensor in found)
    with open("/proc/self/maps") as maps:
        (line, *_) = [line for line in maps if files.path in line]
    assert line.split()[1] == "r--s"


def test_any_other_contents_layout_or_recipe_are_not(files):
    first, second = SOURCES
    changed = first.clone()
    changed[2, 3] = 0.0
    for sources in ([changed, second], [second, first], [first.t().contiguous().t(), second],
                    [first, second.view(torch.float16)], [first]):  # fmt: skip
        assert files.find("recipe", sources) is None
    assert files.find("other", SOURCES) is None


def test_a_damaged_file_is_removed_and_made_again(files, caplog):
    (name,) = os.listdir(files.path)
    path = os.path.join(files.path, name)
    with open(path, "r+b") as file:
        file.seek(4096)
        file.write(b"~")
    assert files.find("recipe", SOURCES) is None
    assert "checksum" in caplog.text and not os.path.exists(path)
    assert files.keep("recipe", SOURCES, PACKED) is not None


def test_files_and_folders_that_others_can_write_to_are_refused(files):
    (name,) = os.listdir(files.path)
    os.chmod(os.path.join(files.path, name), 0o666)
    with pytest.raises(StoreError, match="chmod"):
        files.find("recipe", SOURCES)
    os.chmod(files.path, 0o777)
    with pytest.raises(StoreError, match="chmod"):
        files.find("other", SOURCES)


def test_a_folder_that_cannot_be_written_is_one_warning(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    files = PackedFiles(str(tmp_path / "file" / "packed"))
    assert files.keep("recipe", SOURCES, PACKED) is None
    assert files.keep("recipe", SOURCES, PACKED) is None
    assert caplog.text.count("packed weights are not kept") == 1


def test_files_that_nobody_opens_are_removed_by_the_next(files):
    (old,) = os.listdir(files.path)
    past = time.time() - KEPT_SECONDS - 60
    os.utime(os.path.join(files.path, old), (past, past))
    files.keep("other", SOURCES, PACKED)
    assert os.listdir(files.path) == [n for n in os.listdir(files.path) if n.startswith("other_")]
    assert len(os.listdir(files.path)) == 1
