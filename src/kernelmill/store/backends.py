"""Backends of a remote store: a Redis server, or files behind any URL of fsspec.

Values are bytes under names. All methods may raise any error of the library below; callers handle
them.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Protocol

from kernelmill.core.dataclass import dataclass
from kernelmill.core.knobs import is_redis

_PREFIX = "kernelmill:"
_BATCH = 256
"""Most names in a request."""


@dataclass(frozen=True)
class Stored:
    """A value in a backend: seconds since it was last used (Redis) or written (files)."""

    name: str
    bytes: int
    age: float


class RemoteBackend(Protocol):
    """A key-value store."""

    def read(self, name: str) -> bytes | None:
        """Return the value; None if it is missing."""
        ...

    def read_many(self, names: Sequence[str]) -> dict[str, bytes]:
        """Return the values of the names that exist."""
        ...

    def present(self, names: Sequence[str]) -> set[str]:
        """Return the names that exist."""
        ...

    def write(self, name: str, value: bytes) -> None:
        """Write a value, replacing an old one."""
        ...

    def listing(self) -> Iterator[Stored]:
        """Yield all values that kernelmill keeps in the backend."""
        ...

    def delete(self, names: Sequence[str]) -> None:
        """Remove these; a missing one is no error."""
        ...


def connect(url: str, timeout: float) -> RemoteBackend:
    """Return the backend of a URL; requests to a Redis server time out after `timeout` seconds."""
    return _Redis(url, timeout) if is_redis(url) else _Files(url)


def import_library(url: str) -> None:
    """Import the library for the backend of a URL. ImportError if it is not installed."""
    importlib.import_module("redis" if is_redis(url) else "fsspec.core")


def _batches(names: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(names)
    while batch := list(islice(rest, _BATCH)):
        yield batch


class _Redis:
    """A Redis server. A key of another type than text, written by something else, counts as
    missing: a write replaces it."""

    def __init__(self, url: str, timeout: float) -> None:
        redis: Any = importlib.import_module("redis")
        self._client: Any = redis.Redis.from_url(
            url, socket_timeout=timeout, socket_connect_timeout=timeout
        )

    def read(self, name: str) -> bytes | None:
        return self._client.mget([_PREFIX + name])[0]

    def read_many(self, names: Sequence[str]) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for batch in _batches(names):
            values = self._client.mget([_PREFIX + name for name in batch])
            found.update({n: v for n, v in zip(batch, values, strict=True) if v is not None})
        return found

    def present(self, names: Sequence[str]) -> set[str]:
        found: set[str] = set()
        for batch in _batches(names):
            with self._client.pipeline(transaction=False) as pipeline:
                for name in batch:
                    pipeline.strlen(_PREFIX + name)
                sizes = [_size(answer) for answer in pipeline.execute(raise_on_error=False)]
            found.update(name for name, size in zip(batch, sizes, strict=True) if size)
        return found

    def write(self, name: str, value: bytes) -> None:
        self._client.set(_PREFIX + name, value)

    def listing(self) -> Iterator[Stored]:
        keys = (key.decode() for key in self._client.scan_iter(f"{_PREFIX}*", count=_BATCH))
        for batch in _batches(keys):
            with self._client.pipeline(transaction=False) as pipeline:
                for key in batch:
                    pipeline.strlen(key)
                    pipeline.object("idletime", key)
                answers = pipeline.execute(raise_on_error=False)
            for key, size, idle in zip(batch, answers[::2], answers[1::2], strict=True):
                if isinstance(idle, Exception):
                    raise idle
                yield Stored(key.removeprefix(_PREFIX), _size(size), float(idle or 0))

    def delete(self, names: Sequence[str]) -> None:
        for batch in _batches(names):
            self._client.delete(*[_PREFIX + name for name in batch])


def _size(answer: Any) -> int:
    """Return the size from an answer to STRLEN."""
    if not isinstance(answer, Exception):
        return answer
    if str(answer).startswith("WRONGTYPE"):
        return 0
    raise answer


class _Files:
    def __init__(self, url: str) -> None:
        core: Any = importlib.import_module("fsspec.core")
        # A cached listing must not hide later writes of another host.
        self._files, root = core.url_to_fs(url, use_listings_cache=False)
        self._root = str(root).rstrip("/")

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def read(self, name: str) -> bytes | None:
        try:
            return self._files.cat_file(self._path(name))
        except FileNotFoundError:
            return None

    def read_many(self, names: Sequence[str]) -> dict[str, bytes]:
        """Read in parallel where the file system can."""
        found: dict[str, bytes] = {}
        for batch in _batches(names):
            paths = {self._path(name): name for name in batch}
            values: Mapping[str, Any] = self._files.cat(list(paths), on_error="return")
            for path, value in values.items():
                if isinstance(value, FileNotFoundError):
                    continue
                if isinstance(value, Exception):
                    raise value
                found[paths[path]] = value
        return found

    def present(self, names: Sequence[str]) -> set[str]:
        wanted = set(names)
        return {entry.name for entry in self.listing() if entry.name in wanted}

    def write(self, name: str, value: bytes) -> None:
        self._files.makedirs(self._root, exist_ok=True)
        # A reader may see half of it, which the checksums reveal.
        self._files.pipe_file(self._path(name), value)

    def listing(self) -> Iterator[Stored]:
        try:
            entries = self._files.ls(self._root, detail=True)
        except FileNotFoundError:
            return
        for entry in entries:
            if entry["type"] == "file":
                name = str(entry["name"]).rpartition("/")[2]
                yield Stored(name, entry["size"], time.time() - self._written(entry))

    def _written(self, entry: Mapping[str, Any]) -> float:
        """Return the time of writing, in seconds since the epoch, whose field differs by system."""
        for field in ("mtime", "LastModified", "last_modified", "updated", "created"):
            value = entry.get(field)
            if isinstance(value, (int, float)):
                return float(value)
            if isinstance(value, datetime):
                return value.timestamp()
        return self._files.modified(entry["name"]).timestamp()

    def delete(self, names: Sequence[str]) -> None:
        there = self.present(names)
        if there:
            self._files.rm([self._path(name) for name in sorted(there)])
