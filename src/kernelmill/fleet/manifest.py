"""Manifests: the entries of a kernel store that a model needs, for one ISA and by one compiler.

JSON with a format number, stored in the shared store under `manifest.MODEL@DIGEST` with a digest of
the ISA and the compiler, and signed as everything there. Versions of kernelmill that share a store
thus have separate manifests, and none waits for or overwrites another's.
"""

from __future__ import annotations

import json
import time
from dataclasses import field
from functools import cache
from hashlib import blake2b
from importlib.metadata import version

from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import StoreError
from kernelmill.core.generator import GENERATOR_VERSION
from kernelmill.core.version import ABI_VERSION, VERSION
from kernelmill.store.entry import NAME as ENTRY_NAME

PREFIX = "manifest."
FORMAT = 2
_AT = "@"
"""Separator of model and digest: no name of a job has one."""


@dataclass(frozen=True)
class Manifest:
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
        document = {
            "format": FORMAT,
            "model": self.model,
            "compiler": self.compiler,
            "isa": self.isa,
            "written": self.written,
            "entries": list(self.entries),
        }
        return json.dumps(document, indent=1).encode()


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


def read_manifest(text: bytes, where: str) -> Manifest:
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
        manifest = Manifest(model, compiler, isa, names, float(document["written"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{where} is no manifest: {error}") from None
    for name in manifest.entries:
        if not ENTRY_NAME.fullmatch(name):
            raise StoreError(f"{where} is no manifest: {name!r} is no entry of a store")
    return manifest
