"""The processor: the target of compiles, and the cost model's figures of it."""

from __future__ import annotations

from kernelmill.cli.checks.finding import Section
from kernelmill.core import knobs
from kernelmill.core.errors import KernelmillError
from kernelmill.core.target.isa import host_isa, machine_isa, processor_name, withheld
from kernelmill.core.target.machine import host


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
