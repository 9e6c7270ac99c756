"""The file of a saved program: one sealed file (store/sealed.py), `*.kmill`, of these sections.

    manifest    JSON, see manifest.py
    plan        the plans as text, one after the other
    graph       the graphs as text
    kernels     JSON: [name, type, text, ISA if it differs from the common one] for each kernel
    objects     machine code that the file brings, one object after the other
    weights     the bytes of its tensors
    packed      weights in the layouts of the kernels

A file of `kernelmill.aot.compile` has machine code and weights. An entry of the compile cache has
guards instead: its weights are the model's, and its machine code is in the kernel store. It only
has the machine code of the native executor, so that a load needs no LLVM, and with `ge_cache` all.
Entries are named after the digest of their file. Reading one needs no torch.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field, replace
from itertools import accumulate
from typing import Any

from kernelmill.artifact.manifest import UNFIT, Manifest, maker, read_manifest
from kernelmill.core.dataclass import dataclass
from kernelmill.core.digest import DIGEST_BYTES, digest_of
from kernelmill.core.errors import KernelmillError, StoreError
from kernelmill.core.log import get_logger
from kernelmill.store.folder import Folder
from kernelmill.store.sealed import Damaged, FileKind, Pieces, SealedFile, sealed_pieces

SECTIONS = ("manifest", "plan", "graph", "kernels", "objects", "weights", "packed")
KMILL = FileKind(b"kernelmill program\n", "copy it again, or compile it again", SECTIONS)
SUFFIX = ".kmill"
DRIVER, DIMS = "driver", "dims"

_NAME = re.compile(rf"[0-9a-f]{{{2 * DIGEST_BYTES}}}{re.escape(SUFFIX)}")
_log = get_logger("artifact")


@dataclass(frozen=True)
class SavedKernel:
    """A kernel as text, in the grammar of kernel/ir.py without its name; or the code that computes
    sizes of plan N (name "dimsN") or drives its super kernel S ("driverN S"), in its own format.
    `isa` is set if it differs from the common one."""

    name: str
    type: str
    text: str
    isa: str = ""

    @property
    def ingredient(self) -> str:
        """Role of the text in the key of its object: dims, driver or kernel."""
        if self.type == "Dims":
            return "dims"
        return "driver" if self.name.startswith(DRIVER) else "kernel"


@dataclass(frozen=True)
class Artifact:
    """A saved program. `objects` is machine code by kernel names; `tensors` and `pieces` (the
    sections weights and packed) are those of a new one, others have them in `file`."""

    manifest: Manifest
    plans: str
    graphs: str
    kernels: tuple[SavedKernel, ...]
    objects: Mapping[str, bytes]
    tensors: Sequence[Any] = ()
    pieces: Mapping[str, Pieces] = field(default_factory=dict[str, Pieces])
    file: SealedFile | None = None

    def sections(self) -> dict[str, Pieces]:
        """Return the contents of the file by section."""
        kernels = [[k.name, k.type, k.text, k.isa] for k in self.kernels]
        sizes = [len(image) for image in self.objects.values()]
        table = tuple(zip(self.objects, [0, *accumulate(sizes)], sizes, strict=False))
        return {
            "manifest": [replace(self.manifest, objects=table).text().encode()],
            "plan": [self.plans.encode()],
            "graph": [self.graphs.encode()],
            "kernels": [json.dumps(kernels).encode()],
            "objects": list(self.objects.values()),
            "weights": self.pieces.get("weights", ()),
            "packed": self.pieces.get("packed", ()),
        }


def read_artifact(file: SealedFile, check_weights: bool = True) -> Artifact:
    """Read and check a file; `check_weights` says whether the weights are checked too.

    Damaged (a StoreError) when it was changed, or is of another format.
    """
    with used(file):
        manifest = read_manifest(file.text("manifest"))
        rows = maker(tuple[tuple[str, str, str, str], ...], {})(json.loads(file.text("kernels")))
        images = file.section("objects")
        objects = {n: bytes(_part(images, o, size)) for n, o, size in manifest.objects}
        file.section("weights", check_weights)
        packed = file.section("packed", check_weights)
        for offset, size in (place for each in manifest.packed for place in each.places):
            _part(packed, offset, size)
        texts = file.text("plan"), file.text("graph")
    kernels = tuple([SavedKernel(*row) for row in rows])
    return Artifact(manifest, *texts, kernels, objects, file=file)


@contextmanager
def used(file: SealedFile | None) -> Generator[None]:
    """Raise errors of the first use of a file's contents as Damaged, as its parts do not fit
    together. Without a file, errors pass unchanged."""
    try:
        yield
    except (StoreError, *UNFIT) as error:
        if file is None or (isinstance(error, KernelmillError) and type(error) is not StoreError):
            raise
        said = error if isinstance(error, StoreError) else repr(error)
        raise Damaged(f"{file.path}: {said}; {file.kind.remedy}") from error


def _part(section: memoryview, offset: int, size: int) -> memoryview:
    if not 0 <= offset <= offset + size <= len(section):
        raise StoreError(f"{size} bytes at {offset} are outside of a section of {len(section)}")
    return section[offset : offset + size]


# ---- entries of the compile cache ---------------------------------------------------------------


def save(folder: Folder, artifact: Artifact) -> str:
    """Publish an entry atomically; return its name. OSError when the folder is not writable."""
    data = b"".join(sealed_pieces(KMILL, artifact.sections()))
    name = digest_of(data)
    folder.save(name, {SUFFIX: data})
    return name


def names(folder: Folder) -> list[str]:
    """Return the names of the entries in a folder, last used first."""
    found = [name for name in folder.files() if _NAME.fullmatch(name)]
    times = {name: status.st_mtime_ns for name in found if (status := folder.status(name))}
    return [name.removesuffix(SUFFIX) for name in sorted(times, key=lambda n: -times[n])]


def entries(folder: Folder) -> Iterator[tuple[str, Artifact]]:
    """Yield all valid entries, last used first. A damaged one is set aside with a warning; one that
    cannot be read at the moment is left out.

    StoreError for files that others could have written.
    """
    try:
        there = names(folder)
    except OSError as error:
        _log.info("%s cannot be read now (%s)", folder.path, error.strerror)
        return
    for name in there:
        try:
            found = load(folder, name)
        except Damaged as bad:
            _log.warning("%s; set aside and made again when needed", bad)
            with suppress(OSError):
                folder.set_aside(name, (SUFFIX,))
            continue
        except OSError as error:
            _log.info("%s/%s cannot be read now (%s)", folder.path, name, error.strerror)
            continue
        if found is not None:
            yield name, found


def load(folder: Folder, name: str) -> Artifact | None:
    """Return a checked entry; None when it is gone or refused. Damaged names the defect; OSError
    when it cannot be read at the moment."""
    path = os.path.join(folder.path, f"{name}{SUFFIX}")
    try:
        descriptor = folder.open_plain(f"{name}{SUFFIX}")
        return read_artifact(SealedFile(path, KMILL, writable=True, descriptor=descriptor))
    except FileNotFoundError:
        return None
    except Damaged:
        raise
    except StoreError as error:
        folder.refuse(error)
    return None
