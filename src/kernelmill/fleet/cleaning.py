"""Cleaning of a shared store: entries in no manifest that are long unused are removed."""

from __future__ import annotations

import time

from kernelmill.core.dataclass import dataclass
from kernelmill.core.log import get_logger
from kernelmill.fleet.manifest import PREFIX
from kernelmill.fleet.manifests import SharedManifests
from kernelmill.store.backends import Stored
from kernelmill.store.shared import SharedStore

_log = get_logger("fleet")


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
    `dry` nothing is removed, only counted. StoreError when the store does not serve, or a manifest
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
