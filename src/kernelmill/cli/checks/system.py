"""The processor and the operating system: the target of compiles, and permissions."""

from __future__ import annotations

import platform
from pathlib import Path

from kernelmill.cli.checks.finding import Section
from kernelmill.core import knobs
from kernelmill.core.errors import KernelmillError
from kernelmill.core.target.isa import host_isa, machine_isa, processor_name, withheld
from kernelmill.core.target.machine import host
from kernelmill.runtime.linking.elf_loader import ALLOW_CODE, why_no_code

_SECCOMP = {"0": "none", "1": "strict", "2": "filter"}
_LARGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def system(large_pages: Path = _LARGE_PAGES) -> Section:
    """Report system call filters, large pages and memory; wrong if machine code may not run."""
    section = Section("system")
    status = _colon_file(Path("/proc/self/status"))
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


def _colon_file(path: Path) -> dict[str, str]:
    """Return a file of lines "name: value" as a dict; empty where there is no such file."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def processor() -> Section:
    """Report the ISA that programs are compiled for; slow where the machine has a larger one."""
    section = Section("processor", {"processor": processor_name() or "unknown"})
    try:
        section.facts["compiled for"] = str(host_isa())
        section.facts["caches"] = host().caches
    except KernelmillError as error:
        section.wrong(str(error), f"correct or unset {knobs.TARGET.name}")
        return section
    section.facts["this machine has"] = str(machine_isa())
    if host_isa() != machine_isa():
        section.slow(
            f"programs are compiled for {host_isa().cpu} without all that this machine has, since "
            f"{knobs.TARGET.name}={knobs.TARGET.get()}",
            f"unset {knobs.TARGET.name}, unless kernels are for older machines too",
        )
    if not machine_isa().has_fma:
        section.slow(
            "the processor, or the virtual machine, has no fused multiply-add: products take twice "
            "the time",
            "let the virtual machine have the host's processor type (qemu: -cpu host)",
        )
    if withheld():
        section.slow(
            f"the tile unit is not used: {withheld()}",
            "allow arch_prctl in the container's seccomp profile; Linux 5.16 or later",
        )
    return section


def figures(section: Section, folder: str | None) -> None:
    """Add the origin of lowering's figures of this machine. Imports torch."""
    from kernelmill.compiler.calibration import TYPE, calibration_key
    from kernelmill.store.store import open_store

    try:
        measured = open_store(folder).get(calibration_key(host()), TYPE) is not None
    except KernelmillError:
        return  # the section on the store says it
    section.facts["figures of the cost model"] = "measured here" if measured else "committed"
    if not measured:
        section.note(
            "schedules are chosen by committed figures of a processor of this kind",
            "`kernelmill calibrate` measures this one, in a few seconds",
        )
