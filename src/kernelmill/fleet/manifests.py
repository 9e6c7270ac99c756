"""Storage of manifests: in a shared store, and with the kernels of a folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from difflib import get_close_matches

from kernelmill.core.errors import StoreError, file_errors
from kernelmill.core.target.isa import Isa
from kernelmill.fleet.manifest import (
    PREFIX,
    Manifest,
    manifest_name,
    model_of,
    own_compiler,
    read_manifest,
)
from kernelmill.store.entry import BadEntry
from kernelmill.store.folder import Folder
from kernelmill.store.shared import SharedStore

_SUFFIX = ".list"


class FolderManifests:
    """The manifests with the kernels of a folder."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def keep(self, manifest: Manifest) -> None:
        """Write a manifest. FileError when it cannot be written."""
        with file_errors(self._folder.path):
            self._folder.save(manifest.name, {_SUFFIX: manifest.text()})

    def needed(self, model: str, isa: Isa) -> Manifest:
        """Return a model's manifest. StoreError if it was not compiled for this ISA and version."""
        return _needed(self._read, self._names, model, isa, self._folder.path)

    def _read(self, name: str) -> Manifest | None:
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
    """The manifests in a shared store. All methods raise StoreError when it does not serve."""

    def __init__(self, shared: SharedStore) -> None:
        self._shared = shared

    def keep(self, manifest: Manifest) -> None:
        """Write a manifest, replacing an earlier one."""
        self._shared.keep_document(manifest.name, manifest.text())

    def needed(self, model: str, isa: Isa) -> Manifest:
        """Return a manifest as `FolderManifests` does; StoreError too if unsigned or damaged."""
        return _needed(self.read, self._names, model, isa, self._shared.shown)

    def read(self, name: str) -> Manifest | None:
        """Return the manifest of this name; None when it is missing."""
        text = self._shared.document(name)
        return None if text is None else read_manifest(text, f"{self._shared.shown}: {name}")

    def _names(self) -> list[str]:
        return [one.name for one in self._shared.listing() if one.name.startswith(PREFIX)]


def _needed(
    read: Callable[[str], Manifest | None],
    names: Callable[[], Sequence[str]],
    model: str,
    isa: Isa,
    where: str,
) -> Manifest:
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


def _shown(read: Callable[[str], Manifest | None], name: str) -> str:
    try:
        one = read(name)
    except StoreError as error:
        return str(error)
    if one is None:
        return name
    return one.isa if one.compiler == own_compiler() else f"{one.isa} by {one.compiler}"
