"""Entries on disk: the files of one, and the checks that make them worth trusting.

    {digest}.plan         the plans as text, one behind the other
    {digest}.graph        the graphs as text
    {digest}.kernels      a JSON list of kernels: name, type, text of the kernel IR, ISA
    {digest}.constants    bytes of tensors that the traced code held
    {digest}.executor     the object of the native executor, so that a load needs no LLVM
    {digest}.json         the manifest, with the SHA-256 of the others; written last

As in the store of kernels the last file vouches for the others, and its own checksum for itself:
without it there is no entry. `digest` is over the manifest and the texts.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kernelmill.artifact.manifest import Manifest, read_manifest
from kernelmill.core.digest import DIGEST_BYTES, sha256
from kernelmill.core.errors import StoreError
from kernelmill.core.log import get_logger
from kernelmill.store.entry import BadEntry
from kernelmill.store.folder import Folder

PARTS = (".plan", ".graph", ".kernels", ".constants", ".executor")
DRIVER = "driver"
_NAME = re.compile(rf"[0-9a-f]{{{2 * DIGEST_BYTES}}}\.json")
_log = get_logger("artifact")


@dataclass(frozen=True)
class SavedKernel:
    """A kernel as text, in the grammar of kernel/ir.py without its name; or what computes the sizes
    of plan N (name "dimsN"), or the driver of its super kernel S ("driverN S"), in words of their
    own. `isa` is given where it is not the one of all others."""

    name: str
    type: str
    text: str
    isa: str = ""

    @property
    def ingredient(self) -> str:
        """What its text is in the key of its object."""
        if self.type == "Dims":
            return "dims"
        return "driver" if self.name.startswith(DRIVER) else "kernel"


@dataclass(frozen=True)
class Saved:
    """An entry: its manifest and its texts, and under which name it was read."""

    manifest: Manifest
    plans: str
    graphs: str
    kernels: tuple[SavedKernel, ...]
    constants: bytes = b""
    executor: bytes = b""
    read_as: str = ""

    @cached_property
    def name(self) -> str:
        """The digest that is its file name."""
        if self.read_as:
            return self.read_as
        state = hashlib.blake2b(digest_size=DIGEST_BYTES)
        for data in (self.manifest.text().encode(), *self._parts().values()):
            state.update(len(data).to_bytes(8, "little"))
            state.update(data)
        return state.hexdigest()

    def _parts(self) -> dict[str, bytes]:
        kernels = [[k.name, k.type, k.text, k.isa] for k in self.kernels]
        texts = (self.plans.encode(), self.graphs.encode(), json.dumps(kernels).encode())
        return dict(zip(PARTS, (*texts, self.constants, self.executor), strict=True))

    def files(self) -> dict[str, bytes]:
        """The files by suffix, in the order in which they are to be written."""
        parts = self._parts()
        sums = {suffix: sha256(data) for suffix, data in parts.items()}
        body = json.dumps({"entry": self.name, "files": sums}) + "\n" + self.manifest.text() + "\n"
        return {**parts, ".json": f"{sha256(body.encode())}\n{body}".encode()}


def save(folder: Folder, saved: Saved) -> None:
    """Publish an entry in one step. OSError when the folder cannot be written."""
    folder.save(saved.name, saved.files())


def names(folder: Folder) -> list[str]:
    """The entries in a folder, last used first."""
    found = [name for name in folder.files() if _NAME.fullmatch(name)]
    times = {name: status.st_mtime_ns for name in found if (status := folder.status(name))}
    return [name.removesuffix(".json") for name in sorted(times, key=lambda n: -times[n])]


def entries(folder: Folder) -> Iterator[Saved]:
    """All good entries, last used first. A damaged one is set aside with a warning.

    StoreError for files that others could have written.
    """
    for name in names(folder):
        try:
            found = load(folder, name)
        except BadEntry as bad:
            _log.warning("%s: %s; set aside and made again when needed", folder.path, bad)
            set_aside(folder, name)
            continue
        if found is not None:
            yield found


def load(folder: Folder, name: str) -> Saved | None:
    """An entry, checked; None when it is gone. BadEntry says what is wrong with which file."""
    sealed = folder.read(f"{name}.json")
    if sealed is None:
        return None
    seal, _, body = sealed.partition(b"\n")
    if seal.decode("ascii", "replace") != sha256(body):
        raise BadEntry(f"{name}.json is damaged: its checksum does not match")
    head, _, manifest = body.partition(b"\n")
    header: Mapping[str, Any] = json.loads(head)
    if header["entry"] != name:
        raise BadEntry(f"{name}.json belongs to {header['entry']}")
    parts: dict[str, bytes] = {}
    for suffix in PARTS:
        data = folder.read(f"{name}{suffix}")
        if data is None or sha256(data) != header["files"].get(suffix):
            raise BadEntry(f"{name}{suffix} is {'missing' if data is None else 'damaged'}")
        parts[suffix] = data
    try:
        kernels = tuple(SavedKernel(*kernel) for kernel in json.loads(parts[".kernels"]))
        return Saved(
            read_manifest(manifest),
            parts[".plan"].decode(),
            parts[".graph"].decode(),
            kernels,
            parts[".constants"],
            parts[".executor"],
            name,
        )
    except (StoreError, TypeError, ValueError) as error:
        raise BadEntry(f"{name}: {error}") from error


def set_aside(folder: Folder, name: str) -> None:
    """Rename the files of a bad entry, where nothing looks but a person."""
    folder.set_aside(name, (*PARTS, ".json"))


def remove(folder: Folder, name: str) -> None:
    """Remove an entry."""
    folder.remove(name, (*PARTS, ".json"))
