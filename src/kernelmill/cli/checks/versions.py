"""Versions of Python and of packages, compared with those that kernelmill needs; bytecode of
kernelmill's own modules; private parts of torch and llvmlite that work.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from importlib import metadata
from importlib.util import MAGIC_NUMBER, cache_from_source, source_hash
from pathlib import Path

from kernelmill.cli.checks.finding import Section
from kernelmill.cli.output import existing
from kernelmill.core.version import VERSION

PACKAGES = ("torch", "llvmlite", "apache-tvm-ffi", "numpy", "typer", "rich")
PACKAGE = Path(__file__).parent.parent.parent
_OPTIONAL = ("onnxruntime", "transformers")


def versions() -> Section:
    """Report versions; wrong for a package that is missing or older than kernelmill requires."""
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
    _bytecode(section, PACKAGE)
    return section


def _bytecode(section: Section, package: Path) -> None:
    """Add a finding, slow, where modules are compiled by each process again."""
    sources = sorted(package.rglob("*.py"))
    without = [source for source in sources if not _has_bytecode(source)]
    many = 10 * len(without) > len(sources)  # a few are soon compiled
    if many and not all(_is_written(source) for source in without):
        section.slow(
            f"{len(without)} of {len(sources)} modules have no bytecode and get none: each process "
            "compiles those that it loads, half a second in all",
            f"python -m compileall -q {package}",
        )


def _is_written(source: Path) -> bool:
    """Return whether the next process that imports the module keeps its bytecode."""
    there = existing(Path(cache_from_source(str(source))).parent)
    return not sys.dont_write_bytecode and os.access(there, os.W_OK)


def _has_bytecode(source: Path) -> bool:
    """Return whether a module's bytecode is valid for its source; its format is that of PEP 552."""
    try:
        with open(cache_from_source(str(source)), "rb") as file:
            magic, flags, stamp = file.read(4), int.from_bytes(file.read(4), "little"), file.read(8)
        if magic != MAGIC_NUMBER:
            return False
        if flags & 1:
            return not flags & 2 or stamp == source_hash(source.read_bytes())
        found = source.stat()
    except OSError:
        return False
    told = (int(found.st_mtime), found.st_size)
    return stamp == b"".join((value & 0xFFFFFFFF).to_bytes(4, "little") for value in told)


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _least() -> dict[str, str]:
    """Return the oldest versions that kernelmill's metadata allows; empty if not installed."""
    try:
        wanted = metadata.requires("kernelmill") or []
    except metadata.PackageNotFoundError:
        return {}
    found = (re.match(r"([\w-]+)\s*>=\s*([\d.]+)", each) for each in wanted)
    return {match[1]: match[2] for match in found if match}


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])


def internals() -> Section:
    """Count the private parts that work; slow for each that does not. Imports torch's compiler."""
    from kernelmill.torch_internals import state

    parts = state()
    working = [part for part in parts if part.works]
    section = Section("torch internals", {"working": f"{len(working)} of {len(parts)}"})
    for part in parts:
        if not part.works:
            section.slow(
                f"{part.name} is not as expected ({part.problem}), which is for {part.reason}: "
                f"{part.fallback}",
                "use a version of torch that docs/compatibility.md says was tested",
            )
    return section
