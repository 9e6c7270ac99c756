"""A shared store in batches: Redis, files and S3 for real, and servers that fail."""

import logging
import socket
import threading
import time

import pytest

from kernelmill.core.errors import ConfigError, StoreError
from kernelmill.store import backends, remote
from kernelmill.store.entry import decode, encode
from kernelmill.store.remote import SharedStore, open_shared, pack, sign
from tests.servers import BUCKET, redis_server, s3_server, use_s3
from tests.unit.store.samples import compiled, key

KEY = b"k" * 32


def name(n):
    return f"Square_{key(n).digest}"


def files(n):
    return encode(name(n), key(n), compiled(n))


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory):
    with redis_server(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture(scope="module")
def s3_endpoint():
    with s3_server() as endpoint:
        yield endpoint


@pytest.fixture(params=["redis", "files", "s3"])
def url(request, tmp_path, monkeypatch):
    if request.param == "redis":
        yield (url := request.getfixturevalue("redis_url"))
        backend = backends.connect(url, 600.0)
        backend.delete([stored.name for stored in backend.listing()])
    elif request.param == "s3":
        for variable, value in use_s3(request.getfixturevalue("s3_endpoint")).items():
            monkeypatch.setenv(variable, value)
        yield f"s3://{BUCKET}/{tmp_path.name}"
    else:
        yield f"file://{tmp_path}/remote"


@pytest.fixture
def quick(monkeypatch):
    """No pauses between attempts."""
    monkeypatch.setattr(remote, "_PAUSE_SECONDS", 0.0)


@pytest.fixture
def store(url, monkeypatch):
    monkeypatch.setattr(remote, "SHARED_TIMEOUT_SECONDS", 600.0)
    return SharedStore(url, KEY)


def test_entries_go_there_and_come_back_in_batches(store, monkeypatch):
    monkeypatch.setattr(backends, "_BATCH", 3)
    for n in range(7):
        store.keep(name(n), files(n))
    wanted = [name(n) for n in range(9)]
    assert store.present(wanted) == set(wanted[:7])
    found = {entry.name: (entry.object, entry.source, kept) for entry, kept in store.fetch(wanted)}
    assert found == {name(n): (compiled(n).object, "remote", files(n)) for n in range(7)}


def test_what_is_there_is_listed_and_removed(store):
    assert store.listing() == []
    for n in range(3):
        store.keep(name(n), files(n))
    store.keep_document("manifest.model", b"text")
    listing = {stored.name: stored for stored in store.listing()}
    assert listing.keys() == {name(0), name(1), name(2), "manifest.model"}
    assert all(-2 <= stored.age < 600 for stored in listing.values())
    assert listing[name(0)].bytes == len(sign(KEY, name(0), pack(files(0))))
    store.delete([name(1), name(2), "gone"])
    assert {stored.name for stored in store.listing()} == {name(0), "manifest.model"}


def test_documents_are_signed(store, url):
    assert store.document("manifest.model") is None
    store.keep_document("manifest.model", b"text")
    assert store.document("manifest.model") == b"text"
    with pytest.raises(StoreError, match=r"signature of manifest\.model"):
        SharedStore(url, b"o" * 32).document("manifest.model")


def test_a_poisoned_entry_is_missing_with_one_warning(store, url, caplog):
    for n in range(4):
        store.keep(name(n), files(n))
    backend = backends.connect(url, 600.0)
    backend.write(name(0), pack(files(0)))
    backend.write(name(1), sign(b"o" * 32, name(1), pack(files(1))))
    backend.write(name(2), sign(KEY, name(2), pack(files(3))))
    assert [entry.name for entry, _ in store.fetch([name(n) for n in range(4)])] == [name(3)]
    warnings = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(warnings) == 1 and "taken for missing" in warnings[0].getMessage()


@pytest.mark.usefixtures("quick")
def test_an_unreachable_store_is_an_error_without_its_password():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # nobody listens there
        store = SharedStore(f"redis://user:hush@127.0.0.1:{unused.getsockname()[1]}/0", KEY)
        with pytest.raises(StoreError, match="does not answer") as error:
            store.present([name(1)])
    assert "hush" not in str(error.value) and "127.0.0.1" in str(error.value)


@pytest.mark.usefixtures("quick")
def test_a_cut_connection_is_tried_again(tmp_path, monkeypatch):
    """A way to the server that is cut in the middle of the first two answers."""
    monkeypatch.setattr(remote, "SHARED_TIMEOUT_SECONDS", 600.0)
    with redis_server(tmp_path) as url, cutting(tmp_path / "socket", 2) as port:
        SharedStore(url, KEY).keep(name(1), files(1))
        store = SharedStore(f"redis://127.0.0.1:{port}/0", KEY)
        (found,) = store.fetch([name(1)])
        assert found == (decode(name(1), files(1), "remote"), files(1))


@pytest.mark.usefixtures("quick")
def test_a_server_that_does_not_answer_ends_in_an_error(monkeypatch):
    monkeypatch.setattr(remote, "SHARED_TIMEOUT_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store = SharedStore(f"redis://127.0.0.1:{silent.getsockname()[1]}/0", KEY)
        with pytest.raises(StoreError, match="does not answer"):
            store.present([name(1)])


@pytest.mark.usefixtures("quick")
def test_a_full_server_and_wrong_credentials_are_errors(tmp_path):
    (tmp_path / "full").mkdir()
    full = redis_server(tmp_path / "full", "--maxmemory", "1mb")
    with full as url, pytest.raises(StoreError, match="OutOfMemoryError"):
        for n in range(1000):
            SharedStore(url, KEY).keep(name(n), files(n))
    (tmp_path / "closed").mkdir()
    closed = redis_server(tmp_path / "closed", "--requirepass", "secret")
    with closed as url, pytest.raises(StoreError, match="AuthenticationError"):
        SharedStore(url, KEY).keep(name(1), files(1))


def test_a_shared_store_needs_a_key(monkeypatch, tmp_path):
    monkeypatch.delenv("KERNELMILL_REMOTE", raising=False)
    monkeypatch.delenv("KERNELMILL_REMOTE_KEY", raising=False)
    assert open_shared() is None
    with pytest.raises(ConfigError, match="KERNELMILL_REMOTE_KEY"):
        open_shared(f"file://{tmp_path}")
    monkeypatch.setenv("KERNELMILL_REMOTE_KEY", "a" * 32)
    monkeypatch.setenv("KERNELMILL_REMOTE", f"file://{tmp_path}")
    assert open_shared().url == f"file://{tmp_path}"


class cutting:
    """A port that passes on to a socket file, and cuts the first connections after some bytes of
    the answer."""

    def __init__(self, path, cuts):
        self.path, self.cuts = str(path), cuts

    def __enter__(self):
        self.server = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, daemon=True).start()
        return self.server.getsockname()[1]

    def __exit__(self, *_):
        self.server.close()

    def _serve(self):
        while True:
            try:
                client, _ = self.server.accept()
            except OSError:
                return
            self.cuts -= 1
            threading.Thread(
                target=self._pass_on, args=(client, 20 if self.cuts >= 0 else None), daemon=True
            ).start()

    def _pass_on(self, client, limit):
        with client, socket.socket(socket.AF_UNIX) as server:
            server.connect(self.path)
            threading.Thread(target=_copy, args=(client, server, None), daemon=True).start()
            _copy(server, client, limit)
            client.shutdown(socket.SHUT_RDWR)


def _copy(source, target, limit):
    try:
        while data := source.recv(1 << 16):
            target.sendall(data[:limit])
            if limit is not None:
                time.sleep(0)
                return
    except OSError:
        return
