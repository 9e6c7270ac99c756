"""Where manifests are kept: in a shared store, and beside the kernels of a folder."""

from __future__ import annotations

from difflib import get_close_matches

from kernelmill.core.errors import StoreError
from kernelmill.core.isa import Isa
from kernelmill.fleet.manifest import PREFIX, Manifest, read_manifest
from kernelmill.store.entry import BadEntry
from kernelmill.store.folder import Folder
from kernelmill.store.shared import SharedStore

_SUFFIX = ".list"


def keep_manifest(folder: Folder, manifest: Manifest) -> None:
    """Beside the kernels of a folder. OSError when that cannot be written."""
    folder.save(f"{PREFIX}{manifest.model}", {_SUFFIX: manifest.text()})


def own_manifest(folder: Folder, model: str) -> Manifest | None:
    """The manifest beside the kernels of a folder; None when there is none that is whole."""
    name = f"{PREFIX}{model}{_SUFFIX}"
    try:
        text = folder.read(name)
        return None if text is None else read_manifest(text, f"{folder.path}/{name}")
    except (BadEntry, StoreError):
        return None


def shared_manifest(shared: SharedStore, model: str) -> Manifest | None:
    """The manifest in a shared store; None when there is none. StoreError for one that is not
    signed or damaged."""
    text = shared.document(f"{PREFIX}{model}")
    return None if text is None else read_manifest(text, f"{shared.shown}: {PREFIX}{model}")


def needed(manifest: Manifest, isa: Isa) -> tuple[str, ...]:
    """The names of the entries for an ISA. StoreError when the model was not compiled for it."""
    names = manifest.entries.get(str(isa))
    if names is None:
        have = "; ".join(sorted(manifest.entries))
        raise StoreError(
            f"{manifest.model} was not precompiled for {isa}, but for: {have}. Add this target to "
            "its job, or pull for one of those with --target"
        )
    return names


def no_manifest(model: str, there: list[str], where: str) -> StoreError:
    """The error for a model that a store knows nothing of."""
    near = get_close_matches(model, there, 1)
    known = f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(there) or 'none'}"
    return StoreError(f"{where} has no manifest of {model!r}{known}")
