"""Manifests, and what is fetched, packed and cleaned by them."""

import os
import time

import pytest

from kernelmill.core.errors import ConfigError, FileError, StoreError
from kernelmill.core.target.isa import NAMED
from kernelmill.fleet import clean, pack, pull
from kernelmill.fleet.manifest import (
    FolderManifests,
    ModelManifest,
    SharedManifests,
    own_compiler,
    read_manifest,
)
from kernelmill.store import Store
from kernelmill.store.entry import encode
from kernelmill.store.folder import Folder
from kernelmill.store.remote import SharedStore
from kernelmill.store.upkeep import import_archive
from tests.unit.store.samples import compiled, key

V3, V4 = str(NAMED["x86-64-v3"]), str(NAMED["x86-64-v4"])


def name(n):
    return f"Square_{key(n).digest}"


def manifest(model, *numbers, compiler=None, isa=V3):
    return ModelManifest(model, compiler or own_compiler(), isa, tuple(name(n) for n in numbers))


def keep(shared, manifest):
    SharedManifests(shared).keep(manifest)
    return manifest.name


@pytest.fixture
def url(tmp_path, monkeypatch):
    """A shared store with entries 0 to 4, and the manifest of `model`, which needs 0 to 2."""
    monkeypatch.setenv("KERNELMILL_REMOTE_KEY", "k" * 32)
    monkeypatch.delenv("KERNELMILL_REMOTE", raising=False)
    url = f"file://{tmp_path}/shared"
    shared = SharedStore(url, b"k" * 32)
    for n in range(5):
        shared.keep(name(n), encode(name(n), key(n), compiled(n)))
    keep(shared, manifest("model", 0, 1, 2))
    return url


def test_what_a_model_needs_is_pulled_once(tmp_path, url):
    first = pull("model", url, target="x86-64-v3", folder=tmp_path / "k")
    assert (first.present, first.fetched, first.missing) == (0, 3, ())
    assert first.bytes > 3 * 2000
    store = Store(tmp_path / "k")
    found = [store.get(key(n), "Square") for n in range(5)]
    assert [entry is not None for entry in found] == [True] * 3 + [False] * 2
    again = pull("model", url, target="x86-64-v3", folder=tmp_path / "k")
    assert (again.present, again.fetched) == (3, 0)


def test_a_damaged_entry_in_the_folder_is_fetched_again(tmp_path, url):
    pull("model", url, target="x86-64-v3", folder=tmp_path / "k")
    (tmp_path / "k" / f"{name(1)}.o").write_bytes(b"damaged")
    again = pull("model", url, target="x86-64-v3", folder=tmp_path / "k")
    assert (again.present, again.fetched, again.missing) == (2, 1, ())
    assert Store(tmp_path / "k").get(key(1), "Square").object == compiled(1).object


def test_what_the_shared_store_lacks_or_has_poisoned_is_missing(tmp_path, url):
    os.unlink(tmp_path / "shared" / name(0))
    (tmp_path / "shared" / name(2)).write_bytes(b"poison")
    done = pull("model", url, target="x86-64-v3", folder=tmp_path / "k")
    assert (done.fetched, set(done.missing)) == (1, {name(0), name(2)})
    with pytest.raises(StoreError, match="lacks 2 entries of 'model'"):
        pack("model", tmp_path / "a.tar", url, target="x86-64-v3", folder=tmp_path / "k")


def test_an_archive_or_manifest_that_cannot_be_written_is_an_error_of_the_tree(tmp_path, url):
    pull("model", url, target="x86-64-v3", folder=tmp_path / "k")
    archive = tmp_path / "nothing" / "model.tar"
    with pytest.raises(FileError) as caught:
        pack("model", archive, target="x86-64-v3", folder=tmp_path / "k")
    assert isinstance(caught.value, FileNotFoundError) and caught.value.filename == str(archive)
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError) as caught:
        FolderManifests(Folder(tmp_path / "file" / "k")).keep(manifest("model", 0))
    assert isinstance(caught.value, NotADirectoryError)


def test_a_pack_is_taken_by_import_with_no_store_at_hand(tmp_path, url):
    Store(tmp_path / "k").put(key(9), "Square", compiled(9))
    packed = tmp_path / "model.tar"
    assert pack("model", packed, url, target="x86-64-v3", folder=tmp_path / "k") == 3
    again = tmp_path / "again.tar"
    assert pack("model", again, target="x86-64-v3", folder=tmp_path / "k") == 3
    assert packed.read_bytes() == again.read_bytes()
    assert import_archive(str(tmp_path / "other"), str(packed)).added == 3


def test_errors_name_what_there_is(tmp_path, url):
    folder = tmp_path / "k"
    with pytest.raises(StoreError, match="no manifest of 'modle'; did you mean 'model'"):
        pull("modle", url, target="x86-64-v3", folder=folder)
    with pytest.raises(
        StoreError, match=r"not precompiled for .*x86-64-v4 - by .*but for: .*-v3 -"
    ):
        pull("model", url, target="x86-64-v4", folder=folder)
    with pytest.raises(ConfigError, match="no instruction set 'v9'"):
        pull("model", url, target="v9", folder=folder)
    with pytest.raises(ConfigError, match="there is no shared store"):
        pull("model", folder=folder)
    with pytest.raises(StoreError, match=r"no manifest of 'model'; it has none"):
        pack("model", tmp_path / "a.tar", folder=folder)


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b'{"format": 2}', b'{"format": 99, "entries": []}',
     b'{"format": 2, "model": "a", "compiler": "1", "isa": "x", "written": 1,'
     b' "entries": ["../../etc/passwd"]}'],
)  # fmt: skip
def test_a_damaged_manifest_is_refused(text):
    with pytest.raises(StoreError, match=r"manifest\.a"):
        read_manifest(text, "manifest.a")


def test_a_manifest_of_a_newer_format_is_refused_by_name(url):
    shared = SharedStore(url, b"k" * 32)
    one = manifest("model", 0)
    shared.keep_document(one.name, one.text().replace(b'"format": 2', b'"format": 99'))
    with pytest.raises(StoreError, match=rf"{one.name} has format 99, and this .* reads 2"):
        pull("model", url, target="x86-64-v3")
    with pytest.raises(StoreError, match=rf"{one.name} has format 99"):
        clean(shared, 0)


def test_manifests_of_other_isas_and_versions_are_kept_beside(tmp_path, url):
    shared = SharedStore(url, b"k" * 32)
    others = manifest("model", 3, isa=V4), manifest("model", 4, compiler="kernelmill 9")
    names = {keep(shared, other) for other in others}
    for other in others:
        assert SharedManifests(shared).read(other.name) == other
    done = pull("model", url, target="x86-64-v3", folder=tmp_path / "k")
    assert (done.fetched, done.missing) == (3, ())
    assert clean(shared, -1).removed == 0
    assert names <= {one.name for one in shared.listing()}


def test_a_model_of_another_version_only_is_refused_by_that(tmp_path, url):
    keep(SharedStore(url, b"k" * 32), manifest("theirs", 4, compiler="kernelmill 9"))
    with pytest.raises(StoreError, match=r"by kernelmill 0.*but for: .*-v3 .* by kernelmill 9"):
        pull("theirs", url, target="x86-64-v3", folder=tmp_path / "k")


def test_cleaning_removes_what_is_old_and_in_no_manifest(tmp_path, url):
    shared = SharedStore(url, b"k" * 32)
    old = time.time() - 1000
    for n in (0, 3):
        os.utime(tmp_path / "shared" / name(n), (old, old))
    would = clean(shared, 500, dry=True)
    assert (would.removed, would.left) == (1, 4)
    done = clean(shared, 500)
    assert (done.removed, done.manifests, done.left) == (1, 0, 4)
    assert shared.present([name(n) for n in range(5)]) == {name(n) for n in (0, 1, 2, 4)}
    os.utime(tmp_path / "shared" / manifest("model").name, (old, old))
    done = clean(shared, 500, manifest_seconds=500)
    assert (done.removed, done.manifests, done.left) == (1, 1, 3)


def test_a_manifest_that_was_looked_at_since_is_as_old_as_it_was(url):
    shared = SharedStore(url, b"k" * 32)
    old = ModelManifest("old", own_compiler(), V3, (name(3),), time.time() - 1000)
    keep(shared, old)
    done = clean(shared, -1, manifest_seconds=500)
    assert (done.manifests, done.removed, done.left) == (1, 2, 3)


def test_nothing_is_cleaned_when_a_manifest_cannot_be_read(tmp_path, url):
    (tmp_path / "shared" / "manifest.other").write_bytes(b"damaged")
    with pytest.raises(StoreError, match="not signed"):
        clean(SharedStore(url, b"k" * 32), 0)
    assert len(SharedStore(url, b"k" * 32).listing()) == 7
