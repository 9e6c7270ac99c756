"""The call of a graph with gears: the program of its gear, or what answers a miss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernelmill.backend.gears import CaptureGears
from kernelmill.compiler import compile_gears, compile_graph
from kernelmill.config import CompilerConfig
from kernelmill.graph.ir import Graph, Input

Call = Callable[..., Any]


def geared_call(graph: Graph, gears: CaptureGears, config: CompilerConfig) -> Call:
    """The function that runs `graph`, compiled for each gear. It raises GearError for sizes that
    no gear has, or runs a program for all sizes, as config.inference_config.gear_miss says."""
    otherwise: Call | None = None
    if config.inference_config.gear_miss == "dynamic":
        otherwise = compile_graph(graph, config).call
    program = compile_gears(graph, list(gears.values.values()), config)
    return program.caller(_refuser(graph, gears, otherwise))


def _refuser(graph: Graph, gears: CaptureGears, otherwise: Call | None) -> Call:
    names = [
        (number, entry.value.name)
        for number, entry in enumerate(graph.inputs)
        if isinstance(entry, Input) and entry.role == "user"
    ]

    def refuse(args: tuple[Any, ...], error: Exception | None) -> Any:
        shapes = {
            name: tuple(args[number].shape)
            for number, name in names
            if isinstance(args[number], torch.Tensor)
        }
        if error is not None and gears.takes(shapes):
            raise error
        if otherwise is not None:
            return otherwise(*args)
        raise gears.refusal(shapes) from None

    return refuse
