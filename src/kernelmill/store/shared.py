"""A store shared by hosts, for work in batches: filling it, fetching a model's kernels, cleaning.

The values are those that `Remote` reads one by one during compiles. Here a request may take
seconds, is tried again, and ends in an error: who fills a store has to know whether it is full.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from kernelmill.core import knobs
from kernelmill.core.errors import ConfigError, StoreError
from kernelmill.core.log import get_logger
from kernelmill.core.urls import check_url, without_password
from kernelmill.store import backends
from kernelmill.store.backends import Backend, Stored
from kernelmill.store.entry import BadEntry, Entry, decode
from kernelmill.store.remote import pack, sign, unpack, verified
from kernelmill.store.upkeep import check

TIMEOUT_SECONDS = 10.0
ATTEMPTS = 3
_PAUSE_SECONDS = 0.5
"""Pause before the second attempt; twice that before the third."""

_log = get_logger("store")
Result = TypeVar("Result")


class SharedStore:
    """The store at `url`, whose values are signed with `key`. Connects at the first request.

    All methods raise StoreError, which names the URL without its password, when the store does not
    serve after `ATTEMPTS` attempts. Safe to use from several threads.
    """

    def __init__(self, url: str, key: bytes) -> None:
        self.url, self._key = url, key
        self.shown = without_password(url)
        try:
            backends.import_library(url)
        except ImportError as error:
            raise StoreError(f"{self.shown}: {error}: pip install 'kernelmill[remote]'") from None
        self._backend: Backend | None = None
        self._warned = False

    # ---- entries ----------------------------------------------------------------------------

    def present(self, names: Sequence[str]) -> set[str]:
        """Return the names that have a value, good or not."""
        return self._ask(lambda backend: backend.present(names))

    def fetch(self, names: Sequence[str]) -> Iterator[tuple[Entry, dict[str, bytes]]]:
        """Yield the good entries among the names, with their files. A bad one counts as missing,
        with one warning."""
        values = self._ask(lambda backend: backend.read_many(names))
        for name, value in values.items():
            try:
                files = unpack(verified(self._key, name, value))
                entry = decode(name, files, "remote")
                check(entry)
            except (BadEntry, ValueError) as bad:
                self._tell_bad(str(bad))
                continue
            yield entry, files

    def keep(self, name: str, files: Mapping[str, bytes]) -> None:
        """Write an entry."""
        value = sign(self._key, name, pack(files))
        self._ask(lambda backend: backend.write(name, value))

    # ---- documents and upkeep ---------------------------------------------------------------

    def document(self, name: str) -> bytes | None:
        """Return the text given to `keep_document` under the name. StoreError if not signed."""
        value = self._ask(lambda backend: backend.read(name))
        if value is None:
            return None
        try:
            return verified(self._key, name, value)
        except BadEntry as bad:
            raise StoreError(f"{self.shown}: {bad}") from None

    def keep_document(self, name: str, text: bytes) -> None:
        """Write a document that is no entry."""
        value = sign(self._key, name, text)
        self._ask(lambda backend: backend.write(name, value))

    def listing(self) -> list[Stored]:
        """Return all values of the store."""
        return self._ask(lambda backend: list(backend.listing()))

    def delete(self, names: Iterable[str]) -> None:
        """Remove values."""
        doomed = list(names)
        self._ask(lambda backend: backend.delete(doomed))

    # ---- asking -----------------------------------------------------------------------------

    def _ask(self, request: Callable[[Backend], Result]) -> Result:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                if self._backend is None:
                    self._backend = backends.connect(self.url, TIMEOUT_SECONDS)
                return request(self._backend)
            except Exception as error:
                if attempt == ATTEMPTS:
                    raise StoreError(
                        f"the shared store {self.shown} does not serve "
                        f"({type(error).__name__}: {_shown(error, self.url, self.shown)})"
                    ) from error
                _log.info("%s: attempt %d: %s", self.shown, attempt, type(error).__name__)
                time.sleep(_PAUSE_SECONDS * 2 ** (attempt - 1))
        raise AssertionError  # the last attempt returns or raises

    def _tell_bad(self, text: str) -> None:
        if self._warned:
            _log.info("%s: %s", self.shown, text)
        else:
            self._warned = True
            _log.warning("%s: %s; taken for missing", self.shown, text)


def open_shared(url: str | None = None) -> SharedStore | None:
    """Return the store at a URL, or at KERNELMILL_REMOTE; None when neither is given. ConfigError
    without KERNELMILL_REMOTE_KEY, or for an invalid URL."""
    if url:
        try:
            check_url(url)
        except ValueError as error:
            raise ConfigError(f"the shared store {without_password(url)}: {error}") from error
    url = url or knobs.REMOTE.get()
    if not url:
        return None
    key = knobs.REMOTE_KEY.get()
    if not key:
        raise ConfigError(
            f"the shared store {without_password(url)} needs KERNELMILL_REMOTE_KEY: without it "
            "nobody can tell who wrote what is there"
        )
    return SharedStore(url, key)


def _shown(error: Exception, url: str, shown: str) -> str:
    return str(error).replace(url, shown)
