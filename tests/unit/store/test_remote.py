"""The remote store: a real Redis server, files behind fsspec, and remotes that fail."""

import logging
import shutil
import socket
import subprocess
import threading

import pytest

from kernelmill.store import BadEntry, Store
from kernelmill.store.entry import encode
from kernelmill.store.remote import Remote, pack, unpack
from tests.unit.store.samples import compiled, key


def name(n):
    return f"Square_{key(n).digest}"


def get(store, n):
    entry = store.get_or_compile(key(n), "Square", lambda: compiled(n))
    assert entry.object == compiled(n).object
    return entry.source


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory):
    """The URL of a server of our own on a socket file."""
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    path = tmp_path_factory.mktemp("redis") / "socket"
    command = ["redis-server", "--port", "0", "--unixsocket", str(path), "--save", ""]
    server = subprocess.Popen(command, cwd=path.parent, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    assert any("accept connections" in line for line in server.stdout)
    yield f"unix://{path}?db=0"
    server.kill()
    server.wait()


@pytest.fixture(params=["redis", "files"])
def url(request, tmp_path):
    if request.param == "redis":
        return request.getfixturevalue("redis_server")
    return f"file://{tmp_path}/remote"


@pytest.fixture
def patient(monkeypatch):
    """A busy machine is not an unreachable remote."""
    monkeypatch.setattr("kernelmill.store.remote.TIMEOUT_SECONDS", 600.0)


@pytest.mark.usefixtures("patient")
def test_what_one_host_compiled_others_fetch(url, tmp_path):
    first, second = Remote(url), Remote(url)
    assert get(Store(tmp_path / "a", remote=first), 1) == "compiled"
    assert first.flush(600)
    store = Store(tmp_path / "b", remote=second)
    assert get(store, 1) == "remote"
    assert (store.counts.compiled, store.counts.remote, store.counts.hits) == (0, 1, 1)
    assert get(Store(tmp_path / "b"), 1) == "folder"


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("damage", [b"", b"[1, 2, 3]\nabc", b"\xff\xfe", None])
def test_damage_in_the_remote_is_never_used(url, tmp_path, damage):
    good = pack(encode(name(2), key(2), compiled(2)))
    value = good[:-100] + b"!" + good[-99:] if damage is None else damage
    remote = Remote(url)
    remote._connected().write(name(2), value)
    store = Store(tmp_path / "a", remote=remote)
    assert get(store, 2) == "compiled"
    assert store.counts.remote == 0
    assert remote.flush(600)
    assert get(Store(tmp_path / "b", remote=Remote(url)), 2) == "remote"


@pytest.mark.usefixtures("patient")
def test_an_unreachable_remote_costs_one_warning(folder, caplog):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # nobody listens there
        remote = Remote(f"redis://127.0.0.1:{unused.getsockname()[1]}/0")
        store = Store(folder, remote=remote)
        assert [get(store, n) for n in range(3)] == ["compiled"] * 3
        assert remote.flush(600)
    (warning,) = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert "does not serve" in warning.getMessage()


def test_a_remote_that_hangs_is_asked_once(folder, caplog):
    asked, release = [], threading.Event()

    class Hanging:
        def read(self, name):
            asked.append(name)
            release.wait(30)

        def write(self, name, value):
            asked.append(name)

    remote = Remote("file:///nowhere", lambda url: Hanging())
    store = Store(folder, remote=remote)
    assert [get(store, n) for n in range(3)] == ["compiled"] * 3
    release.set()
    assert remote.flush(600)
    assert asked == [name(0)]
    (warning,) = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert "no answer within 200 ms" in warning.getMessage()


@pytest.mark.usefixtures("patient")
def test_an_entry_of_another_key_is_refused(folder, caplog):
    files = encode(name(4), key(5), compiled(5))

    class Lying:
        def read(self, name):
            return pack(files)

        def write(self, name, value):
            pass

    store = Store(folder, remote=Remote("file:///nowhere", lambda url: Lying()))
    assert get(store, 4) == "compiled"
    assert "is there for another key" in caplog.text


def test_packing_is_undone_and_every_cut_is_noticed():
    files = encode(name(1), key(1), compiled(1))
    value = pack(files)
    assert unpack(value) == files
    for cut in range(len(value)):
        with pytest.raises(BadEntry):
            unpack(value[:cut])
