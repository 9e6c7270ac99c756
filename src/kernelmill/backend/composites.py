"""Composite operators in a graph: AOTAutograd runs their Python code, which neither Dynamo nor the
code guards see."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from kernelmill.artifact.fingerprint import OPERATORS
from kernelmill.artifact.versions import packages_of
from kernelmill.core.errors import UnsupportedError
from kernelmill.torch_internals.operators import is_composite
from kernelmill.torch_internals.tracing import all_nodes

_KNOWN = frozenset(
    "aten c10d_functional inductor kernelmill mkldnn prim prims quantized quantized_decomposed "
    "sparse".split()
)
"""Namespaces of torch's and of ours, whose versions every entry depends on."""

_OPERATOR, _OVERLOAD = OPERATORS


def packages_of_composites(gm: torch.fx.GraphModule) -> Mapping[str, str]:
    """Return the packages that bring composite operators, with versions, which stand for the code.
    UnsupportedError names an operator that no package brings."""
    found: dict[str, str] = {}
    for overload in _overloads(gm):
        if overload.namespace in _KNOWN or not is_composite(overload):
            continue
        module = sys.modules.get(overload.namespace)
        versions = {} if module is None else packages_of([module])
        if not versions:
            raise UnsupportedError(
                f"it calls {overload.name()}, which torch takes apart by code that cannot be "
                "compared: register it for CPU, or with torch.library.custom_op"
            )
        found |= versions
    return found


def _overloads(gm: torch.fx.GraphModule) -> Iterator[Any]:
    for node in all_nodes(gm):
        target: Any = node.target
        if isinstance(target, _OVERLOAD):
            yield target
        elif isinstance(target, _OPERATOR):
            yield from (getattr(target, name) for name in target.overloads())
