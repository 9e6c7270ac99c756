"""Entries, compiled kernels as files: three files, and the checks that make them trustworthy.

    {Type}_{digest}.o       the ELF object
    {Type}_{digest}.info    the identity of the operator, with the ingredients of its key
    {Type}_{digest}.json    the data of a launch; written last, it vouches for the other two

The chain of checks: the last field of the .json is a SHA-256 of all bytes before it, the .json
holds the SHA-256 of the .o and of the .info, and it names its entry. So a flipped bit anywhere, and
a file of another entry, are noticed before use. The layout of the fields follows MindSpore's
kernel_meta folder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any, cast

from kernelmill.core.dataclass import dataclass
from kernelmill.core.digest import DIGEST_BYTES, Key, sha256

SUFFIXES = (".o", ".info", ".json")
"""Suffixes of an entry's files, in the order of writing."""

ADDED = ("binFileName", "binFileSuffix", "sha256", "infoSha256", "checksum")
"""Fields of the launch document that the store adds."""

_TYPE = re.compile(r"[A-Za-z0-9_]{1,120}")
NAME = re.compile(rf"[A-Za-z0-9_]{{1,120}}_[0-9a-f]{{{2 * DIGEST_BYTES}}}")
_SEAL = re.compile(rb',\n  "checksum": "([0-9a-f]{64})"\n}\n')
_SEAL_BYTES = len(',\n  "checksum": "') + 64 + len('"\n}\n')


class BadEntry(Exception):
    """An entry whose files do not fit together; the text names the file and the fault."""


@dataclass(frozen=True)
class NewEntry:
    """The result of a compile, for the store.

    `info` and `launch` are JSON-able documents: the identity of the operator, and the data of its
    launch. The store adds its own fields to both (see `encode`).
    """

    object: bytes
    info: Mapping[str, Any]
    launch: Mapping[str, Any]


@dataclass(frozen=True)
class Entry:
    """A compiled kernel, checked.

    `launch` is the .json document. `source` is "folder" (found), "compiled" (just now),
    "remote" (fetched from the remote store), "package NAME" (installed static kernels), or
    "memory" (compiled earlier by this process, which could not write it).
    """

    name: str
    object: bytes
    launch: dict[str, Any]
    info_text: bytes
    source: str = "folder"

    @cached_property
    def info(self) -> dict[str, Any]:
        """The .info document."""
        return json.loads(self.info_text)

    @cached_property
    def key(self) -> Key:
        """The key of the compile. BadEntry if the .info has none."""
        return key_of(self.info_text)


def entry_name(type: str, key: Key) -> str:
    """Return `{Type}_{digest}`. ValueError for a type that does not belong in a file name."""
    if not _TYPE.fullmatch(type):
        raise ValueError(f"operator type {type!r}: letters, digits and '_' only, 120 at most")
    return f"{type}_{key.digest}"


def encode(name: str, key: Key, compiled: NewEntry) -> dict[str, bytes]:
    """Return the three files by suffix, in the order of SUFFIXES.

    Adds "ingredients" to the info; "binFileName", "binFileSuffix", "sha256", "infoSha256" and
    "checksum" to the launch document.
    """
    info = {**compiled.info, "ingredients": dict(key.ingredients)}
    info_text = json.dumps(info, sort_keys=True, ensure_ascii=False).encode() + b"\n"
    launch = {
        **compiled.launch,
        "binFileName": name,
        "binFileSuffix": ".o",
        "sha256": sha256(compiled.object),
        "infoSha256": sha256(info_text),
    }
    body = json.dumps(launch, sort_keys=True, indent=2).encode().removesuffix(b"\n}")
    sealed = body + f',\n  "checksum": "{sha256(body)}"\n}}\n'.encode()
    return {".o": compiled.object, ".info": info_text, ".json": sealed}


def decode(name: str, files: Mapping[str, bytes], source: str = "folder") -> Entry:
    """Check the three files against each other. BadEntry names the bad file and the fault."""
    sealed = files[".json"]
    body, seal = sealed[:-_SEAL_BYTES], _SEAL.fullmatch(sealed[-_SEAL_BYTES:])
    if seal is None or seal[1].decode() != sha256(body):
        raise BadEntry(f"{name}.json is damaged: its checksum does not match")
    launch = cast(dict[str, Any], json.loads(sealed))
    if launch.get("binFileName") != name:
        raise BadEntry(f"{name}.json belongs to {launch.get('binFileName')}")
    for suffix, field in ((".info", "infoSha256"), (".o", "sha256")):
        if sha256(files[suffix]) != launch.get(field):
            raise BadEntry(f"{name}{suffix} is damaged: {field} in the .json does not match")
    return Entry(name, files[".o"], launch, files[".info"], source)


def key_of(info_text: bytes) -> Key:
    """Return the key in an .info document. BadEntry if it has none."""
    try:
        ingredients = json.loads(info_text)["ingredients"]
        return Key.of({str(name): str(value) for name, value in ingredients.items()})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadEntry(f"no ingredients in the .info: {error}") from error
