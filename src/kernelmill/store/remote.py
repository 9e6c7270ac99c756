"""A remote store behind the folder: read on a miss, written in the background, with signed
entries.

KERNELMILL_REMOTE names it: `redis://host:port/0` (also rediss:// and unix://), or any URL that
fsspec knows. An entry travels as one value: a line of JSON with the sizes of its three files, then
the files; signed with KERNELMILL_REMOTE_KEY. An entry without this signature counts as missing;
others are checked exactly like a folder's files. Without a key the remote is not used. A process
writes only with KERNELMILL_REMOTE_ACCESS=write.

Every call runs in a thread of this module, with a time-out of 200 ms. A remote that fails or is
slow causes one warning, and is asked again after 0.1 s, after twice that, and so on up to a minute.

Values are signed, since write access to the remote is not enough to run code here:

    kernelmill-signed 1 {HMAC-SHA256, in hexadecimal}
    the value

The code is over the entry's name and the value, with the key that all hosts share, so that a value
is good under its own name only. Source of the code: RFC 2104.

`SharedStore` works in batches: it fills a store, fetches a model's kernels, and cleans. Its values
are those that `Remote` reads one by one during compiles. Its requests may take seconds, are
repeated, and raise errors, since whoever fills a store has to know whether it succeeded.
"""

from __future__ import annotations

import atexit
import hashlib
import hmac
import io
import json
import queue
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TypeVar

from kernelmill.core import knobs
from kernelmill.core.after_fork import RenewedLock, track
from kernelmill.core.errors import ConfigError, StoreError
from kernelmill.core.knobs import check_url, without_password
from kernelmill.core.log import get_logger
from kernelmill.store import backends
from kernelmill.store.backends import RemoteBackend, Stored
from kernelmill.store.entry import SUFFIXES, BadEntry, Entry, decode
from kernelmill.store.folder import FirstWarnings
from kernelmill.store.upkeep import check

FIRST_SECONDS = 0.1
LONGEST_SECONDS = 60.0


class BackOff:
    """Pauses after failures: each twice as long as the one before, up to `LONGEST_SECONDS`.

    Each is cut by up to a half at random, so that machines that failed together do not come back
    together. After a failure one caller at a time may ask; the others do without meanwhile.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._clock, self._chance = clock, chance
        self._held = RenewedLock()
        self._failures = 0
        self._failed = float("-inf")
        self._next = float("-inf")

    @property
    def is_resting(self) -> bool:
        """True while the server must not be asked."""
        return self._clock() < self._next

    def may_ask(self) -> bool:
        """Return whether the caller may ask now; it then has to call `served` or `failed`."""
        with self._held.lock:
            if self.is_resting:
                return False
            if self._failures:
                self._next = self._clock() + pause(self._failures, self._chance())
            return True

    def served(self) -> None:
        """Record that the server answered."""
        with self._held.lock:
            self._failures = 0
            self._next = float("-inf")

    def failed(self, asked: float) -> None:
        """Record that the server did not answer a request made at time `asked` of the clock."""
        with self._held.lock:
            if asked < self._failed:  # asked together with a request whose failure is counted
                return
            self._failures += 1
            self._failed = self._clock()
            self._next = self._failed + pause(self._failures, self._chance())

    def now(self) -> float:
        """Return the time of the clock, for `failed`."""
        return self._clock()


def pause(failures: int, chance: float) -> float:
    """Return the seconds of pause after so many failures in a row; `chance` is from 0 to 1."""
    longest = min(FIRST_SECONDS * 2.0 ** min(failures - 1, 64), LONGEST_SECONDS)
    return longest * (1 - chance / 2)


_MARK = b"kernelmill-signed 1 "
_HEAD_BYTES = len(_MARK) + 2 * hashlib.sha256().digest_size + 1


def sign(key: bytes, name: str, value: bytes) -> bytes:
    """Return the signed value, for the remote to keep under `name`."""
    return _MARK + _code(key, name, value) + b"\n" + value


def verified(key: bytes, name: str, signed: bytes) -> bytes:
    """Return the value that was signed. BadEntry unless it was, with this key and name."""
    head, value = signed[:_HEAD_BYTES], signed[_HEAD_BYTES:]
    if not head.startswith(_MARK):
        raise BadEntry(f"{name} is not signed")
    if not hmac.compare_digest(head, _MARK + _code(key, name, value) + b"\n"):
        raise BadEntry(f"the signature of {name} is not one by the key of KERNELMILL_REMOTE_KEY")
    return value


def _code(key: bytes, name: str, value: bytes) -> bytes:
    state = hmac.new(key, name.encode() + b"\0", hashlib.sha256)
    state.update(value)
    return state.hexdigest().encode()


TIMEOUT_SECONDS = 0.2

_WAITING = 256
"""Most writes waiting for the thread; more are dropped, the next process offers them again."""

_log = get_logger("store")


def connect(url: str) -> RemoteBackend:
    """Return the backend of a URL."""
    return backends.connect(url, TIMEOUT_SECONDS)


class Remote:
    """A backend with two daemon threads: one reads, one writes. `key` is that of all signatures;
    without `writes`, `write` does nothing."""

    def __init__(
        self, url: str, key: bytes, writes: bool, connect: Callable[[str], RemoteBackend] = connect
    ) -> None:
        self.url = url
        self.writes = writes
        self._key = key
        self._connect = connect
        self._backoff = BackOff()
        self._tell = FirstWarnings(_log)
        self._begin()
        track(self)
        try:  # here, since it takes longer than an answer may
            backends.import_library(url)
        except ImportError as error:
            self._failed(error, self._backoff.now())

    def _begin(self) -> None:
        self._backend: RemoteBackend | None = None
        self._connecting = threading.Lock()
        self._writes: queue.Queue[tuple[str, bytes]] = queue.Queue(_WAITING)
        self._writer: threading.Thread | None = None

    def after_fork(self) -> None:
        """Forget threads and pending writes, which are the parent's (core/after_fork.py)."""
        self._begin()

    def read(self, name: str) -> dict[str, bytes] | None:
        """Return the files of an entry, with a good signature but else unchecked; None if missing,
        late or not signed."""
        if not self._backoff.may_ask():
            return None
        asked = self._backoff.now()
        answers: queue.SimpleQueue[bytes | Exception | None] = queue.SimpleQueue()

        def ask() -> None:
            try:
                answers.put(self._connected().read(name))
            except Exception as error:
                answers.put(error)

        try:
            threading.Thread(target=ask, name="kernelmill-remote", daemon=True).start()
            answer = answers.get(timeout=TIMEOUT_SECONDS)
        except RuntimeError as error:  # the system gives no thread
            answer = error
        except queue.Empty:
            answer = TimeoutError(f"no answer within {TIMEOUT_SECONDS * 1e3:.0f} ms")
        if isinstance(answer, Exception):
            self._failed(answer, asked)
            return None
        self._backoff.served()
        try:
            return None if answer is None else unpack(verified(self._key, name, answer))
        except BadEntry as bad:
            self._tell("refused", f"remote store: {bad}; compiled here instead")
            return None

    def write(self, name: str, files: Mapping[str, bytes]) -> None:
        """Sign the entry and queue it for writing, if this process writes; returns at once."""
        if not self.writes or self._backoff.is_resting:
            return
        try:
            if self._writer is None or not self._writer.is_alive():
                self._writer = threading.Thread(
                    target=self._write_behind, name="kernelmill-remote-write", daemon=True
                )
                self._writer.start()
            self._writes.put_nowait((name, sign(self._key, name, pack(files))))
        except RuntimeError as error:  # the system gives no thread
            self._failed(error, self._backoff.now())
        except queue.Full:
            _log.info("remote store is too slow for %s; not written", name)

    def flush(self, seconds: float) -> bool:
        """Wait for pending writes, at most `seconds`; return whether all are written."""
        end = time.monotonic() + seconds
        while self._writes.unfinished_tasks and time.monotonic() < end:
            time.sleep(0.005)
        return not self._writes.unfinished_tasks

    def _write_behind(self) -> None:
        while True:
            name, value = self._writes.get()
            asked = self._backoff.now()
            try:
                if self._backoff.may_ask():
                    self._connected().write(name, value)
                    self._backoff.served()
            except Exception as error:
                self._failed(error, asked)
            finally:
                self._writes.task_done()

    def _connected(self) -> RemoteBackend:
        with self._connecting:
            if self._backend is None:
                self._backend = self._connect(self.url)
            return self._backend

    def _failed(self, error: Exception, asked: float) -> None:
        self._backoff.failed(asked)
        hint = ": pip install 'kernelmill[remote]'" if isinstance(error, ImportError) else ""
        self._tell(
            "failed",
            f"remote store of KERNELMILL_REMOTE does not answer ({type(error).__name__}: {error})"
            f"{hint}; kernels are compiled here until it does",
        )


def pack(files: Mapping[str, bytes]) -> bytes:
    """Return the files of an entry as one value."""
    head = json.dumps([len(files[suffix]) for suffix in SUFFIXES]).encode() + b"\n"
    return head + b"".join(files[suffix] for suffix in SUFFIXES)


def unpack(value: bytes) -> dict[str, bytes]:
    """Return the files that `pack` was given. BadEntry for any other value."""
    head = value[:100].partition(b"\n")[0]
    try:
        sizes = [int(size) for size in json.loads(head)]
    except (ValueError, TypeError) as error:
        raise BadEntry(f"no sizes in front: {error}") from error
    start = len(head) + 1
    if len(sizes) != len(SUFFIXES) or min(sizes) < 0 or start + sum(sizes) != len(value):
        raise BadEntry(f"cut or damaged: {len(value)} bytes do not add up")
    source = io.BytesIO(value[start:])
    return {suffix: source.read(size) for suffix, size in zip(SUFFIXES, sizes, strict=True)}


def default_remote() -> Remote | None:
    """Return the remote of KERNELMILL_REMOTE, one for each URL in a process; None when it is not
    set, or has no key. ConfigError for an invalid URL, and for a key that is too short."""
    url = knobs.REMOTE.get()
    if not url:
        return None
    return _remote_at(url, knobs.REMOTE_KEY.get(), knobs.REMOTE_ACCESS.get() == "write")


@cache
def _remote_at(url: str, key: bytes, writes: bool) -> Remote | None:
    if not key:
        _log.warning(
            "the remote store of KERNELMILL_REMOTE is not used: without KERNELMILL_REMOTE_KEY "
            "nobody can tell who wrote what is there, and it is code that would run here"
        )
        return None
    remote = Remote(url, key, writes)
    atexit.register(remote.flush, TIMEOUT_SECONDS)
    return remote


SHARED_TIMEOUT_SECONDS = 10.0
ATTEMPTS = 3
_PAUSE_SECONDS = 0.5
"""Pause before the second attempt; twice that before the third."""

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
        self._backend: RemoteBackend | None = None
        self._tell = FirstWarnings(_log)

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
                self._tell("bad", f"{self.shown}: {bad}; taken for missing")
                continue
            yield entry, files

    def keep(self, name: str, files: Mapping[str, bytes]) -> None:
        """Write an entry."""
        self.keep_document(name, pack(files))

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

    def _ask(self, request: Callable[[RemoteBackend], Result]) -> Result:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                if self._backend is None:
                    self._backend = backends.connect(self.url, SHARED_TIMEOUT_SECONDS)
                return request(self._backend)
            except Exception as error:
                if attempt == ATTEMPTS:
                    raise StoreError(
                        f"the shared store {self.shown} does not answer "
                        f"({type(error).__name__}: {str(error).replace(self.url, self.shown)})"
                    ) from error
                _log.info("%s: attempt %d: %s", self.shown, attempt, type(error).__name__)
                time.sleep(_PAUSE_SECONDS * 2 ** (attempt - 1))
        raise AssertionError  # the last attempt returns or raises


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


def named_shared(url: str | None) -> SharedStore:
    """Return the store of `open_shared`. ConfigError when neither is given too."""
    shared = open_shared(url)
    if shared is None:
        raise ConfigError("there is no shared store: give its URL, or set KERNELMILL_REMOTE")
    return shared
