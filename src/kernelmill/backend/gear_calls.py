"""The call of a graph with gears: the program of its gear, or what answers a miss."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Union

import torch
from torch import fx

from kernelmill.backend.gears import CaptureGears, symbolic
from kernelmill.backend.padding import padded_calls
from kernelmill.compiler import compile_gears, compile_graph
from kernelmill.config import CompilerConfig
from kernelmill.core.dim import evaluate, symbols
from kernelmill.core.errors import GearError
from kernelmill.core.roles import InputRole
from kernelmill.graph.ir import Graph, Input
from kernelmill.runtime.geared import GearedProgram
from kernelmill.runtime.padded_calls import PaddedCalls

Call = Callable[..., Any]
_aten = torch.ops.aten
_SQUEEZES = (_aten.squeeze, _aten.squeeze_copy)

Otherwise = Callable[[tuple[Any, ...]], Union[list[Any], None]]
"""Runs a call that no gear takes, or gives None when it cannot either."""


@dataclass(frozen=True)
class GearedCall:
    """The function to call, with what it was made of: the programs, and the padding of calls that
    no gear takes, if they are padded."""

    call: Call
    gears: CaptureGears
    program: GearedProgram
    padded: PaddedCalls | None


def geared_call(graph: Graph, gears: CaptureGears, config: CompilerConfig) -> GearedCall:
    """The function that runs `graph`, compiled for each gear. For sizes that no gear has it raises
    GearError, pads the arguments, or runs a program for all sizes, as
    config.inference_config.gear_miss says. PaddingError when padding could change a result."""
    _check_equations(graph, gears)
    options = config.inference_config
    otherwise: Otherwise | None = None
    padded: PaddedCalls | None = None
    if options.gear_miss == "dynamic":
        dynamic = compile_graph(graph, config).call
        otherwise = lambda args: dynamic(*args)  # noqa: E731
    program = compile_gears(graph, list(gears.values.values()), config)
    if options.gear_miss == "pad":
        padded = padded_calls(graph, gears, program, frozenset(options.gear_pad_masks))
        otherwise = padded
    return GearedCall(program.caller(_refuser(graph, gears, otherwise)), gears, program, padded)


def _check_equations(graph: Graph, gears: CaptureGears) -> None:
    """GearError where AOTAutograd's trace has taken sizes for equal that are not so in a gear."""
    for gear, values in gears.values.items():
        for left, right in graph.equations:
            if symbols(left).keys() | symbols(right).keys() <= values.keys():
                sizes = evaluate(left, values), evaluate(right, values)
                if sizes[0] != sizes[1]:
                    raise GearError(
                        gears.misfit(gear, f"its trace takes {left} for {right}, and those are "
                                           f"{sizes[0]} and {sizes[1]}")
                    )  # fmt: skip


def check_squeezes(gm: fx.GraphModule, gears: CaptureGears) -> None:
    """GearError where `squeeze` would take out a dim in one gear and not in others. Torch traces
    sizes that may be 1 as ones that are not, and leaves no guard."""
    for node in gm.graph.nodes:
        packet = getattr(node.target, "overloadpacket", None)
        if packet not in _SQUEEZES or not isinstance(node.args[0], fx.Node):
            continue
        shape = node.args[0].meta["val"].shape
        dims: Any = node.args[1] if len(node.args) > 1 and shape else range(len(shape))
        for dim in dims if isinstance(dims, Iterable) else (dims,):
            expression = symbolic(shape[dim])
            for gear, values in gears.values.items():
                known = {s: values[str(s)] for s in expression.free_symbols if str(s) in values}
                if known and expression.xreplace(known) == 1:
                    raise GearError(
                        gears.misfit(gear, f"squeeze would take out dim {dim}, and the trace keeps "
                                           "it")
                    )  # fmt: skip


def _refuser(graph: Graph, gears: CaptureGears, otherwise: Otherwise | None) -> Call:
    names = [
        (number, entry.value.name)
        for number, entry in enumerate(graph.inputs)
        if isinstance(entry, Input) and entry.role == InputRole.USER
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
