"""The machine and the versions, as the documents that hold measurements state them."""

from __future__ import annotations

import datetime
import platform
from importlib import metadata
from pathlib import Path

import torch

PACKAGES = ("torch", "llvmlite", "apache-tvm-ffi", "transformers", "onnxruntime", "openvino")


def processor() -> str:
    """The name of the processor, as Linux has it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def versions() -> list[str]:
    """Name and version of each of the packages that is installed."""
    found: list[str] = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return found


def description() -> str:
    """One paragraph: date, processor, vector width, threads, versions."""
    capability = torch.backends.cpu.get_cpu_capability()
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return (
        f"Measured on {today}: {processor()} ({capability}), {torch.get_num_threads()} threads, "
        f"{platform.system()}, Python {platform.python_version()}, {', '.join(versions())}."
    )
