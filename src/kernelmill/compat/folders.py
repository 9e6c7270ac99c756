"""The folders that TorchAir and MindSpore use: `kernel_meta` and `.torchair_cache` in the working
directory.

They contain machine code that will run, and a working directory may have come with an archive or a
checkout. So such a folder is used only if it is made now, or if an earlier run of this user made
it, according to a list in `cache_home()` by device and inode, and a random text in it: file systems
give the inode of a removed folder to the next one.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path

from kernelmill.core import knobs
from kernelmill.core.cache_home import cache_home
from kernelmill.core.knobs import Knob
from kernelmill.core.log import configure, warn_once

KERNEL_META = "kernel_meta"
METHODS = ".torchair_cache"
LIST = "run_folders"
"""File in `cache_home()`: a line "DEVICE:INODE:MARK PATH" for each folder that a run made."""

MARK = ".made_by_run"
"""File in such a folder that holds its mark, which nobody else can know."""

_MARK_BYTES = 16
_LOGS = {"0": "+all", "1": "all", "2": "", "3": "-all", "4": "-all"}


def propose_settings() -> None:
    """Propose TorchAir's folders and logs, where no variable of ours sets others."""
    _propose(knobs.KERNEL_META, KERNEL_META)
    named = knobs.TORCHAIR_CACHE_HOME.get()
    if named:
        knobs.CACHE_HOME.propose(os.path.abspath(named))
    _propose(knobs.CACHE_HOME, METHODS)
    wanted = knobs.TNG_LOG_LEVEL.get()
    if wanted and wanted not in _LOGS:
        warn_once(f"TNG_LOG_LEVEL={wanted}", f"the levels are {', '.join(_LOGS)}")
    level = _LOGS.get(wanted, "")
    if level and not knobs.LOGS.get():
        knobs.LOGS.propose(level)
        configure(level)


def _propose(knob: Knob[str] | Knob[tuple[str, ...]], name: str) -> None:
    if knob.get():
        return
    path = os.path.abspath(name)
    if _made_by_a_run(path):
        knob.propose(path)
    else:
        warnings.warn(
            f"{path} is not used, since it was not made by `kernelmill run`: it may have come with "
            f"an archive, and what is in it would run. To use it set {knob.name}={name}",
            UserWarning,
            stacklevel=2,
        )


def _made_by_a_run(path: str) -> bool:
    """Make the folder, or return whether the list has it. False where it cannot be made either."""
    if not os.path.lexists(path):
        with suppress(OSError):  # another run has made it meanwhile, or none can
            _make(path)
    return os.path.lexists(path) and _identity(path) in _listed()


def _make(path: str) -> None:
    """Make a folder, marked and listed before it gets its name."""
    os.makedirs(cache_home(), mode=0o700, exist_ok=True)
    folder, name = os.path.split(path)
    made = tempfile.mkdtemp(prefix=f".{name}.", dir=folder)
    try:
        Path(made, MARK).write_text(secrets.token_hex(_MARK_BYTES))
        with open(os.path.join(cache_home(), LIST), "a") as file:
            file.write(f"{_identity(made)} {path}\n")
        os.rename(made, path)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def _identity(path: str) -> str:
    found = os.lstat(path)
    return f"{found.st_dev}:{found.st_ino}:{_mark_in(path)}"


def _mark_in(path: str) -> str:
    """Return the mark in a folder; "" for none. Does not wait for a pipe of that name."""
    try:
        file = os.open(os.path.join(path, MARK), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    with open(file, errors="replace") as opened:
        return opened.read(2 * _MARK_BYTES)


def _listed() -> set[str]:
    try:
        with open(os.path.join(cache_home(), LIST)) as file:
            return {line.split(" ", 1)[0] for line in file}
    except OSError:
        return set()
