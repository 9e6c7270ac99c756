"""Writes of an exported program that torch cannot turn into values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

from kernelmill.torch_internals.operators import OpOverload, schema_of

_aten = torch.ops.aten


def refused_write(program: ExportedProgram) -> str | None:
    """Describe the tensors of a program, that torch has failed to decompose, with writes that it
    cannot follow, and the remedy; None where there is none."""
    holders: dict[torch.UntypedStorage, list[str]] = {}
    nodes = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    for spec in program.graph_signature.input_specs:
        traced = nodes[spec.arg.name].meta.get("val")
        if isinstance(traced, torch.Tensor) and traced.layout == torch.strided:
            name = spec.target or spec.arg.name
            holders.setdefault(traced.untyped_storage(), []).append(name)
    for written in _written(program.graph):
        names = holders.get(written.meta["val"].untyped_storage(), [])
        if len(names) > 1:
            listed = " and ".join(names)
            return f"{listed} share memory, and one of them is written to: clone it before"
        if any(view.target is _aten.as_strided.default for view in _views(written)):
            name = names[0] if names else "a tensor"
            return (
                f"{name} is written to through as_strided in a way that no trace can follow: "
                "write through slices of it, or to a clone"
            )
    return None


def _written(graph: fx.Graph) -> Iterator[fx.Node]:
    for node in graph.nodes:
        if not isinstance(node.target, OpOverload):
            continue
        for argument, value in zip(schema_of(node.target).arguments, node.args, strict=False):
            alias: Any = argument.alias_info
            if alias is not None and alias.is_write and isinstance(value, fx.Node):
                yield value


def _views(node: fx.Node) -> Iterator[fx.Node]:
    """Yield a tensor, and those it is a view of, up to the owner of the memory."""
    memory = node.meta["val"].untyped_storage()
    while True:
        yield node
        first = node.args[0] if node.args else None
        if not isinstance(first, fx.Node) or first.meta["val"].untyped_storage() != memory:
            return
        node = first
