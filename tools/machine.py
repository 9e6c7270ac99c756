"""The machine and the versions, as the documents that hold measurements state them."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import torch

_CPUINFO = Path("/proc/cpuinfo")
_THREADS = ("GOMP_", "KMP_", "MKL_", "OMP_")
PACKAGES = ("torch", "llvmlite", "apache-tvm-ffi", "transformers", "onnxruntime", "openvino")


def processor() -> str:
    """The name of the processor, as Linux has it."""
    return _field("model name") or platform.machine()


def kind() -> str:
    """What measurements are kept apart by: the processor's name, its family and model, since makers
    give one name to several, and the instruction set where that is less than the processor has."""
    numbers = {"family": _field("cpu family"), "model": _field("model")}
    parts = [processor(), *(f"{name} {number}" for name, number in numbers.items() if number)]
    from kernelmill.core.target.isa import host_isa, machine_isa, withheld

    if host_isa() != machine_isa() or withheld():
        parts.append(f"code for {instruction_set()}")
    return ", ".join(parts)


def instruction_set() -> str:
    """What kernels are compiled for, without the triple."""
    from kernelmill.core.target.isa import host_isa

    return str(host_isa()).partition(" ")[2].removesuffix(" -")


def _field(name: str) -> str:
    """A field of the first processor in /proc/cpuinfo; "" where it is not there."""
    for line in _CPUINFO.read_text().splitlines():
        found, _, value = line.partition(":")
        if found.strip() == name:
            return value.strip()
    return ""


def available_memory() -> int:
    """Bytes that processes can have without swapping, as Linux estimates them."""
    return _kilobytes(Path("/proc/meminfo"), "MemAvailable") << 10


def resident_memory(peak: bool = False) -> int:
    """Bytes of this process in memory; with `peak` the most there were since `forget_peak`."""
    return _kilobytes(Path("/proc/self/status"), "VmHWM" if peak else "VmRSS") << 10


def forget_peak() -> None:
    """Begin anew with the peak of `resident_memory`, where the system permits it."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _kilobytes(file: Path, field: str) -> int:
    line = next(line for line in file.read_text().splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1])


def versions() -> list[str]:
    """Name and version of each of the packages that is installed."""
    found: list[str] = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return found


def revision() -> str:
    """The commit that is checked out; a + behind it says that files outside of docs are changed.
    "unknown" where the sources are no checkout."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        changed = git("diff", "HEAD", "--name-only", "--", ":!docs")
        return git("rev-parse", "--short=10", "HEAD") + "+" * bool(changed)
    except (subprocess.CalledProcessError, FileNotFoundError):
        return "unknown"


def thread_settings() -> list[str]:
    """The environment's variables that change how libraries run their threads, with their values:
    with them contestants do not run as they do where they are installed."""
    return [
        f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith(_THREADS)
    ]


def description() -> str:
    """One paragraph: date, processor, instruction set, threads, versions, revision, and what the
    environment sets about threads."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    parts = [
        f"{kind()} ({instruction_set()})", f"{torch.get_num_threads()} threads", platform.system(),
        f"Python {platform.python_version()}", *versions(), f"revision {revision()}",
        *thread_settings(),
    ]  # fmt: skip
    return f"Measured on {today}: {', '.join(parts)}."
