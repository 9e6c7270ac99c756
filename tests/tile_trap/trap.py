"""A processor with the tile unit, on one without it: the instructions are really executed, each of
them by the handler of the signal that it raises (trap.c)."""

from __future__ import annotations

import hashlib
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kernelmill.core.target.families import X86_64
from kernelmill.core.target.isa import NAMED, cpuinfo_flags, why_not_here
from tests.tile_unit import AMX

_FOLDER = Path(__file__).parents[2] / "build" / "tile_trap"
_SOURCE = Path(__file__).with_name("trap.c")
_FLAGS = (
    "-target", "x86_64-linux-gnu", "-mcpu=x86_64_v4", "-std=gnu11", "-O2", "-fPIC",
    "-ffp-contract=off", "-fno-strict-aliasing", "-fno-stack-protector", "-fno-sanitize=all",
    "-Wall", "-Wextra", "-Werror",
)  # fmt: skip
_PRELOAD, _COUNTS = "LD_PRELOAD", "TILE_TRAP_COUNTS"
_KINDS = (
    "ldtilecfg", "sttilecfg", "tilerelease", "tilezero", "tileload", "tilestore", "tdpbf16ps",
    "tdpb..d",
)  # fmt: skip
"""What trap.c counts, in its order."""


class Unavailable(Exception):
    """Why tiles cannot be trapped here, in one line."""


def has_tiles() -> bool:
    """Whether the processor has tiles, as far as this process can see."""
    return set(AMX.cpu_flags) <= cpuinfo_flags()


def is_on() -> bool:
    """Whether instructions on tiles are trapped in this process."""
    return str(_FOLDER) in os.environ.get(_PRELOAD, "")


def library() -> Path:
    """The shared object, made where it is not there yet. Unavailable says why it cannot be, or what
    else of a processor with tiles this one lacks."""
    if reason := why_not_here(NAMED["x86-64-v4-bf16"]):
        raise Unavailable(f"code for tiles needs more than tiles: {reason}")
    flags = " ".join(sorted(X86_64.permitted))
    command = [sys.executable, "-m", "ziglang"]
    compiling = [*command, "cc", *_FLAGS, f'-DFLAGS="{flags}"', "-c", str(_SOURCE)]
    key = hashlib.blake2b(_SOURCE.read_bytes() + repr(compiling).encode(), digest_size=8)
    made = _FOLDER / f"{key.hexdigest()}.so"
    if made.is_file():
        return made
    try:
        _FOLDER.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_FOLDER) as folder:
            places = {f"ZIG_{each}_CACHE_DIR": folder for each in ("GLOBAL", "LOCAL")}
            unit, whole = Path(folder, "trap.o"), Path(folder, "trap.so")
            linking = [*command, "ld.lld", "-shared", "-z", "now", str(unit)]
            for step, result in ((compiling, unit), (linking, whole)):
                subprocess.run(
                    [*step, "-o", str(result)], env={**os.environ, **places}, cwd=folder,
                    check=True, capture_output=True, text=True,
                )  # fmt: skip
            whole.replace(made)
    except OSError as error:
        raise Unavailable(f"the trap cannot be made: {error}") from None
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no reason"])[-1]
        raise Unavailable(f"the trap cannot be made: {last}") from None
    return made


def execute(arguments: Sequence[str], count: bool = False) -> None:
    """Become a Python with these arguments on a processor with tiles; `count` what is trapped.
    Unavailable says why there can be none."""
    surroundings = dict(os.environ)
    if not has_tiles():
        others = surroundings.get(_PRELOAD, "").split()
        surroundings[_PRELOAD] = " ".join([str(library()), *others])
        if count:
            with tempfile.NamedTemporaryFile(prefix="tile-trap-", delete=False) as file:
                file.write(bytes(8 * len(_KINDS)))
            surroundings[_COUNTS] = file.name
    os.execve(sys.executable, [sys.executable, *arguments], surroundings)


def counted() -> dict[str, int]:
    """How many instructions of each kind were trapped since `execute`, in all processes that come
    from it; nothing where none are counted."""
    path = os.environ.get(_COUNTS)
    if path is None:
        return {}
    numbers = struct.unpack(f"{len(_KINDS)}Q", Path(path).read_bytes())
    return dict(zip(_KINDS, numbers, strict=True))


def end() -> None:
    """Forget what was counted."""
    if path := os.environ.pop(_COUNTS, None):
        Path(path).unlink(missing_ok=True)
