"""Comparison of the number of threads with the processors that this process may use."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from kernelmill.cli.checks.finding import Section
from kernelmill.core import knobs
from kernelmill.core.target.cpus import Cpus, cpus
from kernelmill.core.text import counted

SETTINGS = (
    "OMP_NUM_THREADS", "OMP_WAIT_POLICY", "OMP_PROC_BIND", "OMP_PLACES", "OMP_DYNAMIC",
    "OMP_THREAD_LIMIT", "GOMP_CPU_AFFINITY", "GOMP_SPINCOUNT", "KMP_AFFINITY", "KMP_BLOCKTIME",
    "MKL_NUM_THREADS", "MKL_DYNAMIC", "MKL_ENABLE_INSTRUCTIONS", "TORCH_NUM_THREADS", "LD_PRELOAD",
)  # fmt: skip
"""Variables of OpenMP, MKL and torch that change how fast programs run."""

_BINDING = ("OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
_BUSY_STEAL = 0.05
_RUNTIMES = ("libgomp", "libiomp5", "libomp")


def processors(found: Cpus | None = None) -> Section:
    """Report processors, quota and settings, without torch."""
    found = found or cpus()
    section = Section("threads", {
        "processors": found.online, "this process may use": found.allowed,
        "cores among them": found.cores, "cgroup quota": found.quota or "none",
    })  # fmt: skip
    settings = knobs.of_others(SETTINGS)
    section.facts["settings"] = settings or "none"
    _settings(section, settings, found)
    _governor(section)
    _others(section, found)
    return section


def _settings(section: Section, settings: dict[str, str], found: Cpus) -> None:
    threads = settings.get("OMP_NUM_THREADS", "").split(",")[0]
    if threads and not (threads.isdecimal() and int(threads)):
        section.wrong(
            f"OMP_NUM_THREADS={settings['OMP_NUM_THREADS']} is no number of threads",
            f"set OMP_NUM_THREADS={found.usable}",
        )
    for name in _BINDING:
        if settings.get(name, "").lower() not in ("", "false", "none", "disabled"):
            section.note(
                f"{name}={settings[name]} binds threads to processors: several processes with the "
                "same setting share the first ones",
                "unset it, or give each process its own processors (taskset, cpusets)",
            )
    if settings.get("OMP_WAIT_POLICY", "").lower() == "active" and found.quota:
        section.slow(
            "OMP_WAIT_POLICY=ACTIVE has waiting threads use up the cgroup's quota",
            "set OMP_WAIT_POLICY=PASSIVE",
        )


def _governor(section: Section) -> None:
    """Check for a governor that keeps clocks low; "powersave" of *_pstate drivers is none."""
    folder = Path("/sys/devices/system/cpu/cpu0/cpufreq")
    try:
        governor, driver = (
            (folder / name).read_text().strip() for name in ("scaling_governor", "scaling_driver")
        )
    except OSError:
        return
    section.facts["frequency governor"] = f"{governor} ({driver})"
    if governor == "powersave" and "pstate" not in driver:
        section.slow(
            "the governor powersave keeps the processors at their lowest clock",
            "cpupower frequency-set --governor performance",
        )


def _others(section: Section, found: Cpus) -> None:
    """Check the time of other load: processes of this machine, other machines on its host."""
    load = os.getloadavg()[0]
    section.facts["load of the last minute"] = round(load, 1)
    if load > 1.5 * found.online:
        section.slow(
            f"{load:.1f} threads want to run on {counted(found.online, 'processor')}",
            "measure when the machine is idle, or with fewer threads",
        )
    try:
        words = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
    except OSError:
        return
    stolen = words[7] / max(1, sum(words[:8])) if len(words) > 7 else 0.0
    section.facts["stolen by the host"] = f"{stolen:.1%} since the start"
    if stolen > _BUSY_STEAL:
        section.slow(
            f"the host gave {stolen:.0%} of the processors' time to other machines",
            "OMP_WAIT_POLICY=PASSIVE, or a host that is less full",
        )


def team(section: Section, torch: Any, found: Cpus | None = None) -> None:
    """Add torch's number of threads, against what can run at a time."""
    found = found or cpus()
    threads = torch.get_num_threads()
    section.facts["torch's threads"] = threads
    limit = (
        f"the cgroup grants {found.quota:g}" if found.quota else f"there are {found.cores} cores"
    )
    fix = f"set OMP_NUM_THREADS={found.usable}, or torch.set_num_threads({found.usable})"
    found_threads = f"torch runs {counted(threads, 'thread')}, and {limit}"
    if found.quota and threads > found.usable:
        section.slow(
            f"{found_threads}: kernels run on {found.usable} at most, torch's own operators on all",
            fix,
        )
    elif threads > found.usable:
        section.slow(f"{found_threads}: they wait for each other", fix)
    elif threads < found.usable:
        section.note(found_threads, f"for the least latency {fix}")
    runtimes = _openmp_runtimes()
    section.facts["OpenMP"] = ", ".join(runtimes) or "none"
    if len(runtimes) > 1:
        section.slow(
            f"{len(runtimes)} OpenMP libraries are loaded, each with threads of its own: "
            f"{', '.join(runtimes)}",
            "find who loads the second one (LD_PRELOAD, a package with its own) and leave it out",
        )


def _openmp_runtimes() -> list[str]:
    """Return the file names of the OpenMP libraries in this process."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return []
    files = {os.path.basename(line.split()[-1]) for line in lines if "/" in line}
    return sorted(file for file in files if file.startswith(_RUNTIMES))
