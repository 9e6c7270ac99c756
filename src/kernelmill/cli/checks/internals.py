"""Private parts of torch and llvmlite that kernelmill uses, and what is slower without one."""

from __future__ import annotations

from kernelmill.cli.checks.finding import Section


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
