"""Manifests: the entries of a kernel store that a model needs, for one ISA and by one compiler.

A manifest is JSON with a format number. It is stored in the shared store under
`manifest.MODEL@DIGEST`, with a digest of the ISA and the compiler, and signed. So versions of
kernelmill that share a store have separate manifests, and do not overwrite each other's.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, field
from difflib import get_close_matches
from functools import cache
from hashlib import blake2b
from importlib.metadata import version

from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import DeniedFileError, StoreError, file_errors
from kernelmill.core.generator import GENERATOR_VERSION
from kernelmill.core.target.isa import Isa, named_isa
from kernelmill.core.version import ABI_VERSION, VERSION
from kernelmill.store.backends import Stored
from kernelmill.store.entry import NAME as ENTRY_NAME
from kernelmill.store.entry import BadEntry
from kernelmill.store.folder import Folder
from kernelmill.store.remote import SharedStore, named_shared, open_shared
from kernelmill.store.store import Store, default_folders
from kernelmill.store.upkeep import export_archive

PREFIX = "manifest."
FORMAT = 2
_AT = "@"
"""Separator of model and digest: no name of a job has one."""


@dataclass(frozen=True)
class ModelManifest:
    """A model's manifest. `isa` is the text of the ISA that it was compiled for, `compiler` that of
    the compiler, `entries` are names, `written` is in seconds since the epoch."""

    model: str
    compiler: str
    isa: str
    entries: tuple[str, ...]
    written: float = field(default_factory=time.time)

    @property
    def name(self) -> str:
        """Name under which it is stored."""
        return manifest_name(self.model, self.compiler, self.isa)

    def text(self) -> bytes:
        """Return the manifest as stored."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1).encode()


@cache
def own_compiler() -> str:
    """Return the versions that determine a model's entries, besides its ISA. Does not load LLVM."""
    return (
        f"kernelmill {VERSION}, generator {GENERATOR_VERSION}, ABI {ABI_VERSION}, "
        f"llvmlite {version('llvmlite')}"
    )


def manifest_name(model: str, compiler: str, isa: str) -> str:
    """Return the name under which the manifest of a model is stored."""
    digest = blake2b(f"{compiler}\n{isa}".encode(), digest_size=6).hexdigest()
    return f"{PREFIX}{model}{_AT}{digest}"


def model_of(name: str) -> str:
    """Return the model of a manifest's name."""
    return name.removeprefix(PREFIX).partition(_AT)[0]


def read_manifest(text: bytes, where: str) -> ModelManifest:
    """Return the manifest that `text` encoded. StoreError for other bytes."""
    try:
        document = json.loads(text)
        if document["format"] != FORMAT:
            raise StoreError(
                f"{where} has format {document['format']}, and this version of kernelmill reads "
                f"{FORMAT}: it is of another version"
            )
        model, compiler, isa = (str(document[field]) for field in ("model", "compiler", "isa"))
        names = tuple(map(str, document["entries"]))
        manifest = ModelManifest(model, compiler, isa, names, float(document["written"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{where} is no manifest: {error}") from None
    for name in manifest.entries:
        if not ENTRY_NAME.fullmatch(name):
            raise StoreError(f"{where} is no manifest: {name!r} is no entry of a store")
    return manifest


_SUFFIX = ".list"


class FolderManifests:
    """The manifests with the kernels of a folder."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def keep(self, manifest: ModelManifest) -> None:
        """Write a manifest. FileError when it cannot be written."""
        with file_errors(self._folder.path):
            self._folder.save(manifest.name, {_SUFFIX: manifest.text()})

    def needed(self, model: str, isa: Isa) -> ModelManifest:
        """Return a model's manifest. StoreError if it was not compiled for this ISA and version."""
        return _needed(self._read, self._names, model, isa, self._folder.path)

    def _read(self, name: str) -> ModelManifest | None:
        try:
            with file_errors(os.path.join(self._folder.path, f"{name}{_SUFFIX}")):
                text = self._folder.read(f"{name}{_SUFFIX}")
        except BadEntry as bad:
            raise StoreError(f"{self._folder.path}: {bad}") from None
        where = f"{self._folder.path}/{name}{_SUFFIX}"
        return None if text is None else read_manifest(text, where)

    def _names(self) -> list[str]:
        with file_errors(self._folder.path):
            files = self._folder.files()
        return [f.removesuffix(_SUFFIX) for f in files if f.startswith(PREFIX)]


class SharedManifests:
    """The manifests in a shared store. All methods raise StoreError when it does not answer."""

    def __init__(self, shared: SharedStore) -> None:
        self._shared = shared

    def keep(self, manifest: ModelManifest) -> None:
        """Write a manifest, replacing an earlier one."""
        self._shared.keep_document(manifest.name, manifest.text())

    def needed(self, model: str, isa: Isa) -> ModelManifest:
        """Return a manifest as `FolderManifests` does; StoreError too if unsigned or damaged."""
        return _needed(self.read, self._names, model, isa, self._shared.shown)

    def read(self, name: str) -> ModelManifest | None:
        """Return the manifest of this name; None when it is missing."""
        text = self._shared.document(name)
        return None if text is None else read_manifest(text, f"{self._shared.shown}: {name}")

    def _names(self) -> list[str]:
        return [one.name for one in self._shared.listing() if one.name.startswith(PREFIX)]


def _needed(
    read: Callable[[str], ModelManifest | None],
    names: Callable[[], Sequence[str]],
    model: str,
    isa: Isa,
    where: str,
) -> ModelManifest:
    found = read(manifest_name(model, own_compiler(), str(isa)))
    if found is not None:
        return found
    there = names()
    others = [name for name in there if model_of(name) == model]
    if not others:
        models = sorted(set(map(model_of, there)))
        near = get_close_matches(model, models, 1)
        known = (
            f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(models) or 'none'}"
        )
        raise StoreError(f"{where} has no manifest of {model!r}{known}")
    known = sorted({_shown(read, name) for name in others})
    raise StoreError(
        f"{model} was not precompiled for {isa} by {own_compiler()}, but for: {'; '.join(known)}. "
        "Add this target to its job, pull for one of those with --target, or precompile it with "
        "the version that runs here"
    )


def _shown(read: Callable[[str], ModelManifest | None], name: str) -> str:
    try:
        one = read(name)
    except StoreError as error:
        return str(error)
    if one is None:
        return name
    return one.isa if one.compiler == own_compiler() else f"{one.isa} by {one.compiler}"


@dataclass(frozen=True)
class Cleaned:
    """The result of `clean`: entries and manifests removed, their bytes, and entries left."""

    removed: int
    manifests: int
    bytes: int
    left: int


def clean(
    shared: SharedStore, seconds: float, manifest_seconds: float | None = None, dry: bool = False
) -> Cleaned:
    """Remove entries that no manifest names and that are older than `seconds`: since their last use
    on a Redis server, since they were written elsewhere.

    Manifests written more than `manifest_seconds` ago are removed first, if that is given. With
    `dry` nothing is removed, only counted. StoreError when the store does not answer, or a manifest
    cannot be read: then its entries are unknown.
    """
    stored = shared.listing()
    now, longest = time.time(), float("inf") if manifest_seconds is None else manifest_seconds
    doomed: list[Stored] = []
    named: set[str] = set()
    for one in stored:
        if not one.name.startswith(PREFIX):
            continue
        manifest = None if one.age > longest else SharedManifests(shared).read(one.name)
        # Asking a Redis server for a value makes it a used one, so the age of that says little.
        if manifest is None or now - manifest.written > longest:
            doomed.append(one)
        else:
            named.update(manifest.entries)
    entries = [one for one in stored if not one.name.startswith(PREFIX)]
    unused = [one for one in entries if one.name not in named and one.age > seconds]
    if not dry:
        shared.delete([one.name for one in (*doomed, *unused)])
    removed = sum(one.bytes for one in (*doomed, *unused))
    return Cleaned(len(unused), len(doomed), removed, len(entries) - len(unused))


@dataclass(frozen=True)
class Pulled:
    """The result of `pull`: entries that were present, those fetched with their bytes, and names of
    those without a valid copy in the shared store."""

    present: int
    fetched: int
    bytes: int
    missing: tuple[str, ...]


def pull(
    model: str,
    store: str | None = None,
    *,
    target: str = "native",
    folder: str | os.PathLike[str] | None = None,
) -> Pulled:
    """Fetch all entries of a model, by its manifest, into the kernel folder; each is checked.

    store   URL of the shared store, KERNELMILL_REMOTE by default
    target  the ISA that it was compiled for; "native" is this machine's own
    folder  of kernels, KERNELMILL_KERNEL_META by default

    Raises StoreError when there is no such manifest, or the store does not answer; ConfigError
    without a store or its key; FileError when the folder cannot be written.
    """
    shared = named_shared(store)
    manifest = SharedManifests(shared).needed(model, named_isa(target))
    kernels = Store(os.fspath(folder) if folder is not None else default_folders()[-1])
    wanted = [name for name in manifest.entries if not _is_good(kernels.folder, name)]
    fetched = list(shared.fetch(wanted))
    kernels.adopt(fetched)
    size = sum(len(data) for _, files in fetched for data in files.values())
    if kernels.counts.unwritten:
        path, why = kernels.folder.path, "the folder cannot be written; pull into another one"
        raise DeniedFileError(errno.EACCES, why, path)
    FolderManifests(kernels.folder).keep(manifest)
    there = {name for name in wanted if _is_good(kernels.folder, name)}
    missing = tuple(name for name in wanted if name not in there)
    return Pulled(len(manifest.entries) - len(wanted), len(fetched), size, missing)


def pack(
    model: str,
    archive: str | os.PathLike[str],
    store: str | None = None,
    *,
    target: str = "native",
    folder: str | os.PathLike[str] | None = None,
) -> int:
    """Write all entries of a model into one tar file for `kernelmill cache import`, and return
    their number.

    Entries missing in the folder are pulled first, where there is a shared store. Raises as `pull`;
    StoreError when an entry is nowhere, FileError when the archive cannot be written.
    """
    path = os.fspath(folder) if folder is not None else default_folders()[-1]
    shared = open_shared(store)
    if shared is not None:
        pulled = pull(model, store, target=target, folder=path)
        if pulled.missing:
            raise StoreError(
                f"{shared.shown} lacks {len(pulled.missing)} entries of {model!r}, "
                f"{pulled.missing[0]} for one; precompile it again"
            )
    kernels = Folder(path)
    names = FolderManifests(kernels).needed(model, named_isa(target)).entries
    missing = [name for name in names if not _is_good(kernels, name)]
    if missing:
        raise StoreError(
            f"{kernels.path} lacks {len(missing)} entries of {model!r}, {missing[0]} for one; "
            "precompile it again"
        )
    with file_errors(archive):
        return export_archive(kernels.path, os.fspath(archive), names)


def _is_good(folder: Folder, name: str) -> bool:
    try:
        return folder.load(name) is not None
    except BadEntry:
        return False
