"""Graphs that torch cannot run, or not take apart, as they are."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import fx
from torch.fx.graph import CodeGen

from kernelmill.torch_internals.operators import OpOverload, schema_of

_FUNCTIONAL = {getattr(torch.Tag, name, None) for name in ("inplace", "out")}


def without_functional_form(gm: fx.GraphModule) -> str | None:
    """Why AOTAutograd cannot take a graph of Dynamo's: an operator of some library gives a tensor
    that it was given, and torch does not know such an operator without writing."""
    for node in gm.graph.nodes:
        for overload in _overloads(node.target) if node.op == "call_function" else ():
            returns = schema_of(overload).returns
            known = _FUNCTIONAL & set(overload.tags)
            if any(r.alias_info is not None for r in returns) and not known:
                return f"{overload} gives a tensor that it was given"
    return None


def _overloads(target: Any) -> Iterable[Any]:
    """The overloads of an operator that is not torch's own, which may be named without one."""
    if str(target).split(".")[0] in ("aten", "prims", "prim"):
        return ()
    if isinstance(target, OpOverload):
        return (target,)
    if isinstance(target, type(torch.ops.aten.add)):
        return [getattr(target, name) for name in target.overloads()]
    return ()


class _ComplexNames(CodeGen):
    """Knows the numbers that Python prints of complex ones which are not finite: nanj, infj."""

    def additional_globals(self) -> list[tuple[str, Any]]:
        return [("nanj", complex(0, math.nan)), ("infj", complex(0, math.inf))]


def name_complex_constants(gm: fx.GraphModule) -> None:
    """Make a graph whose constants print so run all the same."""
    arguments = (
        argument for node in gm.graph.nodes for argument in (*node.args, *node.kwargs.values())
    )
    if any(isinstance(a, complex) and not math.isfinite(abs(a)) for a in arguments):
        gm.graph.set_codegen(_ComplexNames())
        gm.recompile()
