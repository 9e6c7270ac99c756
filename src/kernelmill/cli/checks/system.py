"""Permissions of the operating system: large pages, memory watches, code made at run time."""

from __future__ import annotations

import platform
from pathlib import Path

from kernelmill.cli.checks.finding import Section
from kernelmill.runtime.linking.elf_loader import ALLOW_CODE, why_no_code

_SECCOMP = {"0": "none", "1": "strict", "2": "filter"}
_LARGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def system(large_pages: Path = _LARGE_PAGES) -> Section:
    """Report system call filters, large pages and memory; wrong if machine code may not run."""
    section = Section("system")
    status = _status()
    section.facts["seccomp"] = _SECCOMP.get(status.get("Seccomp", ""), "unknown")
    section.facts["libc"] = " ".join(platform.libc_ver()).strip() or "unknown"
    if "MemAvailable" in (memory := _colon_file(Path("/proc/meminfo"))):
        section.facts["memory available"] = memory["MemAvailable"]
    _large_pages(section, large_pages)
    refused = why_no_code()
    section.facts["machine code made at run time"] = refused or "permitted"
    if refused:
        section.wrong(
            f"the system does not let this process run code that it made: {refused}",
            ALLOW_CODE,
        )
    return section


def _large_pages(section: Section, path: Path) -> None:
    try:
        text = path.read_text()
    except OSError:
        text = ""
    chosen = text.partition("[")[2].partition("]")[0] or "not offered"
    section.facts["large pages"] = chosen
    if chosen not in ("always", "madvise"):
        section.slow(
            "weights and activations are on pages of 4 KiB: the system offers no larger ones",
            f"echo madvise > {path}",
        )


def memory_watch(section: Section) -> None:
    """Add whether writes to weights can be watched. Imports torch."""
    from kernelmill.runtime.weights.page_scan import PageScan

    try:
        PageScan().close()
    except OSError as error:
        section.facts["weights are watched"] = f"no: {error.strerror or error}"
        section.note(
            "writes to weights are found by comparing samples: the system does not let this "
            "process watch pages",
            "Linux 6.7 or later, and userfaultfd allowed in the container's seccomp profile; see "
            "docs/numerics.md",
        )
    else:
        section.facts["weights are watched"] = "yes"


def _status() -> dict[str, str]:
    return _colon_file(Path("/proc/self/status"))


def _colon_file(path: Path) -> dict[str, str]:
    """Return a file of lines "name: value" as a dict; empty where there is no such file."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
