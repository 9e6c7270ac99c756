"""Super kernels: what synchronisation costs, and what one launch in place of many brings.

python -m tools.bench.super      a few minutes; writes docs/performance-superkernel.md
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

import kernelmill
from kernelmill import codegen
from kernelmill.backend.entry import Backend
from kernelmill.compiler import linking
from kernelmill.compiler.drivers import obtain_drivers
from kernelmill.compiler.linking import LoweredProgram
from kernelmill.compiler.objects import obtain, requests_of
from kernelmill.compiler.trial import example_arguments
from kernelmill.config.super_kernel_marks import Mark, RangeOptions
from kernelmill.core.target.machine import host
from kernelmill.inference import cache_compile
from kernelmill.kernel.parser import parse_kernel
from kernelmill.plan.ir import KernelRef, Launch, Plan, TensorResult
from kernelmill.plan.supers import sub_launches
from kernelmill.runtime.program import Program, load
from kernelmill.store.store import open_store
from kernelmill.superkernel import driver_ir, form
from tests import zoo
from tests.unit.runtime.kernels import buffer, tensor_input
from tools.bench.by_machine import noted, publish
from tools.bench.contestants import aot_inductor, inductor
from tools.bench.models import build
from tools.bench.subject import Subject
from tools.bench.tables import duration, table
from tools.machine import description

RESULT = Path("docs/performance-superkernel.md")
SUB_KERNELS = 50
WIDTHS = (32, 64, 128, 256, 512, 1024)
TOWER_WIDTHS = (64, 128, 256)
MODELS = ("mlp", "minilm", "bert", "resnet50", "decoder_step", "gpt2")
TURNS = 60
LEAST_TURNS = 12
MOST_SECONDS = 8.0
"""A comparison of long calls ends after so long, if it has had the least number of turns."""

MLP = "MLP, 24 layers of 64, batch 4"

NOTES = (
    "Synchronisation is the time beyond what one thread takes for all the work. The MLP's 48 "
    "kernels are too small to be split and run on one thread either way, so that a super kernel "
    "saves the difference of the second row for each.\n\n"
    "More is not to be had of two threads: of 10.6 us 3.7 are the entry and its check of 97 "
    "arguments, 5.9 the products with their GELU and 1.0 the norms, so that kernels in half of "
    "the time, with nothing spent on meeting, would make it 1.4 times as fast. Splitting was "
    "tried. By columns each meeting costs more than half of the kernel saves. By rows no meeting "
    "is needed, but every thread reads all weights: the kernels took 4.8 us in place of 6.9, the "
    "call 9.6 in place of 10.6, and the same two tasks are slower where one thread runs them.\n\n"
    "A compiled method (`cache_compile`) is called without Dynamo's guards, as AOTInductor's "
    "package is; the last row has them on both sides.",
    "The narrowest step has kernels of one task. The two widest wait for memory: a call reads all "
    "weights, which no cache holds, and opening regions is a hundredth of it.",
    "One tower of 128 has kernels that hardly fill two threads, and a tower to a thread needs no "
    "meeting. At 64 the call is too short beside its entry and one region, at 256 each tower fills "
    "the team by itself.",
    "`super_kernel_optimize = True`: launches become super kernels where the estimated times say "
    "that it is faster. It is off by default: no model here gets slower by it, but those whose "
    "kernels are long gain nothing, and a driver of a hundred sub-kernels makes the first call "
    "longer by a tenth of a second. On a machine that others use too a team waits in each "
    "sub-kernel for a thread whose processor was taken away, as it does at the end of each region.",
)

Call = Callable[[], object]


def in_turns(calls: dict[str, Call], turns: int = TURNS, each: int = 5) -> dict[str, float]:
    """Seconds of a call: the lower quartile of turns taken one after the other, for a machine that
    others use too."""
    spent: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    start = time.perf_counter()
    for call in calls.values():
        call()
    once = (each + 1) * (time.perf_counter() - start)
    for _ in range(min(turns, max(LEAST_TURNS, int(MOST_SECONDS / once)))):
        for name, call in calls.items():
            call()
            start = time.perf_counter()
            for _ in range(each):
                call()
            spent[name].append((time.perf_counter() - start) / each)
    return {name: statistics.quantiles(times, n=4)[0] for name, times in spent.items()}


def chain(count: int, tasks: int, work: int, mark: str) -> dict[str, Call]:
    """So many trivial kernels, each after the one before: as launches and as one super kernel."""
    text = f"""kernel bump(x: f32[128] in, y: f32[128] out) tasks({tasks}) type "Bump" {{
      %a: f32x16 = load x[task * 64]
      store y[task * 64], %a
    }}"""
    kernel = parse_kernel(text)
    between = [buffer("arena", 128, offset=512 * n) for n in range(count - 1)]
    plan = Plan(
        "chain", (), (tensor_input("x", 128),),
        (buffer("input", 128, source=0), *between, buffer("tensor", 128)), (),
        tuple(Launch("bump", (n, n + 1), (), tasks, 0, work, mark) for n in range(count)),
        (TensorResult(count),), (KernelRef("bump", "Bump", "bump"),), 512 * count,
    )  # fmt: skip
    objects = {"bump": codegen.compile_kernel(kernel, host().isa)}
    fused = form(plan, {"bump": kernel}, threads=2).plan
    (one,) = fused.supers
    driver = driver_ir(one, list(sub_launches(fused, one)), codegen.spin_hint(host().isa))
    x = torch.ones(128)
    apart = load(plan, objects)
    together = load(fused, {**objects, one.name: codegen.emit(driver, host().isa)})
    return {"launches": lambda: apart(x), "super kernel": lambda: together(x)}


def synchronisation() -> dict[str, float]:
    """Seconds a sub-kernel of 50, each split over all threads, beyond what one thread takes for
    all: as launches of their own, and as one super kernel whose team meets after each of them."""
    # The work is said to be more than it is, so that each opens a parallel region.
    calls = chain(SUB_KERNELS, 2, 8000, "sync?debug-sync-all=1")
    threads = torch.get_num_threads()
    found = in_turns(calls)
    torch.set_num_threads(1)
    alone = in_turns(calls)["super kernel"]
    torch.set_num_threads(threads)
    return {name: (seconds - alone) / SUB_KERNELS for name, seconds in found.items()}


def walking() -> dict[str, float]:
    """Seconds from one launch to the next on one thread, with a kernel of one vector."""
    few, many = (in_turns(chain(count, 1, 100, "walk"), each=50) for count in (10, 210))
    return {name: (many[name] - few[name]) / 200 for name in few}


@dataclass(frozen=True)
class Compiled:
    """A model after lowering, called through the entry of its program: without Dynamo's share,
    which is the same for every way of launching."""

    draft: LoweredProgram
    arguments: Sequence[Tensor]

    def program(self, plan: Plan) -> Program:
        """A plan of the model's launches, with the super kernels it has."""
        store, target = open_store(), host()
        entries = obtain(requests_of(plan, self.draft.lowered.kernels), store, target)
        objects = {name: entry.object for name, entry in entries.items()}
        return load(plan, {**objects, **obtain_drivers(plan, store, target)})

    def call(self, plan: Plan) -> Call:
        """That program with the arguments that all have, so that weights lie in one place."""
        program = self.program(plan)
        return lambda: program.call(*self.arguments)

    @property
    def apart(self) -> Plan:
        """Each launch by itself."""
        return replace(self.draft.lowered.plan, supers=())

    def together(self, options: str = "") -> Plan:
        """All in one range."""
        mark = str(Mark("all", options))
        steps = tuple(replace(step, mark=mark) for step in self.apart.steps)
        return form(replace(self.apart, steps=steps), self.draft.lowered.kernels).plan

    @property
    def automatic(self) -> Plan:
        """Super kernels where they are estimated to be faster."""
        options = RangeOptions(stream_fusion=True)
        return form(self.apart, self.draft.lowered.kernels, options).plan


def compiled(model: nn.Module, args: Sequence[Tensor]) -> Compiled:
    """The largest graph of a model."""
    torch._dynamo.reset()
    made: list[linking.Compiled[Any]] = []
    torch.compile(model, backend=Backend(on_compiled=made.append), dynamic=False)(*args)
    draft = max((each.draft for each in made), key=lambda each: len(each.lowered.plan.steps))
    return Compiled(draft, example_arguments(draft.graph))


def mlp() -> dict[str, float]:
    """24 layers, 64 wide, batch 4."""
    case = zoo.mlp(24)
    made = compiled(case.model, case.args)
    peers = {"Inductor": inductor(Subject(case)), "AOTInductor": aot_inductor(Subject(case))}
    scoped = Scoped(case.model)
    through = torch.compile(scoped, backend="kernelmill", dynamic=False)
    with TemporaryDirectory() as folder:
        method = cache_compile(scoped.forward, dynamic=False, cache_dir=folder)
        return in_turns({
            **peers,
            "launches": made.call(made.apart),
            "super kernel": made.call(made.together()),
            "cache_compile": lambda: method(*case.args),
            "torch.compile": lambda: through(*case.args),
        })  # fmt: skip


class Scoped(nn.Module):
    """All of a model in one range."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *args: Tensor) -> object:
        """What the model gives."""
        with kernelmill.scope.super_kernel("all"):
            return self.model(*args)


def decoder(width: int) -> dict[str, float]:
    """Eight decoder layers of this width, one token."""
    heads = max(1, width // 64)
    model = zoo.DecoderStep(8, width, heads, max(1, heads // 2), 4 * width, 512).eval()
    made = compiled(model, (torch.randn(1, 1, width), torch.tensor([100])))
    calls = {"launches": made.call(made.apart), "super kernel": made.call(made.together())}
    return in_turns(calls)


class Towers(nn.Module):
    """Two towers of 8 layers that meet at the end."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.towers = nn.ModuleList(zoo.mlp(8, width).model for _ in range(2))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.towers[0](x) + self.towers[1](y)


def towers(width: int) -> dict[str, float]:
    """The towers with stream-fusion=0 and 1."""
    made = compiled(Towers(width).eval(), (torch.randn(4, width), torch.randn(4, width)))
    plans = {str(n): made.together(f"stream-fusion={n}") for n in (0, 1)}
    return in_turns({name: made.call(plan) for name, plan in plans.items()})


def automatic(name: str) -> tuple[int, dict[str, float]]:
    """How many super kernels automatic ranges make of a model, and a call without and with."""
    case = build(name)
    made = compiled(case.model, case.args)
    plan = made.automatic
    calls = {"launches": made.call(made.apart), "super kernel": made.call(plan)}
    return len(plan.supers), in_turns(calls, 30, 1)


def _faster(found: dict[str, float], slower: str, faster: str) -> str:
    return f"{found[slower] / found[faster]:.2f}x"


def _pair(name: str, found: dict[str, float], slower: str, faster: str) -> tuple[str, ...]:
    return (
        name, duration(found[slower]), duration(found[faster]), _faster(found, slower, faster)
    )  # fmt: skip


def launches_table() -> str:
    """Synchronisation, what a launch costs, and the MLP."""
    name = f"synchronisation of a sub-kernel, {SUB_KERNELS} in a chain"
    rows = [
        _pair(name, synchronisation(), "launches", "super kernel"),
        _pair("a launch on one thread", walking(), "launches", "super kernel"),
    ]
    layers = mlp()
    rows.append(_pair(f"{MLP}: launches", layers, "launches", "super kernel"))
    rows += [
        _pair(f"{MLP}: {peer}, and kernelmill by {ours}", layers, peer, ours)
        for peer, ours in (
            ("AOTInductor", "cache_compile"),
            ("Inductor", "cache_compile"),
            ("Inductor", "torch.compile"),
        )
    ]
    return table(["", "apart", "as a super kernel", "faster"], rows)


def decoder_table() -> str:
    """The decoder step by width."""
    rows = [
        _pair(f"decoder step, 8 layers of {width}", decoder(width), "launches", "super kernel")
        for width in WIDTHS
    ]
    return table(["", "launches", "as a super kernel", "faster"], rows)


def towers_table() -> str:
    """Two towers by width."""
    rows = [
        _pair(f"two towers of 8 layers of {width}", towers(width), "0", "1")
        for width in TOWER_WIDTHS
    ]
    return table(["", "stream-fusion=0", "stream-fusion=1", "faster"], rows)


def automatic_table() -> str:
    """Whole models without marks."""
    rows: list[tuple[str, ...]] = []
    for name in MODELS:
        count, found = automatic(name)
        row = _pair(name, found, "launches", "super kernel")
        rows.append((row[0], str(count), *row[1:]))
    return table(["model", "super kernels", "launches", "automatic ranges", "faster"], rows)


def document(tables: Sequence[str]) -> str:
    """The whole of docs/performance-superkernel.md."""
    parts = [
        "# Performance of super kernels",
        f"{description()} Lower quartile of turns taken one after the other in one process. "
        "`python -m tools.bench.super`, part of `make bench`, measures this. Calls go through the "
        "program's own entry except where another way is named: what is around it is the same "
        "however kernels are launched.",
        tables[0], noted(NOTES[0]), "## Width", tables[1], noted(NOTES[1]), "## Streams",
        tables[2], noted(NOTES[2]), "## Automatic ranges", NOTES[3], tables[3],
    ]  # fmt: skip
    return "\n\n".join(part for part in parts if part) + "\n"


def main() -> None:
    """Measures, prints and writes the result."""
    with torch.no_grad():
        text = document([launches_table(), decoder_table(), towers_table(), automatic_table()])
    publish(RESULT, text)
    print(text)


if __name__ == "__main__":
    main()
