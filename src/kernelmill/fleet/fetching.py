"""The entries of a model, in one batch: from a shared store to a folder, and to an archive.

Importing this loads neither torch nor the compiler.
"""

from __future__ import annotations

import errno
import os

from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import ConfigError, DeniedFileError, StoreError, file_errors
from kernelmill.core.log import get_logger
from kernelmill.core.target.isa import Isa, named_isa
from kernelmill.fleet.manifest import FolderManifests, SharedManifests
from kernelmill.store.entry import BadEntry
from kernelmill.store.folder import Folder
from kernelmill.store.shared import SharedStore, open_shared
from kernelmill.store.store import Store, default_folders
from kernelmill.store.upkeep import export_archive

_log = get_logger("fleet")


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

    Raises StoreError when there is no such manifest, or the store does not serve; ConfigError
    without a store or its key; FileError when the folder cannot be written.
    """
    shared = _shared(store)
    manifest = SharedManifests(shared).needed(model, _isa(target))
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
    names = FolderManifests(kernels).needed(model, _isa(target)).entries
    missing = [name for name in names if not _is_good(kernels, name)]
    if missing:
        raise StoreError(
            f"{kernels.path} lacks {len(missing)} entries of {model!r}, {missing[0]} for one; "
            "precompile it again"
        )
    with file_errors(archive):
        return export_archive(kernels.path, os.fspath(archive), names)


def _shared(url: str | None) -> SharedStore:
    shared = open_shared(url)
    if shared is None:
        raise ConfigError("there is no shared store: give its URL, or set KERNELMILL_REMOTE")
    return shared


def _isa(target: str) -> Isa:
    try:
        return named_isa(target)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _is_good(folder: Folder, name: str) -> bool:
    try:
        return folder.load(name) is not None
    except BadEntry:
        return False
