"""The plan: everything that is needed to run a program, as frozen data.

No callables, no torch objects: a plan can be printed, parsed, hashed, saved and read elsewhere.
Sizes are dims: integers, or expressions over the plan's symbols that are evaluated at each call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from enum import StrEnum
from typing import Union

from kernelmill.config.super_kernel_marks import UNMARKED, Mark
from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, Sym, evaluate, of_atom, parse
from kernelmill.core.dtype import DType, InputRole
from kernelmill.core.scalar import NUMBERS


@dataclass(frozen=True)
class TensorInput:
    """A tensor argument, and the properties that the entry checks. Strides in elements.

    `name` is the user's argument for messages ("input_ids", "encoder.layer.0.weight").
    `updated`: the program writes into it.
    """

    name: str
    dtype: DType
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    role: InputRole = InputRole.USER
    updated: bool = False


@dataclass(frozen=True)
class SymbolInput:
    """An integer argument that binds `symbol`."""

    symbol: str


class BufferKind(StrEnum):
    """The owner of a piece of memory."""

    INPUT = "input"  # an argument's
    TENSOR = "tensor"  # a torch tensor's: a result, or what goes into or comes out of ATen
    ARENA = "arena"  # the call's
    PACKED = "packed"  # made from arguments by the `prepare` steps, kept until those change
    VIEW = "view"  # that of another one, for a result: `Plan.views` makes it


@dataclass(frozen=True)
class BufferSpec:
    """A piece of memory that steps read or write, by its place in `Plan.buffers`. `source` is the
    number of the argument, `offset` a place in the arena in bytes, 64-byte aligned."""

    kind: BufferKind
    dtype: DType
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    source: int = -1
    offset: Dim = 0


class Order(StrEnum):
    """When the tasks of a launch may run. AFTER: all tasks of launches before it. BESIDE: with
    those of the launch before it. BEHIND: each when the task of the same number of the launch
    before it, which has as many, has run on the same thread; the rest as BESIDE."""

    AFTER = "after"
    BESIDE = "beside"
    BEHIND = "behind"


MOST_TOGETHER = 8
"""Limit of launches that run at the same time."""


@dataclass(frozen=True)
class Launch:
    """Run a kernel's tasks. `buffers` are numbers in `Plan.buffers`, in the kernel's order; -1 is
    the status word. `dims` are values for the kernel's dims. `work` is the estimated time of all
    tasks on one core in nanoseconds: below a threshold no parallel region is opened. `mark` says
    which super-kernel range it is in.
    `origin`, its first operator's, is for reports: the text of a plan has none."""

    kernel: str
    buffers: tuple[int, ...]
    dims: tuple[Dim, ...]
    tasks: Dim
    scratch: Dim
    work: Dim
    mark: Mark = UNMARKED
    order: Order = Order.AFTER
    origin: str = field(default="", compare=False)


Literal = Union[None, bool, int, float, str, tuple["Literal", ...]]


@dataclass(frozen=True)
class AtenCall:
    """Call an ATen operator, "aten.topk.default".

    Arguments are literals; ("tensor", n) is buffer n, ("dim", text) a dim, ("float", text) and
    ("bool", text) the number that the word of a dim stands for, ("dtype", name),
    ("layout", name), ("device", name), ("memory_format", name), ("operator", name),
    ("complex", text), ("list", ...) and ("tuple", ...) what they say, and ("body", name) what a
    higher-order operator is given: a program whose calls give a tuple, or ("single", name) their
    only result; or what only this process has.
    `results` are buffer numbers (-1: dropped); `binds` are (symbol, result, dim) as in the graph.
    `mark` is as for a launch.
    """

    target: str
    args: tuple[Literal, ...]
    kwargs: tuple[tuple[str, Literal], ...]
    results: tuple[int, ...]
    binds: tuple[tuple[str, int, int], ...] = ()
    origin: str = ""
    mark: Mark = UNMARKED


Step = Union[Launch, AtenCall]


@dataclass(frozen=True)
class TensorResult:
    """Result is the tensor of this buffer: a new one (kind "tensor"), an argument itself ("input"),
    or a view of one of these ("view")."""

    buffer: int


@dataclass(frozen=True)
class DimResult:
    """Result is an integer, or the number of another kind ("float", "bool") that it stands for."""

    value: Dim
    kind: str = ""


Result = Union[TensorResult, DimResult, None]

Part = tuple[int, int]
"""A part of a team of threads, from one 64th to another; equal ones are the thread there."""

TEAM_PARTS = 64
WHOLE_TEAM: Part = (0, TEAM_PARTS)


def thread_range(part: Part, threads: int) -> range:
    """Return the threads of a part, at least one, of a team. The driver of a super kernel does the
    same arithmetic."""
    first = part[0] * threads // TEAM_PARTS
    return range(first, max(first + 1, part[1] * threads // TEAM_PARTS))


@dataclass(frozen=True)
class SuperKernel:
    """Launches `first` up to `last` of the plan's steps as one launch by one team of threads.

    Every thread walks them in order. Launch i is split over the threads of `parts[i]`; these wait
    first until the launches `waits[i]` (numbers from `first` on) are done by all of their threads.
    `name` is the driver's among the objects, `scope` the range's. With no waits and one part for
    all, each thread runs from the first launch to the last without looking at the others.
    """

    name: str
    scope: str
    first: int
    last: int
    parts: tuple[Part, ...]
    waits: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class KernelRef:
    """A kernel the plan launches, and the operators that it fused, for reports. `digest` is that of
    its text, and of its key in the store once the plan is linked."""

    name: str
    type: str
    digest: str
    operators: tuple[str, ...] = ()
    origin: str = ""

    @property
    def title(self) -> str:
        """Name in reports and profilers: the kernel's name in the store."""
        return f"{self.type}_{self.digest.rpartition('_')[2]}"


@dataclass(frozen=True)
class Plan:
    """A whole program.

    `prepare` steps fill the packed buffers; they run at the first call and again when one of the
    arguments they read has changed. `checks` are messages for status codes: code c - 1 indexes it.
    `equations` are dims taken for equal: a call where they differ is refused. `views` are calls of
    operators that make views, when all steps have run: of arguments as the caller passed them,
    wherever they begin in memory, of tensors that steps have made, and of earlier views; and among
    these, without results, assertions.
    """

    name: str
    symbols: tuple[Sym, ...]
    inputs: tuple[TensorInput | SymbolInput, ...]
    buffers: tuple[BufferSpec, ...]
    prepare: tuple[Launch, ...]
    steps: tuple[Step, ...]
    results: tuple[Result, ...]
    kernels: tuple[KernelRef, ...]
    arena_bytes: Dim = 0
    checks: tuple[str, ...] = ()
    supers: tuple[SuperKernel, ...] = ()
    equations: tuple[tuple[Dim, Dim], ...] = ()
    views: tuple[AtenCall, ...] = ()


# Without annotations as texts, as in artifact/manifest.py, which reads these by their types.


@dataclass(frozen=True)
class PaddedInput:
    """Argument `number` is copied into zeros of this shape and these strides (in elements), both at
    the gear's sizes; its elements come first in each dim."""

    number: int
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]


@dataclass(frozen=True)
class PaddedResult:
    """Result `number`, which contains the result of the program without padding.

    Each of its dims is a row-major product of `axes`; the true elements are those inside the true
    size of every axis. `strides` are what eager's result has, at the true sizes.
    """

    number: int
    axes: tuple[tuple[Dim, ...], ...]
    strides: tuple[Dim, ...]


@dataclass(frozen=True)
class Padding:
    """Padding of arguments to a gear's sizes, and cropping of results to the true ones. Inputs and
    results that are not named here pass through.

    sizes           integer arguments (number, symbol) that become the gear's size
    size_results    integer results (number, dim) that become the true one
    ranges          (symbol, low, high or None): hold for every true size for which the program was
                    traced
    fixed           (symbol, size): sizes of one gear, of which those count that are the same in all
    tensors         the shapes of all tensor arguments (number, shape)
    """

    inputs: tuple[PaddedInput, ...]
    results: tuple[PaddedResult, ...]
    sizes: tuple[tuple[int, str], ...] = ()
    size_results: tuple[tuple[int, Dim], ...] = ()
    ranges: tuple[tuple[str, int, Dim | None], ...] = ()
    fixed: tuple[tuple[str, int], ...] = ()
    tensors: tuple[tuple[int, tuple[Dim, ...]], ...] = ()


LINES_BUFFER = -2
"""Stands for the threads' cache lines among the buffers of a driver."""


def whole_launch(plan: Plan, super_kernel: SuperKernel) -> Launch:
    """Return the launch that stands for all of a super kernel's.

    Its buffers are the lines, then those of each sub-kernel; its tasks say how many threads can be
    busy at a time: the widest launch of each part of the team, together.
    """
    launches = list(sub_launches(plan, super_kernel))
    widest: dict[Part, int] = {}
    for launch, part in zip(launches, super_kernel.parts, strict=True):
        widest[part] = max(widest.get(part, 0), evaluate(launch.tasks, {}))
    buffers = (LINES_BUFFER, *(buffer for launch in launches for buffer in launch.buffers))
    work = sum(evaluate(launch.work, {}) for launch in launches)
    return Launch(super_kernel.name, buffers, (), sum(widest.values()), 0, work)


def sub_launches(plan: Plan, super_kernel: SuperKernel) -> Iterator[Launch]:
    """Yield the launches of a super kernel, in order."""
    for step in plan.steps[super_kernel.first : super_kernel.last]:
        assert isinstance(step, Launch)
        yield step


DIMS = frozenset(("dim", *NUMBERS))
"""The tags of dims among ATen's arguments."""

BODIES = frozenset(("body", "single"))
"""The tags of bodies."""


def buffers_in(literal: Literal) -> Iterator[int]:
    """Yield the numbers of the buffers, ("tensor", n), anywhere inside."""
    if isinstance(literal, tuple):
        if len(literal) == 2 and literal[0] == "tensor" and isinstance(literal[1], int):
            yield literal[1]
        else:
            for part in literal:
                yield from buffers_in(part)


def bodies_of(plan: Plan) -> list[str]:
    """Return the names of the bodies that the plan's higher-order operators take, each once."""
    calls = [step for step in plan.steps if isinstance(step, AtenCall)]
    return list(dict.fromkeys(name for call in calls for name in bodies_in(call)))


def bodies_in(call: AtenCall) -> Iterator[str]:
    """Yield the names of the bodies that one operator takes."""
    return _bodies_in((call.args, call.kwargs))


def _bodies_in(literal: Literal) -> Iterator[str]:
    if isinstance(literal, tuple):
        if len(literal) == 2 and literal[0] in BODIES and isinstance(literal[1], str):
            yield literal[1]
        else:
            for part in literal:
                yield from _bodies_in(part)


def dims_in(literal: Literal, symbols: Iterable[Sym]) -> Iterator[Dim]:
    """Yield the dims, ("dim", text) and the like, inside. ValueError for an unknown symbol."""
    if isinstance(literal, tuple):
        if len(literal) == 2 and literal[0] in DIMS and isinstance(literal[1], str):
            yield dim_of(literal[1], symbols)
        else:
            for part in literal:
                yield from dims_in(part, symbols)


def dim_of(text: str, symbols: Iterable[Sym]) -> Dim:
    """Return the dim that a text stands for. ValueError when it names an unknown symbol."""
    return parse(text, {symbol.name: of_atom(symbol) for symbol in symbols})
