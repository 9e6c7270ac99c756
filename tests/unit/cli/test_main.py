"""The `kernelmill` command over a folder with good, damaged, incomplete and left-over files."""

import os
import subprocess
import sys

import pytest

from kernelmill.cli.main import main
from kernelmill.core.version import VERSION
from kernelmill.store import Store
from kernelmill.store.entry import encode
from tests.unit.store.samples import compiled, key


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Three kernels, found where they are by default."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("KERNELMILL_KERNEL_META", raising=False)
    folder = tmp_path / "kernelmill" / "kernel_meta"
    for n in range(3):
        Store(folder).put(key(n), "Square", compiled(n))
    return folder


def test_version(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"kernelmill {VERSION}\n"


def test_ls_lists_every_kernel_and_adds_up(folder, capsys):
    assert main(["cache", "ls"]) == 0
    *rows, total = capsys.readouterr().out.splitlines()
    assert {row.split()[2] for row in rows} == {f"Square_{key(n).digest}" for n in range(3)}
    assert total == f"3 kernels, {3 * 2004} bytes of objects in {folder}"


def test_verify_is_clean_after_good_writes(folder, capsys):
    assert main(["cache", "verify"]) == 0
    assert capsys.readouterr().out == f"3 ok, 0 incomplete, 0 bad, 0 left over in {folder}\n"


def test_verify_names_what_is_damaged_and_changes_nothing(folder, capsys):
    names = [f"Square_{key(n).digest}" for n in range(3)]
    (folder / f"{names[0]}.o").write_bytes(b"")
    (folder / f"{names[1]}.info").unlink()
    (folder / f"{names[2]}.o.tmp-1-1").write_bytes(b"")
    before = sorted(path.name for path in folder.iterdir())
    assert main(["cache", "verify"]) == 1
    out = capsys.readouterr().out
    assert f"bad: {names[0]}.o is damaged" in out
    assert f"may be deleted: {names[2]}.o.tmp-1-1" in out
    assert f"1 ok, 1 incomplete, 1 bad, 1 left over in {folder}" in out
    assert sorted(path.name for path in folder.iterdir()) == before


def test_verify_recomputes_the_digest_from_the_ingredients(folder, capsys):
    name = f"Square_{key(1).digest}"
    Store(folder).folder.save(name, encode(name, key(9), compiled(1)))
    assert main(["cache", "verify"]) == 1
    assert f"its ingredients give the digest {key(9).digest}" in capsys.readouterr().out


@pytest.mark.parametrize("action", ["ls", "verify"])
def test_a_folder_that_is_not_there_is_named(action, capsys, tmp_path):
    assert main(["cache", action, "--folder", str(tmp_path / "none")]) == 2
    assert "no folder" in capsys.readouterr().err


def test_a_folder_not_to_be_trusted_is_an_error_with_the_fix(folder, capsys):
    folder.chmod(0o777)
    assert main(["cache", "ls"]) == 2
    assert "chmod" in capsys.readouterr().err


def test_the_command_does_not_import_torch():
    source = "import sys, kernelmill.cli.main; print('torch' in sys.modules)"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", source], env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout == "False\n"


def test_gc_export_import_and_why(folder, tmp_path, capsys):
    archive = str(tmp_path / "kernels.tar")
    assert main(["cache", "export", archive]) == 0
    assert main(["cache", "gc", "--max-size", "0"]) == 0
    assert list(folder.glob("[!.]*")) == []
    assert main(["cache", "import", archive]) == 0
    assert main(["cache", "verify"]) == 0
    assert main(["cache", "why", key(0).digest, key(1).digest]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"exported 3 kernels to {archive}"
    assert lines[1].startswith("removed 3 kernels, ")
    assert lines[2] == f"imported 3 kernels, 0 were there, 0 refused in {folder}"
    assert lines[4:] == ["kernel differs:", "  - kernel number 0", "  + kernel number 1"]


def test_a_size_that_cannot_be_read(folder, capsys):
    with pytest.raises(SystemExit):
        main(["cache", "gc", "--max-size", "much"])
    assert "'much' is no size" in capsys.readouterr().err
