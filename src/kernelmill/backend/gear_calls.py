"""The call of a graph with gears: the program of its gear, or what answers a miss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Union

import torch

from kernelmill.backend.gears import CaptureGears
from kernelmill.backend.padding import PaddedCalls
from kernelmill.compiler import compile_gears, compile_graph
from kernelmill.config import CompilerConfig
from kernelmill.graph.ir import Graph, Input
from kernelmill.runtime.geared import GearedProgram

Call = Callable[..., Any]
Otherwise = Callable[[tuple[Any, ...]], Union[list[Any], None]]
"""Runs a call that no gear takes, or gives None when it cannot either."""


def geared_call(
    graph: Graph, gears: CaptureGears, config: CompilerConfig
) -> tuple[Call, GearedProgram]:
    """The function that runs `graph`, compiled for each gear, and those programs. For sizes
    that no gear has it raises GearError, pads the arguments, or runs a program for all sizes, as
    config.inference_config.gear_miss says. PaddingError when padding could change a result."""
    options = config.inference_config
    otherwise: Otherwise | None = None
    if options.gear_miss == "dynamic":
        dynamic = compile_graph(graph, config).call
        otherwise = lambda args: dynamic(*args)  # noqa: E731
    program = compile_gears(graph, list(gears.values.values()), config)
    if options.gear_miss == "pad":
        otherwise = PaddedCalls(graph, gears, program, frozenset(options.gear_pad_masks))
    return program.caller(_refuser(graph, gears, otherwise)), program


def _refuser(graph: Graph, gears: CaptureGears, otherwise: Otherwise | None) -> Call:
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
        made = None if otherwise is None else otherwise(args)
        if made is not None:
            return made
        raise gears.refusal(shapes) from None

    return refuse
