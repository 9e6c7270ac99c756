"""Manifests: which entries of a kernel store a model needs, for one ISA and by one compiler.

JSON with a format number, kept in the shared store under `manifest.MODEL@DIGEST` with a digest of
the ISA and the compiler, and signed as all that is there. Versions of kernelmill that share a store
so have manifests beside each other, and none waits for or writes over another's.
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
"""Between model and digest: no name of a job has one."""


@dataclass(frozen=True)
class Manifest:
    """`isa` is the text of the ISA that the model was compiled for, `compiler` that of what
    compiled it, `entries` the names of entries, `written` when, in seconds since the epoch."""

    model: str
    compiler: str
    isa: str
    entries: tuple[str, ...]
    written: float = field(default_factory=time.time)

    @property
    def name(self) -> str:
        """Under which it is kept."""
        return manifest_name(self.model, self.compiler, self.isa)

    def text(self) -> bytes:
        """As it is kept."""
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
    """What decides which entries a model needs here, besides its ISA. Asking does not load LLVM."""
    return (
        f"kernelmill {VERSION}, generator {GENERATOR_VERSION}, ABI {ABI_VERSION}, "
        f"llvmlite {version('llvmlite')}"
    )


def manifest_name(model: str, compiler: str, isa: str) -> str:
    """Under which the manifest of a model is kept."""
    digest = blake2b(f"{compiler}\n{isa}".encode(), digest_size=6).hexdigest()
    return f"{PREFIX}{model}{_AT}{digest}"


def model_of(name: str) -> str:
    """The model of a manifest's name."""
    return name.removeprefix(PREFIX).partition(_AT)[0]


def read_manifest(text: bytes, where: str) -> Manifest:
    """The manifest that `text` gave these bytes. StoreError for others."""
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
