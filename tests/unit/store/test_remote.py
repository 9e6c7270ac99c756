"""The remote store: a real Redis server, files behind fsspec, and remotes that fail."""

import importlib
import logging
import socket
import threading

import pytest

from kernelmill.core import knobs
from kernelmill.core.errors import ConfigError
from kernelmill.store import BadEntry, Store, open_store
from kernelmill.store import remote as requests
from kernelmill.store.entry import encode
from kernelmill.store.remote import (
    Remote,
    connect,
    default_remote,
    open_shared,
    pack,
    sign,
    unpack,
    verified,
)
from tests.servers import redis_server
from tests.unit.store.samples import compiled, key

KEY, OTHER_KEY = b"k" * 32, b"o" * 32


def name(n):
    return f"Square_{key(n).digest}"


def get(store, n):
    entry = store.get_or_compile(key(n), "Square", lambda: compiled(n))
    assert entry.object == compiled(n).object
    return entry.source


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory):
    with redis_server(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture(params=["redis", "files"])
def url(request, tmp_path):
    if request.param == "redis":
        return request.getfixturevalue("redis_url")
    return f"file://{tmp_path}/remote"


@pytest.fixture
def patient(monkeypatch):
    """A busy machine is not an unreachable remote."""
    monkeypatch.setattr("kernelmill.store.remote.TIMEOUT_SECONDS", 600.0)


@pytest.mark.usefixtures("patient")
def test_what_one_host_compiled_others_fetch(url, tmp_path):
    first, second = Remote(url, KEY, True), Remote(url, KEY, False)
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
    remote = Remote(url, KEY, True)
    remote._connected().write(name(2), sign(KEY, name(2), value))
    store = Store(tmp_path / "a", remote=remote)
    assert get(store, 2) == "compiled"
    assert store.counts.remote == 0
    assert remote.flush(600)
    assert get(Store(tmp_path / "b", remote=Remote(url, KEY, False)), 2) == "remote"


@pytest.mark.usefixtures("patient")
def test_a_key_of_another_type_is_repaired_by_the_next_write(redis_url, tmp_path, caplog):
    client = importlib.import_module("redis").Redis.from_url(redis_url)
    client.delete("kernelmill:" + name(3))
    client.rpush("kernelmill:" + name(3), "a list")
    backend = connect(redis_url)
    assert backend.read(name(3)) is None and backend.read_many([name(3)]) == {}
    assert backend.present([name(3)]) == set()
    assert [one.bytes for one in backend.listing() if one.name == name(3)] == [0]
    writer = Remote(redis_url, KEY, True)
    assert get(Store(tmp_path / "a", remote=writer), 3) == "compiled"
    assert writer.flush(600)
    assert get(Store(tmp_path / "b", remote=Remote(redis_url, KEY, False)), 3) == "remote"
    assert warnings_in(caplog) == []


@pytest.mark.usefixtures("patient")
def test_an_unreachable_remote_costs_one_warning(folder, caplog):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # nobody listens there
        remote = Remote(f"redis://127.0.0.1:{unused.getsockname()[1]}/0", KEY, True)
        store = Store(folder, remote=remote)
        assert [get(store, n) for n in range(3)] == ["compiled"] * 3
        assert remote.flush(600)
    (warning,) = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert "does not answer" in warning.getMessage()


def test_a_remote_that_hangs_is_asked_once(folder, caplog, monkeypatch):
    monkeypatch.setattr(requests, "FIRST_SECONDS", 1200.0)
    monkeypatch.setattr(requests, "LONGEST_SECONDS", 1200.0)
    asked, release = [], threading.Event()

    class Hanging:
        def read(self, name):
            asked.append(name)
            release.wait(30)

        def write(self, name, value):
            asked.append(name)

    remote = Remote("file:///nowhere", KEY, True, lambda url: Hanging())
    store = Store(folder, remote=remote)
    assert [get(store, n) for n in range(3)] == ["compiled"] * 3
    release.set()
    assert remote.flush(600)
    assert asked == [name(0)]
    (warning,) = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert "no answer within 200 ms" in warning.getMessage()


@pytest.mark.usefixtures("patient")
def test_a_remote_that_serves_again_is_used_again(folder, monkeypatch, caplog):
    monkeypatch.setattr(requests, "FIRST_SECONDS", 0.0)
    values, down = filled(), [True]

    class Restarted(Kept):
        def read(self, name):
            if down:
                raise ConnectionError("it starts")
            return super().read(name)

    remote = Remote("file:///nowhere", KEY, False, lambda url: Restarted(values))
    store = Store(folder, remote=remote)
    assert [get(store, n) for n in (1, 2)] == ["compiled"] * 2
    down.clear()
    assert get(store, 3) == "remote"
    assert len(warnings_in(caplog)) == 1


@pytest.mark.usefixtures("patient")
def test_an_entry_of_another_key_is_refused(folder, caplog):
    files = encode(name(4), key(5), compiled(5))

    class Lying:
        def read(self, name):
            return sign(KEY, name, pack(files))

        def write(self, name, value):
            pass

    store = Store(folder, remote=Remote("file:///nowhere", KEY, True, lambda url: Lying()))
    assert get(store, 4) == "compiled"
    assert "is there for another key" in caplog.text


def test_packing_is_undone_and_every_cut_is_noticed():
    files = encode(name(1), key(1), compiled(1))
    value = pack(files)
    assert unpack(value) == files
    for cut in range(len(value)):
        with pytest.raises(BadEntry):
            unpack(value[:cut])


class Kept:
    """A remote in memory."""

    def __init__(self, values):
        self.values = values

    def read(self, name):
        return self.values.get(name)

    def write(self, name, value):
        self.values[name] = value


def remote_of(values, key=KEY, writes=False):
    return Remote("file:///nowhere", key, writes, lambda url: Kept(values))


def filled():
    """What a remote holds when entries 1, 2 and 3 are in it."""
    return {
        name(n): sign(KEY, name(n), pack(encode(name(n), key(n), compiled(n)))) for n in (1, 2, 3)
    }


def warnings_in(caplog):
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def unsigned(values):
    return {n: value.partition(b"\n")[2] for n, value in values.items()}


def signed_by_another(values):
    return {n: sign(OTHER_KEY, n, value) for n, value in unsigned(values).items()}


def under_other_names(values):
    return dict(zip(values, [*list(values.values())[1:], values[name(1)]], strict=True))


def cut(values):
    return {n: value[:70] for n, value in values.items()}


def changed(values):
    return {n: value[:-1] + b"!" for n, value in values.items()}


@pytest.mark.usefixtures("patient")
def test_what_is_signed_is_used(folder):
    store = Store(folder, remote=remote_of(filled()))
    assert [get(store, n) for n in (1, 2, 3)] == ["remote"] * 3


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("forge", [unsigned, signed_by_another, under_other_names, cut, changed])
def test_what_is_not_signed_rightly_is_a_miss_with_one_warning(folder, caplog, forge):
    store = Store(folder, remote=remote_of(forge(filled())))
    assert [get(store, n) for n in (1, 2, 3)] == ["compiled"] * 3
    assert store.counts.remote == 0
    (warning,) = warnings_in(caplog)
    assert "sign" in warning and "compiled here instead" in warning


@pytest.mark.usefixtures("patient")
def test_only_a_process_that_may_write_does():
    values = {}
    reader, writer = remote_of(values), remote_of(values, writes=True)
    files = encode(name(1), key(1), compiled(1))
    reader.write(name(1), files)
    assert reader.flush(600) and values == {}
    writer.write(name(1), files)
    assert writer.flush(600)
    assert reader.read(name(1)) == files


def test_a_signature_is_good_for_one_name_one_key_and_every_byte():
    signed = sign(KEY, "a", b"value")
    assert verified(KEY, "a", signed) == b"value"
    assert signed == sign(KEY, "a", b"value")
    for key_, name_ in ((OTHER_KEY, "a"), (KEY, "b"), (KEY, "a\0")):
        with pytest.raises(BadEntry):
            verified(key_, name_, signed)
    for place in range(len(signed)):
        with pytest.raises(BadEntry):
            verified(KEY, "a", signed[:place] + b"?" + signed[place + 1 :])
        with pytest.raises(BadEntry):
            verified(KEY, "a", signed[:place])


@pytest.fixture
def environment(monkeypatch, tmp_path):
    monkeypatch.setenv("KERNELMILL_REMOTE", f"file://{tmp_path}/remote")
    for unset in ("KERNELMILL_REMOTE_KEY", "KERNELMILL_REMOTE_ACCESS"):
        monkeypatch.delenv(unset, raising=False)
    return monkeypatch


def test_without_a_key_a_remote_is_not_used_and_that_is_said_once(environment, tmp_path, caplog):
    environment.setenv("KERNELMILL_REMOTE_ACCESS", "write")
    stores = [open_store(str(tmp_path / folder)) for folder in ("a", "b")]
    assert [store.remote for store in stores] == [None, None]
    (warning,) = warnings_in(caplog)
    assert "KERNELMILL_REMOTE_KEY" in warning
    assert get(stores[0], 1) == "compiled"
    assert not (tmp_path / "remote").exists()


def test_a_process_reads_unless_it_is_told_to_write(environment):
    environment.setenv("KERNELMILL_REMOTE_KEY", "a" * 32)
    assert not default_remote().writes
    environment.setenv("KERNELMILL_REMOTE_ACCESS", "write")
    assert default_remote().writes
    assert default_remote() is default_remote()
    environment.setenv("KERNELMILL_REMOTE_ACCESS", "all")
    with pytest.raises(ConfigError, match="KERNELMILL_REMOTE_ACCESS='all': expected read or write"):
        default_remote()


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("redis://:hush@host:port/0", "port is no number"),
        ("redis://:hu/sh@host:99999", "port is no number"),
        ("redis://:hush@host:0/0", "port is no number"),
        ("redis://:hush@host/zero", "database 'zero' is no number"),
        ("reddis://host:6379/0", "no store has URLs with reddis://"),
        ("host:6379", "expected a URL"),
    ],
)
def test_a_url_that_no_store_has_is_refused_by_name(environment, tmp_path, url, why):
    environment.setenv("KERNELMILL_REMOTE", url)
    environment.setenv("KERNELMILL_REMOTE_KEY", "a" * 32)
    with pytest.raises(ConfigError, match=f"KERNELMILL_REMOTE=.*{why}") as error:
        open_store(str(tmp_path / "a"))
    assert "hu" not in str(error.value)
    with pytest.raises(ConfigError, match=why) as error:
        open_shared(url)
    assert "hu" not in str(error.value)


@pytest.mark.parametrize(
    "url",
    ["redis://u:p%23@host:6379/0", "rediss://host", "unix:///run/redis?db=0", "s3://bucket/folder",
     "file:///folder", "/folder", "simplecache::s3://bucket"],
)  # fmt: skip
def test_urls_of_stores_are_taken(environment, url):
    environment.setenv("KERNELMILL_REMOTE", url)
    assert knobs.REMOTE.get() == url


def test_a_short_key_is_refused_and_not_shown(environment):
    environment.setenv("KERNELMILL_REMOTE_KEY", "hush")
    with pytest.raises(ConfigError, match=r"KERNELMILL_REMOTE_KEY=.*: expected a random") as error:
        default_remote()
    assert "hush" not in str(error.value)
