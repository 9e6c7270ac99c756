"""Errors of files and their calls are in kernelmill's tree, and are Python's own class too."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelmill import FileError, GradientError, KernelmillError, aot

LINEAR = torch.nn.Linear(8, 8).eval()


def _file(tmp_path: Path) -> str:
    return aot.compile(LINEAR, (torch.ones(2, 8),), path=str(tmp_path / "m.kmill"))


def test_an_argument_that_requires_grad(tmp_path: Path):
    program = aot.load(_file(tmp_path))
    with pytest.raises(GradientError) as caught:
        program(torch.ones(2, 8, requires_grad=True))
    assert isinstance(caught.value, KernelmillError) and isinstance(caught.value, RuntimeError)


def test_a_program_is_not_copied(tmp_path: Path):
    with pytest.raises(KernelmillError, match="neither copied nor pickled") as caught:
        copy.deepcopy(aot.load(_file(tmp_path)))
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("nothing.kmill", FileNotFoundError),
        ("file/below.kmill", NotADirectoryError),
        ("n" * 300, OSError),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, place: str, kind: Any):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError) as caught:
        aot.load(tmp_path / place)
    assert isinstance(caught.value, kind)
    assert caught.value.filename == str(tmp_path / place) and caught.value.errno


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("nothing/m.kmill", FileNotFoundError),
        ("file/m.kmill", NotADirectoryError),
        ("", IsADirectoryError),
    ],
)
def test_files_that_cannot_be_written(tmp_path: Path, place: str, kind: Any):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError) as caught:
        aot.compile(LINEAR, (torch.ones(2, 8),), path=str(tmp_path / place))
    assert isinstance(caught.value, kind)
