"""Names of kernels for `perf`, written if KERNELMILL_PERF_MAP is set.

perf reads /tmp/perf-PID.map, a line "ADDRESS SIZE NAME" for each function, ADDRESS and SIZE in
hexadecimal (tools/perf/Documentation/jit-interface.txt of the Linux kernel). Other makers of code
in this process, such as Python with -X perf, append to the same file.
"""

from __future__ import annotations

import os
import stat

from kernelmill.core.after_fork import RenewedLock, after_fork
from kernelmill.core.log import get_logger

_log = get_logger("runtime")
_lock = RenewedLock()
_named: dict[int, str] = {}


def path() -> str:
    """Return the path of this process's map."""
    return f"/tmp/perf-{os.getpid()}.map"


def name(address: int, size: int, title: str) -> None:
    """Add a function to the map. A file that cannot be written is a warning."""
    line = f"{address:x} {size:x} {title}\n"
    with _lock.lock:
        if _named.get(address) == line:
            return
        _named[address] = line
        _append(line)


@after_fork
def _after_fork() -> None:
    # A child has the same code at the same addresses, and a file of its own.
    if _named:
        _append("".join(_named.values()))


def _append(text: str) -> None:
    try:
        # Everybody can write to /tmp: no link is followed, and no file of another user is used.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(path(), flags, 0o600)
        try:
            about = os.fstat(file)
            if about.st_uid != os.geteuid() or not stat.S_ISREG(about.st_mode):
                raise PermissionError(f"{path()} is no file of this user")
            os.write(file, text.encode())
        finally:
            os.close(file)
    except OSError as error:
        _log.warning("perf does not get the names of kernels: %s", error)
