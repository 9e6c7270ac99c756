"""Files and folders that a user names and that cannot be read or written: one error of the tree,
which is Python's own class too and has the path."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelmill import FileError, KernelmillError, explain
from kernelmill.inference import record_shapes
from kernelmill.static_kernels import build, compile_log, from_profiler, record

LINEAR = torch.nn.Linear(8, 8).eval()
X = torch.ones(2, 8)


def _record_shapes(path: Path) -> None:
    with record_shapes(LINEAR, path):
        pass


def _record(path: Path) -> None:
    with record(path):
        pass


def _from_profiler(path: Path) -> None:
    with torch.profiler.profile(record_shapes=True) as profiler:
        torch.add(X, X)
    from_profiler(profiler, path)


def _save_report(path: Path) -> None:
    explain(LINEAR, X).save(path)


USES = [_record_shapes, _record, _from_profiler, compile_log, build]


@pytest.mark.parametrize("use", [*USES, _save_report])
def test_a_missing_folder(tmp_path: Path, use: Callable[[Path], Any]):
    place = tmp_path / "nothing" / "file"
    with pytest.raises(FileError) as caught:
        use(place)
    assert isinstance(caught.value, KernelmillError)
    assert isinstance(caught.value, FileNotFoundError)
    assert caught.value.filename == str(place) and caught.value.errno


@pytest.mark.parametrize("use", USES[:3])
def test_a_folder_where_a_file_is_wanted(tmp_path: Path, use: Callable[[Path], Any]):
    with pytest.raises(FileError) as caught:
        use(tmp_path)
    assert isinstance(caught.value, IsADirectoryError) and caught.value.filename == str(tmp_path)


def test_a_package_below_a_file(tmp_path: Path):
    log, output = tmp_path / "log", tmp_path / "file" / "below"
    (tmp_path / "file").write_text("")
    log.write_text("")
    with pytest.raises(FileError) as caught:
        build(log, output)
    assert isinstance(caught.value, NotADirectoryError) and caught.value.filename == str(output)
