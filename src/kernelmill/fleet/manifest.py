"""Manifests: which entries of a kernel store a model needs, for each ISA.

JSON with a format number, kept in the shared store under `manifest.NAME`, and signed as all that is
there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from kernelmill.core.errors import StoreError
from kernelmill.store.entry import NAME as ENTRY_NAME

PREFIX = "manifest."
_FORMAT = 1


@dataclass(frozen=True)
class Manifest:
    """`entries` are names of entries by the text of the ISA that the model was compiled for.
    `version` is that of the kernelmill that wrote it."""

    model: str
    version: str
    entries: Mapping[str, tuple[str, ...]]

    def text(self) -> bytes:
        """As it is kept."""
        document = {
            "format": _FORMAT,
            "model": self.model,
            "version": self.version,
            "entries": {isa: list(names) for isa, names in sorted(self.entries.items())},
        }
        return json.dumps(document, indent=1).encode()

    def merged(self, newer: Manifest) -> Manifest:
        """This with what a newer one says of the ISAs that it has."""
        return Manifest(newer.model, newer.version, {**self.entries, **newer.entries})


def read_manifest(text: bytes, where: str) -> Manifest:
    """The manifest that `text` gave these bytes. StoreError for others."""
    try:
        document = json.loads(text)
        if document["format"] != _FORMAT:
            raise StoreError(
                f"{where}: format {document['format']} is not {_FORMAT}; precompile the model with "
                "this version of kernelmill"
            )
        entries = {str(isa): tuple(map(str, names)) for isa, names in document["entries"].items()}
        manifest = Manifest(str(document["model"]), str(document["version"]), entries)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{where} is no manifest: {error}") from None
    for name in (name for names in entries.values() for name in names):
        if not ENTRY_NAME.fullmatch(name):
            raise StoreError(f"{where} is no manifest: {name!r} is no entry of a store")
    return manifest
