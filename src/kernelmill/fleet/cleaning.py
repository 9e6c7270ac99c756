"""Cleaning a shared store: what no manifest names and nobody has used for long is removed."""

from __future__ import annotations

from dataclasses import dataclass

from kernelmill.core.errors import StoreError
from kernelmill.core.log import get_logger
from kernelmill.fleet.manifest import PREFIX
from kernelmill.fleet.manifests import shared_manifest
from kernelmill.store.shared import SharedStore

_log = get_logger("fleet")


@dataclass(frozen=True)
class Cleaned:
    """What `clean` did: entries and manifests removed, their bytes, and entries that stay."""

    removed: int
    manifests: int
    bytes: int
    left: int


def clean(
    shared: SharedStore, seconds: float, manifest_seconds: float | None = None, dry: bool = False
) -> Cleaned:
    """Remove entries that no manifest names and that are older than `seconds`: since their last use
    on a Redis server, since they were written elsewhere.

    Manifests older than `manifest_seconds` are removed first, if that is given. With `dry` nothing
    is removed, only counted. StoreError when the store does not serve, or a manifest cannot be
    read: then nothing is known of what it names.
    """
    stored = shared.listing()
    doomed = [
        one
        for one in stored
        if one.name.startswith(PREFIX)
        and manifest_seconds is not None
        and one.age > manifest_seconds
    ]
    gone = {one.name for one in doomed}
    named: set[str] = set()
    for one in stored:
        if one.name.startswith(PREFIX) and one.name not in gone:
            manifest = shared_manifest(shared, one.name.removeprefix(PREFIX))
            if manifest is None:
                raise StoreError(f"{shared.shown}: {one.name} went while it was looked at")
            named.update(name for names in manifest.entries.values() for name in names)
    entries = [one for one in stored if not one.name.startswith(PREFIX)]
    unused = [one for one in entries if one.name not in named and one.age > seconds]
    if not dry:
        shared.delete([one.name for one in (*doomed, *unused)])
    removed = sum(one.bytes for one in (*doomed, *unused))
    return Cleaned(len(unused), len(doomed), removed, len(entries) - len(unused))
