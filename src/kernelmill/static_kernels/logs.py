"""Logs of operators and their choices. Importing this loads neither torch nor the compiler."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernelmill.codegen import key_of
from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import ConfigError, KernelmillError, file_errors
from kernelmill.core.log import get_logger
from kernelmill.core.target.machine import profile
from kernelmill.store.store import open_store

_log = get_logger("static_kernels")


@dataclass(frozen=True)
class Built:
    """Result of work on a log.

    operators  distinct ones in it
    compiled   those without a known choice before
    failures   (operator, reason) of those that got no static kernel
    path       of the package, "" if none was requested
    """

    operators: int
    compiled: int
    failures: tuple[tuple[str, str], ...]
    path: str = ""


def known_operators(path: str, target: str, folder: str | None) -> int | None:
    """Return the number of operators in a log if all have a known choice and it has nothing else;
    else None. KernelmillError for a file that is no log. An operator's text in a document is the
    ingredient of its choice's key."""
    texts: set[str] = set()
    for document in documents(path):
        text = document.get("graph")
        if isinstance(text, str):
            texts.add(text)
        elif "aten" not in document:
            return None
    try:
        processor = profile(target)
    except ConfigError:
        return None
    store = open_store(folder)
    keys = (key_of(processor.isa, operator=text, machine=processor.caches) for text in texts)
    return len(texts) if all(store.get(key, "Choice") is not None for key in keys) else None


def documents(path: str) -> Iterator[dict[str, Any]]:
    """Yield the documents of a log, or of all .json files in a folder. Raises KernelmillError."""
    if os.path.isdir(path):
        files = sorted(Path(path).rglob("*.json"))
        if not files:
            raise KernelmillError(f"{path} has no documents of operators: no .json file is in it")
        for file in files:
            with file_errors(file):
                text = file.read_bytes()
            yield _document(text, str(file))
        return
    with file_errors(path):
        lines = Path(path).read_bytes().splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        whole = line.endswith(b"}\n")
        if not whole and line.startswith(b"{"):
            _log.warning("%s:%d was not written to its end and is left out", path, number)
        else:
            yield _document(line, f"{path}:{number}")


def _document(text: bytes, where: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise KernelmillError(f"{where}: no operator's document: {error}") from None
    if not isinstance(document, dict):
        raise KernelmillError(f"{where}: no operator's document")
    return document
