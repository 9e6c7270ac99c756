"""The drivers of a plan's super kernels, through the store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernelmill import codegen
from kernelmill.codegen import key_of
from kernelmill.core.target.isa import Isa
from kernelmill.plan.ir import Plan, SuperKernel
from kernelmill.plan.supers import sub_launches
from kernelmill.store.entry import Compiled
from kernelmill.store.store import Store
from kernelmill.superkernel import driver_ir

MOST_CHARACTERS = 120
"""Limit on a type's name in the store; longer ones are cut, the digest tells them apart."""


def driver_text(plan: Plan, super_kernel: SuperKernel, isa: Isa) -> str:
    """Return the LLVM IR that the object of a driver is compiled from."""
    launches = list(sub_launches(plan, super_kernel))
    return driver_ir(super_kernel, launches, codegen.spin_hint(isa))


def driver_type(super_kernel: SuperKernel) -> str:
    """Return the type of a super kernel in the store."""
    return super_kernel.name[:MOST_CHARACTERS]


def driver_info(plan: Plan, super_kernel: SuperKernel, text: str) -> dict[str, Any]:
    """Return the .info of a driver: its kernels in order, with their parts and waits."""
    launches = sub_launches(plan, super_kernel)
    kernels = {ref.name: ref.title for ref in plan.kernels}
    return {
        "scope": super_kernel.scope,
        "sub_kernels": [
            {"kernel": kernels[launch.kernel], "tasks": launch.tasks, "part": part, "waits": waits}
            for launch, part, waits in zip(
                launches, super_kernel.parts, super_kernel.waits, strict=True
            )
        ],
        "driver": text,
    }


def obtain_drivers(plan: Plan, store: Store, isa: Isa) -> dict[str, bytes]:
    """Return the objects of a plan's drivers by name.

    They are stored as `sk_{scope}_start_{op}_end_{op}_{digest}`.
    """
    found: dict[str, bytes] = {}
    for super_kernel in plan.supers:
        text = driver_text(plan, super_kernel, isa)
        type = driver_type(super_kernel)
        compile = _compiler(plan, super_kernel, text, isa)
        found[super_kernel.name] = store.get_or_compile(
            key_of(isa, driver=text), type, compile
        ).object
    return found


def _compiler(plan: Plan, super_kernel: SuperKernel, text: str, isa: Isa) -> Callable[[], Compiled]:
    def compile() -> Compiled:
        info = driver_info(plan, super_kernel, text)
        return Compiled(codegen.emit(text, isa), info, {"kernelName": super_kernel.name})

    return compile
