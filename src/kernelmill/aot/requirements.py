"""What a compiled file asks of the process that loads it: instructions, and a version of torch.

Sizes of caches are no condition: they decide how fast its kernels are, not what these compute.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from kernelmill.artifact.container import Artifact
from kernelmill.artifact.objects import plans_of
from kernelmill.core import knobs
from kernelmill.core.errors import UnsupportedError
from kernelmill.core.isa import host_isa, machine_isa, parse_isa, why_not_here
from kernelmill.core.log import get_logger
from kernelmill.core.version import ABI_VERSION, minor_of
from kernelmill.plan.ir import AtenCall

_MOST_NAMES = 3

_log = get_logger("aot")


def other_machine(ingredients: Mapping[str, str]) -> str:
    """Why this process cannot run the objects; empty where it can. What KERNELMILL_TARGET names
    bounds it, as it does what is compiled."""
    made_for, abi = ingredients.get("kernel.isa", ""), ingredients.get("kernel.abi")
    host, reasons = host_isa(), list[str]()
    if abi != ABI_VERSION:
        reasons.append(f"its calling convention is {abi}, this one's {ABI_VERSION}")
    try:
        isa = parse_isa(made_for)
    except ValueError as error:
        return "; ".join((f"its instruction set: {error}", *reasons))
    reason = why_not_here(isa)
    if not reason and host != machine_isa() and not host.runs(isa):
        reason = f"{knobs.TARGET.name} is {knobs.TARGET.get()}"
    if reason:
        reasons.insert(0, f"its instruction set is {isa.name}, and {reason}")
    return "; ".join(reasons)


def check_torch(artifact: Artifact, path: str) -> None:
    """UnsupportedError when operators of torch would run that are of another minor version than
    those that were compiled for; a warning when only kernels of ours run."""
    recorded, here = artifact.manifest.ingredients.get("torch", "unknown"), torch.__version__
    if minor_of(recorded) == minor_of(here):
        return
    steps = (step for plan in plans_of(artifact) for step in (*plan.steps, *plan.views))
    called = sorted({step.target for step in steps if isinstance(step, AtenCall)})
    if not called:
        _log.warning("%s was compiled with torch %s, and this is torch %s", path, recorded, here)
        return
    more = f" and {len(called) - _MOST_NAMES} more" if len(called) > _MOST_NAMES else ""
    raise UnsupportedError(
        f"it was compiled with torch {recorded}, this is torch {here}, and it calls operators of "
        f"torch ({', '.join(called[:_MOST_NAMES])}{more}), which may have changed: compile it "
        "again with this torch"
    )
