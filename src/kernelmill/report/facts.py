"""The facts of a report: gathered once (gather.py, measuring.py), shown as text, JSON and HTML.

Times are in nanoseconds, sizes in bytes. None is an unknown value: sizes of a program that was
never called, times that were not measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Literal

from kernelmill.backend.report import Capture
from kernelmill.core.dataclass import dataclass

if TYPE_CHECKING:
    from kernelmill.compiler.report import GraphReport, KernelReport
    from kernelmill.core.target.isa import Isa
    from kernelmill.kernel.ir import Kernel

Bound = Literal["", "operations", "bytes"]
Outcome = Literal["not measured", "faster", "as fast", "slower"]

AT_LIMIT = 0.9
"""Share of the machine's limit from which nothing is left to gain in a kernel."""


@dataclass(frozen=True)
class MachineFacts:
    """The machine that limits are computed for, with `threads` of torch.

    `calibrated`: its rates were measured here (`kernelmill calibrate`); else they are the built-in
    ones of its instruction set. `memory` is bytes a nanosecond of one core.
    """

    processor: str
    isa: str
    threads: int
    calibrated: bool
    memory: float


@dataclass(frozen=True)
class GraphCounts:
    """Graphs that Dynamo and AOTAutograd made of a model, the number of them that run in torch as a
    whole, and of graph breaks."""

    captured: int
    refused: int
    breaks: int


@dataclass(frozen=True)
class Break:
    """A graph break of Dynamo's. `place` is "model.py:8 in forward" and `code` that line; both are
    "" where unknown."""

    reason: str
    place: str
    code: str


@dataclass(frozen=True)
class TensorUse:
    """A tensor that a step reads or writes. `what` names it: "x", "weight fc.weight", "step 3"
    (made by that step), "result", "packed weights"."""

    what: str
    tensor: str
    bytes: int | None


@dataclass(frozen=True)
class Step:
    """A launch of a kernel, or an operator that runs in ATen (`reason` says why).

    title        name of the kernel, as the store and profilers have it, or of the operator
    schedule     schedule of the kernel: its tiles, copies and tasks
    scope        name of the super kernel it is in
    module       path of the module that called its first operator: "layers.0.up"
    after        steps that made its operands
    bytes        read and written, each element once
    operations   on elements; a multiply-add is two
    limit        the least time by the machine's rates on all threads, and the rate it is `bound` by
    time         of a call, the median; from the first thread's beginning to the last one's end
    threads      number of threads that worked on it
    """

    number: int
    kind: Literal["kernel", "aten"]
    title: str
    template: str
    operators: tuple[str, ...]
    origin: str
    scope: str
    reads: tuple[TensorUse, ...]
    writes: tuple[TensorUse, ...]
    after: tuple[int, ...]
    tasks: int | None = None
    bytes: int | None = None
    operations: int | None = None
    limit: float | None = None
    bound: Bound = ""
    reason: str = ""
    time: float | None = None
    threads: int | None = None
    schedule: str = ""
    module: str = ""

    @property
    def share(self) -> float | None:
        """The limit as a part of the time; above 1 where the rates of the machine are too low."""
        if self.limit is None or not self.time:
            return None
        return self.limit / self.time


@dataclass(frozen=True)
class Super:
    """A super kernel: steps `first` up to `last`, as one launch."""

    name: str
    scope: str
    first: int
    last: int
    barriers: int
    elided: int
    time: float | None = None


@dataclass(frozen=True)
class ArenaTensor:
    """A tensor in the arena, from the step that writes it to the last that reads it (inclusive)."""

    what: str
    tensor: str
    offset: int
    bytes: int
    first: int
    last: int


@dataclass(frozen=True)
class Memory:
    """The arena over a call. `live` is the size of live tensors at each step, and `placed` the
    tensors in it; both are empty where sizes are unknown."""

    arena: int | None
    live: tuple[int, ...]
    placed: tuple[ArenaTensor, ...]
    weights: int
    packed: int


@dataclass(frozen=True)
class ProgramFacts:
    """One compiled program. `sizes` are those of its symbols in the last call, `gear` the sizes
    that it is for where the model has gears, `padded` the part of its arguments that is padding in
    the measured calls, and `calls` the number of its runs in one of them. `products` has the
    methods of float32 products, and their numbers of launches, `store` its kernels as they were
    looked for in the store."""

    name: str
    isa: str
    gear: tuple[int, ...]
    sizes: dict[str, int]
    arguments: tuple[str, ...]
    steps: tuple[Step, ...]
    supers: tuple[Super, ...]
    splits: tuple[str, ...]
    memory: Memory
    store: tuple[KernelReport, ...]
    repacks: int
    copies: int
    packing: int
    argument_elements: int = 0
    padded: float = 0.0
    calls: int | None = None
    products: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def fallbacks(self) -> tuple[Step, ...]:
        return tuple(step for step in self.steps if step.kind == "aten")


@dataclass(frozen=True)
class Bar:
    """A part of the timeline: the work of one thread, from the beginning of the call."""

    thread: int
    program: int
    step: int
    whole: bool
    begin: int
    end: int
    tasks: int


@dataclass(frozen=True)
class Reason:
    """A use of the time of a call, its amount, and what to do about it; reasons need not be
    disjoint."""

    kind: str
    time: float
    text: str
    advice: str


@dataclass(frozen=True)
class CallFacts:
    """A call, measured in turns with eager.

    compiled, eager   a whole call; medians of `rounds`
    least_compiled, least_eager   the shortest of them
    other_work        the part of the processors' time that other processes took meanwhile
    recorded          a whole call while kernels are timed: the one nearest to `compiled`, whose
                      parts follow
    kernels, aten     launches, and operators in ATen
    between           from one step of a program to the next
    outside           everything else: Dynamo's guards, checks of arguments, Python
    threads           names of the timeline's threads, the caller first
    error             why nothing was measured
    """

    rounds: int = 0
    compiled: float | None = None
    eager: float | None = None
    recorded: float | None = None
    kernels: float = 0.0
    aten: float = 0.0
    between: float = 0.0
    outside: float = 0.0
    threads: tuple[str, ...] = ()
    timeline: tuple[Bar, ...] = ()
    reasons: tuple[Reason, ...] = ()
    error: str = ""
    least_compiled: float | None = None
    least_eager: float | None = None
    other_work: float | None = None

    @property
    def speedup(self) -> float | None:
        """Ratio of eager's time to the compiled time."""
        if not self.compiled or self.eager is None:
            return None
        return self.eager / self.compiled

    @property
    def outcome(self) -> Outcome:
        """Verdict; within 5 % is as fast: two measurements of one program differ by as much."""
        speedup = self.speedup
        if speedup is None:
            return "not measured"
        if speedup < 0.95:
            return "slower"
        return "as fast" if speedup <= 1.05 else "faster"


@dataclass(frozen=True)
class Explained:
    """Facts on compiling and calling a model.

    captures        graphs that Dynamo and AOTAutograd made of the model
    reports         the compiler's report on each of them
    graph_breaks    number of graph breaks
    breaks          the place and reason of each, once
    advice          on avoiding some of them
    first_call      seconds of the first call: capture, compile, link, run
    later_call      seconds of the second call
    machine         for which the limits of kernels are computed; None without a program
    programs        steps, memory and kernels of each report's program
    call            a call next to eager's, and the work of its threads
    kernels         kernels by name, each with its instruction set, for their texts
    """

    captures: tuple[Capture, ...]
    reports: tuple[GraphReport, ...]
    graph_breaks: int
    first_call: float
    later_call: float
    advice: tuple[str, ...] = ()
    breaks: tuple[Break, ...] = ()
    machine: MachineFacts | None = None
    programs: tuple[ProgramFacts, ...] = ()
    call: CallFacts = field(default_factory=CallFacts)
    name: str = ""
    kernels: Mapping[str, tuple[Kernel, Isa]] = field(
        default_factory=dict[str, "tuple[Kernel, Isa]"], repr=False
    )

    @property
    def is_compiled(self) -> bool:
        """True if a graph of the model was compiled."""
        return any(not capture.refused for capture in self.captures)

    @property
    def capture_seconds(self) -> float:
        """The part of the first call that Dynamo and AOTAutograd took."""
        return max(0.0, self.first_call - self.compile_seconds - self.later_call)

    @property
    def compile_seconds(self) -> float:
        """The part of the first call that kernelmill took."""
        return sum(c.import_seconds + c.compile_seconds for c in self.captures)
