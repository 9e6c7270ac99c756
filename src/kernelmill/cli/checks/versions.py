"""Versions of Python and of the packages that matter, against what kernelmill asks for."""

from __future__ import annotations

import platform
import re
from importlib import metadata

from kernelmill.cli.checks.finding import Section
from kernelmill.core.version import VERSION

PACKAGES = ("torch", "llvmlite", "apache-tvm-ffi", "numpy", "typer", "rich")
_OPTIONAL = ("onnxruntime", "transformers")


def versions() -> Section:
    """Versions; wrong where a package is missing or older than kernelmill's metadata asks for."""
    section = Section("versions", {"kernelmill": VERSION, "python": platform.python_version()})
    section.facts["system"] = platform.platform()
    for name in PACKAGES:
        found = _version(name)
        section.facts[name] = found or "not installed"
        least = _least().get(name, "")
        wanted = f"pip install '{name}>={least}'" if least else f"pip install {name}"
        if not found:
            section.wrong(f"{name} is not installed", wanted)
        elif _numbers(found) < _numbers(least):
            section.wrong(f"{name} {found} is older than {least}, the oldest that works", wanted)
    for name in _OPTIONAL:
        if found := _version(name):
            section.facts[name] = found
    return section


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _least() -> dict[str, str]:
    """The oldest versions that kernelmill's own metadata allows; none where it is not installed."""
    try:
        wanted = metadata.requires("kernelmill") or []
    except metadata.PackageNotFoundError:
        return {}
    found = (re.match(r"([\w-]+)\s*>=\s*([\d.]+)", each) for each in wanted)
    return {match[1]: match[2] for match in found if match}


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])
