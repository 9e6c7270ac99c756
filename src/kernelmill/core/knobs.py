"""Environment variables that kernelmill reads: a typed table, and the only reader.

A knob is read when it is needed, so a test or a script may set it after the import. An empty value
counts as unset. A property of one model is an option of `CompilerConfig`, not a knob.
"""

from __future__ import annotations

import difflib
import importlib
import os
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import ConfigError

REDIS = ("redis", "rediss", "unix")
_OF_HOSTS = ("redis", "rediss", "http", "https", "ftp", "sftp", "ssh", "smb", "hdfs", "webhdfs")
"""Schemes of URLs that may have a port; others have a bucket in its place."""

_EXPECTED = "expected a URL such as redis://host:6379/0, s3://bucket/folder or file:///folder"


def is_redis(url: str) -> bool:
    """Return whether the URL is one of a Redis server."""
    return url.partition("://")[0] in REDIS


def check_url(url: str) -> str:
    """Return the same URL. ValueError if its scheme, port or database is invalid for any store."""
    if url.startswith("/"):
        return url
    fsspec: Any = importlib.import_module("fsspec")
    for part in url.split("::"):  # fsspec's way to have one file system in another
        scheme, separator, _ = part.partition("://")
        if not separator and "::" not in url:
            raise ValueError(_EXPECTED)
        if scheme not in (*REDIS, *fsspec.available_protocols()):
            raise ValueError(f"no store has URLs with {scheme}://; {_EXPECTED}")
        if scheme in _OF_HOSTS and separator:
            _check_host(part)
    return url


def _check_host(url: str) -> None:
    try:
        parts = urlsplit(url)
        port, database = parts.port, parts.path.strip("/")
    except ValueError:  # whose text may have a part of the password
        port, database = 0, ""
    if port == 0:
        raise ValueError("its port is no number from 1 to 65535; in a password, / is %2F, # is %23")
    if is_redis(url) and database and not database.isdecimal():
        raise ValueError(f"its database {database!r} is no number")


def without_password(url: str) -> str:
    """Return the URL for display, without name and password in front of the host."""
    scheme, separator, rest = url.partition("://")
    authority = rest if scheme in _OF_HOSTS else rest.partition("/")[0]
    secret, at, _ = authority.rpartition("@")
    return f"{scheme}{separator}{'...@' if at else ''}{rest[len(secret + at) :]}"


T = TypeVar("T")

LEAST_KEY = 32
"""Least characters of a key: as many hexadecimal digits are 128 bits."""


@dataclass(frozen=True)
class Knob(Generic[T]):
    """An environment variable: its name, the reader of its text, its value when unset, and `shown`,
    the part of its text that may be displayed.

    `values` describes the allowed values, `unset` the behaviour without it, `summary` its effect in
    one line, `advice` when to set it.
    """

    name: str
    read: Callable[[str], T]
    default: T
    values: str
    unset: str
    summary: str
    advice: str
    shown: Callable[[str], str] = str

    def get(self) -> T:
        """Return the current value. ConfigError names the variable when its text cannot be read."""
        text = os.environ.get(self.name, "")
        if not text:
            return self.default
        try:
            return self.read(text)
        except ValueError as error:
            raise ConfigError(
                f"environment variable {self.name}={self.shown(text)!r}: {error}"
            ) from error

    def propose(self, text: str) -> None:
        """Set the variable for this process and its children, if it is unset."""
        if not os.environ.get(self.name, ""):
            os.environ[self.name] = text


def _switch(text: str) -> bool:
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off"):
        return False
    raise ValueError("expected 1 or 0")


def _count(text: str) -> int:
    if not text.isdecimal():
        raise ValueError("expected a whole number that is not negative")
    return int(text)


def _positive(text: str) -> int | None:
    if not text.isdecimal() or int(text) == 0:
        raise ValueError("expected a whole number above 0")
    return int(text)


def _one_of(*allowed: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"expected {' or '.join(allowed)}")
        return text

    return read


def _key(text: str) -> bytes:
    if len(text) < LEAST_KEY:
        raise ValueError(f"expected a random text of at least {LEAST_KEY} characters")
    return text.encode(errors="surrogateescape")


def _secret(text: str) -> str:
    return "(secret)"


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _folders(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(os.pathsep) if part)


LOGS = Knob(
    "KERNELMILL_LOGS",
    str,
    "",
    "names of packages of `kernelmill` or `all`, separated by commas; the prefix `+` logs more, "
    "`-` only errors",
    "nothing is configured: Python's `logging` decides about warnings",
    "What to log: 'store', '+lower,store', 'all,-codegen'.",
    "`+store` says why a kernel was compiled again. `compiler` logs each compile with its "
    "times, `+compiler` its kernels too, `backend` the options of each graph.",
)
KERNEL_META = Knob(
    "KERNELMILL_KERNEL_META",
    _folders,
    (),
    f"one folder, or several separated by `{os.pathsep}`",
    "`$XDG_CACHE_HOME/kernelmill/kernel_meta`",
    f"Folder of compiled kernels; with '{os.pathsep}', read-only folders come before the last.",
    "Set it in every deployment, to a folder that only the service's user can write to. "
    "`/shipped:/var/cache/kernels` reads kernels of an image first and writes new ones to the "
    "second.",
)
REMOTE = Knob(
    "KERNELMILL_REMOTE",
    check_url,
    "",
    "`redis://host:6379/0`, or a URL of fsspec (`s3://bucket/kernels`)",
    "there is no remote store",
    "Remote kernel store that many hosts share: redis://host:6379/0, or a URL of fsspec.",
    "For many hosts that start with empty disks. It needs `KERNELMILL_REMOTE_KEY` too.",
    shown=without_password,
)
REMOTE_KEY = Knob(
    "KERNELMILL_REMOTE_KEY",
    _key,
    b"",
    f"{LEAST_KEY} characters or more",
    "the remote store is not used",
    "Key that signs and checks entries of the remote store.",
    "Give it to every host that shares the store, as a secret. It is never shown.",
    shown=_secret,
)
REMOTE_ACCESS = Knob(
    "KERNELMILL_REMOTE_ACCESS",
    _one_of("read", "write"),
    "read",
    "`read` or `write`",
    "`read`",
    "write: kernels compiled here are also written to the remote store.",
    "`write` on the few hosts that fill the store, `read` on all others.",
)
STATIC_KERNELS = Knob(
    "KERNELMILL_STATIC_KERNELS",
    str,
    "",
    "a folder",
    "`~/.local/share/kernelmill/static_kernels`",
    "Folder of installed static kernels.",
    "Set it if the service's home directory is missing or not kept.",
)
RECORD_OPS = Knob(
    "KERNELMILL_RECORD_OPS",
    str,
    "",
    "a file, which is appended to",
    "nothing is recorded",
    "File to which operators are appended when they run, with their shapes.",
    "In a test run of the service; `kernelmill static build` then packs kernels for these shapes.",
)
CACHE_HOME = Knob(
    "KERNELMILL_CACHE_HOME",
    str,
    "",
    "a folder",
    "`$XDG_CACHE_HOME/kernelmill/methods`",
    "Folder of cache_compile, unless the call names one.",
    "Set it in every deployment that uses `cache_compile`, for the same reasons as "
    "`KERNELMILL_KERNEL_META`.",
)
ON_UNTRUSTED = Knob(
    "KERNELMILL_ON_UNTRUSTED",
    _one_of("error", "memory"),
    "error",
    "`error` or `memory`",
    "`error`",
    "memory: ignore folders that other users can write to, and keep kernels in memory.",
    "`memory` in containers whose user cannot repair the folders of the "
    "image. `config.on_untrusted` is the same for one backend.",
)
XDG_CACHE_HOME = Knob(
    "XDG_CACHE_HOME",
    str,
    "",
    "a folder",
    "`~/.cache`",
    "Kernels and cached methods are in its folder kernelmill, unless another folder is named.",
    "The system's own variable. If the home directory of a service is missing or read-only, "
    "prefer `KERNELMILL_KERNEL_META` and `KERNELMILL_CACHE_HOME`.",
)
TARGET = Knob(
    "KERNELMILL_TARGET",
    str,
    "",
    "a name that `config.target` takes, such as `x86-64-v3`",
    "all instructions of this machine are used",
    "Instruction set to compile for: x86-64-v2, x86-64-v3, ... (core/target/isa.py).",
    "When one machine compiles kernels that older ones run. This machine must be able to "
    "run it too. `config.target` is the same for one backend.",
)
DEBUG = Knob(
    "KERNELMILL_DEBUG",
    _switch,
    False,
    "`1` or `0`",
    "programs are verified once",
    "1: verify every intermediate program after every pass.",
    "When you work on the compiler, or report a bug in it. Compiles take longer.",
)
DEFAULT = Knob(
    "KERNELMILL_DEFAULT",
    _switch,
    False,
    "`1` or `0`",
    "`torch.compile` without a `backend` compiles with Inductor",
    "1: torch.compile compiles with kernelmill unless a backend is named.",
    "For programs and libraries that call `torch.compile` themselves. Read when torch is imported.",
)
VLLM = Knob(
    "KERNELMILL_VLLM",
    _switch,
    True,
    "`1` or `0`",
    "vLLM compiles with kernelmill on CPUs",
    "0: vLLM compiles as if kernelmill were not installed.",
    "To compare with Inductor, or if a model of vLLM is wrong. See [vLLM](vllm.md).",
)
STRICT = Knob(
    "KERNELMILL_STRICT",
    _switch,
    False,
    "`1` or `0`",
    "the graph runs in torch, with a warning",
    "1: raise an error if a whole graph would run in torch.",
    "In tests, to notice a model that is no longer compiled.",
)
PROGRESS = Knob(
    "KERNELMILL_PROGRESS",
    _switch,
    True,
    "`1` or `0`",
    "compiles that take longer than two seconds show their progress",
    "0: show no line of progress during a compile.",
    "The line is on standard error, in terminals and notebooks only, and is removed at the end. "
    "`0` if a program draws on the terminal itself, or nobody watches the notebook.",
)
PERF_MAP = Knob(
    "KERNELMILL_PERF_MAP",
    _switch,
    False,
    "`1` or `0`",
    "`perf` shows addresses",
    "1: write the names of kernels to /tmp/perf-PID.map, which `perf` reads.",
    "With `perf record`, in a test run: see [explain](explain.md#perf).",
)
WITHOUT_INTERNALS = Knob(
    "KERNELMILL_WITHOUT_INTERNALS",
    _names,
    (),
    "names of private parts, separated by commas; `kernelmill.torch_internals.state()` lists them",
    "all are used that are as expected",
    "Private parts of torch and other packages that are not used, as if they were missing.",
    "When you work on kernelmill, or to see whether one of them is at fault. Calls and compiles "
    "are slower, with the same results.",
)
RECORD_INTERNALS = Knob(
    "KERNELMILL_RECORD_INTERNALS",
    str,
    "",
    "a file, which is appended to",
    "nothing is recorded",
    "File to which each process appends the names of private parts when it first uses them.",
    "When you work on kernelmill: a part that is not used cannot be at fault.",
)
RANK = Knob(
    "RANK",
    _count,
    0,
    "a whole number from 0",
    "0",
    "Number of this process in a distributed job, for file names.",
    "torchrun sets it; nothing else needs to.",
)
LOCAL_WORLD_SIZE = Knob(
    "LOCAL_WORLD_SIZE",
    _positive,
    None,
    "a whole number from 1",
    "each process compiles static kernels for itself",
    "Number of the job's processes on this machine, which share the compile of static kernels.",
    "torchrun sets it; set it yourself if another launcher starts the processes of a job.",
)
TORCHAIR_CACHE_HOME = Knob(
    "TORCHAIR_CACHE_HOME",
    str,
    "",
    "a folder",
    "`.torchair_cache` in the working directory",
    "For `kernelmill run`: TorchAir's folder of cache_compile.",
    "For scripts that set it for TorchAir. `KERNELMILL_CACHE_HOME` takes precedence.",
)
TNG_LOG_LEVEL = Knob(
    "TNG_LOG_LEVEL",
    str,
    "",
    "`0` (debug) to `4` (nothing)",
    "`KERNELMILL_LOGS` decides",
    "For `kernelmill run`: TorchAir's level of logs, 0 (debug), 1 (info), 2 (warnings) to 4.",
    "For scripts that set it for TorchAir. `KERNELMILL_LOGS` takes precedence.",
)
TORCH_COMPILE_DEBUG = Knob(
    "TORCH_COMPILE_DEBUG",
    _switch,
    False,
    "`1` or `0`",
    "nothing is written",
    "Torch's own: writes graphs before and after AOTAutograd and each pass, the plan and kernels.",
    "To see which stage went wrong. The files are in `torch_compile_debug` in the working "
    "directory, beside those of Dynamo.",
)

KNOBS: tuple[Knob[Any], ...] = tuple(
    knob for knob in (*globals().values(),) if isinstance(knob, Knob)
)
"""All of them, for `kernelmill --help` and the documents."""

_PREFIX = "KERNELMILL_"
_NEAR = 0.9
"""Least similarity of a name to a known one that makes it a misspelling."""


def unknown() -> tuple[str, ...]:
    """Return variables that begin with KERNELMILL_, or nearly so, and that nothing reads: misspelt,
    or of another version."""
    known = {knob.name for knob in KNOBS}
    ours = [name for name in known if name.startswith(_PREFIX)]
    others = (name for name in os.environ if name not in known)
    return tuple(
        sorted(
            name
            for name in others
            if name.startswith(_PREFIX) or difflib.get_close_matches(name, ours, 1, _NEAR)
        )
    )


def of_others(names: Iterable[str]) -> dict[str, str]:
    """Return variables of other libraries that are set, for display: nothing here obeys them."""
    return {name: os.environ[name] for name in names if os.environ.get(name)}
