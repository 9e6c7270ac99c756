"""The call of a graph with gears: the program of its gear, or what answers a miss."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Union

import torch
from torch import fx

from kernelmill.backend.gears import CaptureGears, shapes_of, symbolic
from kernelmill.backend.lazy_gears import LazyGears
from kernelmill.backend.padding import padded_calls
from kernelmill.compiler import GearCompiler, compile_graph
from kernelmill.config import CompilerConfig
from kernelmill.config.tree import REDUCE_OVERHEAD
from kernelmill.core.dim import evaluate, symbols
from kernelmill.core.errors import GearError, PaddingError, UnsupportedError
from kernelmill.core.log import get_logger
from kernelmill.core.roles import InputRole
from kernelmill.graph.ir import Graph, Input
from kernelmill.runtime.geared import Callee, GearedProgram
from kernelmill.runtime.padded_calls import PaddedCalls
from kernelmill.runtime.program import Program

Call = Callable[..., Any]
_aten = torch.ops.aten
_log = get_logger("backend")
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


def geared_call(
    graph: Graph, gears: CaptureGears, config: CompilerConfig, may_wait: bool = False
) -> GearedCall:
    """The function that runs `graph`, compiled for each gear. For sizes that no gear has it raises
    GearError, pads the arguments, or runs a program for all sizes, as
    config.inference_config.gear_miss says. PaddingError when padding could change a result.

    Where gears `may_wait` and the options say so, only that of the first call is compiled here.
    """
    _check_equations(graph, gears)
    waits = may_wait and not config.experimental_config.gears_eager
    pads = config.inference_config.gear_miss == "pad"
    compiler = GearCompiler(graph, list(gears.values.values()), config)
    program = compiler.program
    padded = _padded(graph, gears, program, config) if waits or pads else None
    dynamic = _dynamic_program(graph, config)
    if padded is not None and isinstance(dynamic, Program):
        padded.offer(dynamic)
    call = None if dynamic is None else dynamic.call
    lazy: LazyGears | None = None
    if waits:
        first = gears.values.get(gears.gears.of(shapes_of(gears.arguments)))
        if first is not None:
            compiler.compile([compiler.sizes_of(first)])
        lazy = LazyGears(compiler, padded, call)
    else:
        compiler.compile(compiler.left)
    otherwise: Otherwise | None = None
    if pads:
        otherwise = padded if lazy is None else lazy.larger
    elif call is not None:
        otherwise = lambda args: call(*args)  # noqa: E731
    refuse = _refuser(graph, gears, otherwise, lazy)
    return GearedCall(program.caller(refuse), gears, program, padded)


def _dynamic_program(graph: Graph, config: CompilerConfig) -> Callee | None:
    """The program for all sizes that calls of no gear run: always, or where that is sooner than
    padding, which it need not be able to."""
    miss = config.inference_config.gear_miss
    if miss == "dynamic":
        return compile_graph(graph, config)
    if miss != "pad" or config.mode == REDUCE_OVERHEAD:
        return None
    try:
        return compile_graph(graph, config)
    except UnsupportedError as error:
        _log.info("calls of no gear are padded, whatever that costs: %s", error)
        return None


def _padded(
    graph: Graph, gears: CaptureGears, program: GearedProgram, config: CompilerConfig
) -> PaddedCalls | None:
    """None where padding could change a result, and calls have other ways."""
    options = config.inference_config
    try:
        return padded_calls(graph, gears, program, frozenset(options.gear_pad_masks))
    except PaddingError:
        if options.gear_miss == "pad":
            raise
        return None


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


def _refuser(
    graph: Graph,
    gears: CaptureGears,
    otherwise: Otherwise | None,
    lazy: LazyGears | None = None,
) -> Call:
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
        if gears.takes(shapes):
            if error is not None:
                raise error
            made = None if lazy is None else lazy(args)
            if made is not None:
                return made
        made = None if otherwise is None else otherwise(args)
        if made is not None:
            return made
        raise gears.refusal(shapes) from None

    return refuse
