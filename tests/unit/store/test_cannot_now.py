"""What cannot be read or used now is no damage: nothing is set aside, kernels stay in memory."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelmill.cli.main import main
from kernelmill.store import Store
from kernelmill.store.entry import BadEntry
from kernelmill.store.folder import Folder
from kernelmill.store.upkeep import collect
from tests.unit.store.samples import compiled, key

NUMBERS = ("EMFILE", "ENFILE", "ENOMEM", "EIO", "EINTR", "ESTALE", "EACCES", "EPERM")


def _contents(folder: Path) -> dict[str, bytes]:
    kept = (path for path in folder.iterdir() if not path.name.startswith(".use-"))
    return {path.name: path.read_bytes() for path in kept}


@pytest.fixture
def filled(folder: Path) -> Path:
    Store(folder).get_or_compile(key(1), "Square", lambda: compiled(1))
    return folder


class _System:
    """`os`, where one function fails for names or descriptors of files."""

    def __init__(self, name: str, number: int, spared: int = 0) -> None:
        self._name, self._number, self._spared = name, number, spared

    def __getattr__(self, name: str):
        return self._fail if name == self._name else getattr(os, name)

    def _fail(self, first, *rest, **options):
        whole = isinstance(first, str) and first.startswith("/")
        if whole or self._spared:
            self._spared -= not whole
            return getattr(os, self._name)(first, *rest, **options)
        raise OSError(self._number, os.strerror(self._number), str(first))


@pytest.mark.parametrize("call", ["open", "read", "fstat"])
@pytest.mark.parametrize("number", NUMBERS)
def test_what_the_system_says_is_no_damage(filled, monkeypatch, call, number):
    before = _contents(filled)
    store = Store(filled)
    with monkeypatch.context() as patch:
        patch.setattr("kernelmill.store.folder.os", _System(call, getattr(errno, number)))
        entry = store.get_or_compile(key(1), "Square", lambda: compiled(1))
        assert entry.object == compiled(1).object
        assert entry.source == "compiled"
    assert store.counts.set_aside == 0
    assert _contents(filled) == before
    assert Store(filled).get_or_compile(key(1), "Square", lambda: compiled(1)).source == "folder"


def test_a_file_that_was_not_read_whole_is_no_damage(filled, monkeypatch):
    (name,) = Folder(filled).names()
    with monkeypatch.context() as patch:
        patch.setattr("kernelmill.store.folder.os.read", lambda *_: b"")
        with pytest.raises(OSError, match=r"0 of .* bytes"):
            Folder(filled).load(name)
    with open(filled / f"{name}.o", "r+b") as file:
        file.truncate(10)
    with pytest.raises(BadEntry, match="damaged"):
        Folder(filled).load(name)


def test_what_cannot_be_read_in_a_folder_in_front_is_passed_by(
    filled, tmp_path, monkeypatch, caplog
):
    store = Store(tmp_path / "own", [filled])
    with monkeypatch.context() as patch:
        patch.setattr("kernelmill.store.folder.os", _System("read", errno.EIO))
        assert store.get_or_compile(key(1), "Square", lambda: compiled(1)).source == "compiled"
    assert "Input/output error" in caplog.text


def test_verify_tells_the_unread_from_the_damaged(filled, monkeypatch, capsys):
    monkeypatch.setattr("kernelmill.store.folder.os", _System("read", errno.EIO))
    assert main(["cache", "verify", "--folder", str(filled)]) == 1
    assert "0 bad, 1 unread" in capsys.readouterr().out


def test_nothing_is_collected_while_it_cannot_be_told_what_is_in_use(filled, monkeypatch):
    (filled / ".use-1-ab").write_text("")
    before = _contents(filled)
    monkeypatch.setattr("kernelmill.store.folder.os", _System("open", errno.EMFILE))
    with pytest.raises(OSError, match="Too many"):
        collect(str(filled), 0)
    assert _contents(filled) == before


WITHOUT_DESCRIPTORS = """
import os, resource, sys
from kernelmill.store import Store
from tests.unit.store.samples import compiled, key

limit = len(os.listdir("/proc/self/fd")) + 5
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
held = []
try:
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
while True:  # as others give them back, one by one
    store = Store(sys.argv[1])
    entry = store.get_or_compile(key(1), "Square", lambda: compiled(1))
    print(entry.source, store.counts.set_aside)
    if not held:
        break
    os.close(held.pop())
"""


def test_a_process_without_descriptors_leaves_good_files_alone(filled):
    before = _contents(filled)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    command = [sys.executable, "-c", WITHOUT_DESCRIPTORS, str(filled)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert set(done.stdout.splitlines()) == {"compiled 0", "folder 0"}
    assert _contents(filled) == before


def _too_long(tmp_path: Path) -> Path:
    return tmp_path / ("n" * 300)


def _in_a_circle(tmp_path: Path) -> Path:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    return tmp_path / "a" / "kernels"


def _below_a_file(tmp_path: Path) -> Path:
    (tmp_path / "file").write_text("")
    return tmp_path / "file" / "kernels"


UNUSABLE = (_too_long, _in_a_circle, _below_a_file)


@pytest.mark.parametrize("place", UNUSABLE)
def test_a_folder_that_cannot_be_used_is_one_warning(tmp_path, caplog, place):
    store = Store(place(tmp_path))
    for n in (1, 2):
        assert store.get_or_compile(key(n), "Square", lambda n=n: compiled(n)).source == "compiled"
        assert store.get_or_compile(key(n), "Square", lambda n=n: compiled(n)).source == "memory"
    assert store.get(key(1), "Square") is not None
    assert len([r for r in caplog.records if r.levelname == "WARNING"]) == 1
    assert "kept in memory" in caplog.text


@pytest.mark.parametrize("place", UNUSABLE)
def test_a_folder_in_front_that_cannot_be_used_is_passed_by(tmp_path, place):
    store = Store(tmp_path / "own", [place(tmp_path)])
    assert store.get_or_compile(key(1), "Square", lambda: compiled(1)).source == "compiled"
    assert store.counts.unwritten == 0


def test_a_folder_that_can_be_opened_later_is_used_then(filled, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr("kernelmill.store.folder.os.open", full)
        store = Store(filled)
    assert store.get_or_compile(key(1), "Square", lambda: compiled(1)).source == "folder"
