"""The sizes of a call, held against what the program was compiled for."""

from __future__ import annotations

from collections.abc import Mapping

from kernelmill.aot.manifest import Limit, Manifest
from kernelmill.artifact.conditions import condition_check
from kernelmill.core.errors import InputError
from kernelmill.plan.ir import Plan
from kernelmill.runtime.engine import CheckSizes


def size_check(manifest: Manifest, plan: Plan) -> CheckSizes | None:
    """What a program asks of the values of its symbols; None when that is nothing."""
    if not manifest.limits and not manifest.conditions:
        return None
    fits = condition_check(manifest.conditions, plan)

    def check(values: Mapping[str, int]) -> None:
        for limit in manifest.limits:
            value = values.get(limit.symbol, limit.low)
            if value < limit.low or (limit.high is not None and value > limit.high):
                raise InputError(_outside(limit, value))
        fits(values)

    return check


def _outside(limit: Limit, value: int) -> str:
    most = "" if limit.high is None else f" and at most {limit.high}"
    return (
        f"{limit.where} is {value}, and the program was compiled for at least {limit.low}{most}: "
        "compile it with other dynamic_shapes"
    )
