"""Calls of a graph with gears: the program of its gear, or a substitute where there is none.

Either all gears are compiled at once, or that of the first call at once and the others in the
background. Until its gear has a program, a call runs the first of these: a larger gear with padded
arguments, if the compiler has proved that this changes nothing; the program for all sizes; torch,
if everything is compiled in the background; or its own gear, after waiting for it. Waiting calls
and the background never compile at the same time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from kernelmill.backend.gears import CaptureGears, at, misfit, shapes_of, symbolic, unequal
from kernelmill.backend.report import or_in_torch
from kernelmill.compiler.gears import GearCompiler
from kernelmill.compiler.pipeline import Compiler
from kernelmill.config import CompilerConfig
from kernelmill.config.tree import REDUCE_OVERHEAD
from kernelmill.core.after_fork import RenewedLock
from kernelmill.core.dim import symbols
from kernelmill.core.dtype import InputRole
from kernelmill.core.errors import GearError, InputError, PaddingError, UnsupportedError
from kernelmill.core.log import get_logger
from kernelmill.frontend.conditions import squeezed
from kernelmill.graph.ir import Graph, Input
from kernelmill.passes.dce import DropSizeChecks
from kernelmill.passes.padding.analysis import padding_of
from kernelmill.runtime import background
from kernelmill.runtime.gears.padded_calls import GearedProgram, PaddedCalls, smallest_holding
from kernelmill.runtime.program import Program
from kernelmill.torch_internals.dispatch import outside_modes

Args = tuple[Any, ...]
Results = list[Any]
Sizes = tuple[int, ...]

_FEWEST = 3
"""Gears that must be left for a program for all sizes to be compiled before them."""

_log = get_logger("backend")


class GearedCalls:
    """A graph compiled for each gear. For sizes without a gear, calls raise GearError, are padded,
    or run a program for all sizes, by config.inference_config.gear_miss.

    `program` has the programs; `padded` runs calls at larger gears; None if that may change a
    result, or is not requested.
    """

    def __init__(
        self, graph: Graph, gears: CaptureGears, names: Sequence[str], compiler: Compiler,
        may_wait: bool = False, in_torch: Callable[..., Results] | None = None,
    ) -> None:  # fmt: skip
        """`names` are those of the graph's arguments, as in the gears. If gears `may_wait` and the
        options say so, only the first call's gear is compiled here, and none if calls may be
        `in_torch` until then. PaddingError if requested padding could change a result."""
        config = compiler.config
        for gear, values in gears.values.items():
            if why := unequal(graph, values):
                raise GearError(misfit(gears.gears, gear, why))
        self.gears, self._miss = gears, config.inference_config.gear_miss
        self._users = [  # constants of the graph come behind the arguments
            (number, name)
            for number, (name, entry) in enumerate(zip(names, graph.inputs, strict=False))
            if isinstance(entry, Input) and entry.role == InputRole.USER
        ]
        self._gears = GearCompiler(graph, list(gears.values.values()), compiler)
        self.program = self._gears.program
        self._dynamic: Callable[..., Results] | None = None
        self.padded: PaddedCalls | None = None
        self._in_torch, self._behind = in_torch, in_torch is not None
        waits = in_torch is not None or (may_wait and not config.experimental_config.gears_eager)
        if waits or self._miss == "pad":
            with nullcontext() if self._miss == "pad" else suppress(PaddingError):
                self.padded = _padded_calls(graph, gears, self.program, config)
        # The program for all sizes may be sooner than padding. It need not be able to.
        self._needs_dynamic = self._miss == "dynamic" or (
            self._miss == "pad" and config.mode != REDUCE_OVERHEAD
        )
        if self._needs_dynamic and in_torch is None:
            self._compile_dynamic()
        self._compiling, self._begun = RenewedLock(), background.Begun(self._pieces)
        first = gears.values.get(gears.gears.of(shapes_of(gears.arguments)))
        if not waits:
            self._gears.compile(self._gears.left)
        elif first is not None and not self._behind:
            self._gears.compile([self._gears.sizes_of(first)])
        if not self._behind:  # else the first answer would share its core with the compile
            self._begin_background()

    @property
    def call(self) -> Callable[..., Results]:
        """The function that is called in place of the graph."""
        return self.program.caller(self._answer)

    # ---- calls that the table of programs does not answer ---------------------------------------

    def _answer(self, args: Args, error: Exception | None) -> Results:
        shapes = {
            name: tuple(args[number].shape)
            for number, name in self._users
            if isinstance(args[number], torch.Tensor)
        }
        made: Results | None = None
        if self.gears.takes(shapes):
            if error is not None:
                raise error
            made = self._at_its_gear(args)
        made = self._at_no_gear(args) if made is None else made
        if made is None:
            raise self.gears.refusal(shapes) from None
        self._begin_background()
        return made

    def _at_its_gear(self, args: Args) -> Results | None:
        """Return the results of a call whose gear had no program; None if no gear has its sizes."""
        sizes = self.program.read(args)
        if sizes not in self._gears.gears:
            return None
        if sizes not in self.program.table:
            made = self._meanwhile(args)
            if made is not None:
                return made
            self._compile(sizes)
        return self.program.table[sizes].call(*self.program.pick(args))

    def _meanwhile(self, args: Args) -> Results | None:
        """Return the results by a program for other sizes too; None when there is none yet."""
        if self.padded is not None:
            with suppress(InputError):  # its own gear raises too, or needs no padding
                if (made := self.padded(args)) is not None:
                    return made
        run = self._dynamic or (self._in_torch if self._behind else None)
        return None if run is None else run(*args)

    def _at_no_gear(self, args: Args) -> Results | None:
        """Return the results of a call whose sizes are no gear's; None when that is refused."""
        if self._miss == "dynamic" and (run := self._dynamic or self._in_torch):
            return run(*args)
        if self._miss != "pad" or self.padded is None:
            return None
        made = self.padded(args)
        if made is None:
            gear = smallest_holding(self._gears.left, self.program.read(args))
            if gear is not None:
                self._compile(gear)
                return self.padded(args)
        return made

    # ---- compiling while calls are served -------------------------------------------------------

    def _compile(self, sizes: Sizes) -> None:
        """Compile this gear unless another thread has meanwhile."""
        with self._compiling.lock:
            if sizes not in self.program.table:
                or_in_torch(
                    f"the gear {sizes}",
                    lambda: outside_modes(lambda: self._gears.compile([sizes])),
                    lambda reason: self._gears.run_eagerly(sizes),
                )

    def _compile_dynamic(self) -> None:
        try:
            program = self._gears.compiler.compile(self._gears.graph).program
        except UnsupportedError as error:
            if self._miss == "dynamic" and self._in_torch is None:
                raise
            level = logging.WARNING if self._miss == "dynamic" else logging.INFO
            _log.log(level, "there is no program for all sizes: %s", error)
            return
        self._dynamic = program.call
        if self.padded is not None and isinstance(program, Program):
            self.padded.offer(program)

    def _begin_background(self) -> None:
        """Start the background compile, if any gears are left."""
        if self._gears.left or self._behind:
            self._begun.submit()

    def _pieces(self) -> Iterator[None]:
        try:
            few = len(self._gears.left) < _FEWEST
            if self._dynamic is None and (self._needs_dynamic or not few):
                with self._compiling.lock:
                    self._compile_dynamic()
                yield
            batches = self._gears.batches()
            more = True
            while more:
                with self._compiling.lock:
                    more = next(batches, self) is not self
                yield
        finally:
            self._behind = False  # a failed gear is compiled at its call, which raises


def _padded_calls(
    graph: Graph, gears: CaptureGears, program: GearedProgram, config: CompilerConfig
) -> PaddedCalls:
    """Return the calls at the smallest gear that holds their sizes.

    PaddingError when padding could change a result.
    """
    for symbol in program.symbols:
        if symbol not in graph.symbols:
            raise PaddingError(f'gear_miss="pad": no argument tells {symbol} apart')
    masks = frozenset(config.inference_config.gear_pad_masks)
    padding = padding_of(DropSizeChecks().apply(graph), frozenset(program.symbols), masks)
    tensors = tuple(
        (number, entry.value.shape)
        for number, entry in enumerate(graph.inputs)
        if isinstance(entry, Input)
    )
    # The sizes of a call are checked against the trace, those of gears were.
    fixed = next(iter(gears.values.values()))
    known = fixed.keys() | set(program.symbols)
    padding = replace(padding, fixed=tuple(fixed.items()), tensors=tensors)
    read = [dim for _, shape in tensors for dim in shape]
    read += [dim for _, dim in padding.size_results]
    for result in padding.results:
        read += [*result.strides, *(factor for axis in result.axes for factor in axis)]
    for symbol in sorted({s for dim in read for s in symbols(dim)}):
        if symbol not in known:  # the size of the base of a view, or an integer argument
            raise PaddingError(f'gear_miss="pad": no argument has the size {symbol}')
    return PaddedCalls(padding, program, gears.guards.broken)


# ---- conclusions of the trace --------------------------------------------------------------------


def check_squeezes(gm: fx.GraphModule, gears: CaptureGears) -> None:
    """Raise GearError where `squeeze` would remove a dim in one gear and not in others."""
    for dim, size in squeezed(gm):
        expr = symbolic(size)
        for gear, values in gears.values.items():
            if expr.free_symbols and at(expr, values) == 1:
                why = f"squeeze would take out dim {dim}, and the trace keeps it"
                raise GearError(misfit(gears.gears, gear, why))


Call = Callable[..., Any]


class BackgroundCalls:
    """A graph run by torch until it is compiled in the background, then by the result of `compile`.

    The compile begins after the first call. Where `compile` raises, later calls compile themselves,
    and raise its error until its cause is removed.
    """

    def __init__(self, compile: Callable[[], Call], in_torch: Call) -> None:
        self._compile, self._in_torch = compile, in_torch
        self._run: Call = self._meanwhile
        self._begun = background.Begun(self._pieces)

    def __call__(self, *args: Any) -> Any:
        """Run the graph."""
        return self._run(*args)

    def _meanwhile(self, *args: Any) -> Any:
        results = self._in_torch(*args)
        self._begun.submit()  # after the first answer, which would share its core with the compile
        return results

    def _pieces(self) -> Iterator[None]:
        try:
            self._use(self._compile())
        except Exception:  # the next call meets it, when it tries itself
            self._run = self._at_once
        yield

    def _at_once(self, *args: Any) -> Any:
        self._use(outside_modes(self._compile))
        return self._run(*args)

    def _use(self, run: Call) -> None:
        # Callers may be on their way to any of these. The graphs go that nothing else needs, and
        # work that two callers have submitted is done once.
        self._run = self._in_torch = run
        self._compile = lambda: run
