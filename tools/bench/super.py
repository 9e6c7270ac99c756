"""Super kernels: what synchronisation costs, and what one launch in place of many brings.

python -m tools.bench.super      a few minutes; writes docs/performance-superkernel.md
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

import kernelmill
from kernelmill import codegen
from kernelmill.core.target import host
from kernelmill.kernel.parser import parse_kernel
from kernelmill.plan.ir import KernelRef, Launch, Plan, TensorResult
from kernelmill.plan.supers import sub_launches
from kernelmill.runtime import load
from kernelmill.superkernel import driver_ir, form
from tests import zoo
from tests.unit.runtime.kernels import buffer, tensor_input
from tools.bench.contestants import aot_inductor, inductor
from tools.bench.subject import Subject
from tools.bench.tables import duration, table
from tools.machine import description

RESULT = Path("docs/performance-superkernel.md")
SUB_KERNELS = 50
WIDTHS = (32, 64, 128, 256, 512, 1024)
TURNS = 60

Call = Callable[[], object]


def in_turns(calls: dict[str, Call], turns: int = TURNS, each: int = 5) -> dict[str, float]:
    """Seconds of a call: the lower quartile of turns taken one after the other, for a machine that
    others use too."""
    spent: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(turns):
        for name, call in calls.items():
            call()
            start = time.perf_counter()
            for _ in range(each):
                call()
            spent[name].append((time.perf_counter() - start) / each)
    return {name: statistics.quantiles(times, n=4)[0] for name, times in spent.items()}


def synchronisation() -> dict[str, float]:
    """Seconds a sub-kernel of 50 trivial ones in a chain, each split over all threads: as launches
    of their own, and as one super kernel whose team meets after each of them."""
    text = """kernel bump(x: f32[128] in, y: f32[128] out) tasks(2) type "Bump" {
      %a: f32x16 = load x[task * 64]
      store y[task * 64], %a
    }"""
    kernel = parse_kernel(text)
    kinds = ["input", *["tensor"] * SUB_KERNELS]
    buffers = tuple(buffer(kind, 128, source=0 if kind == "input" else -1) for kind in kinds)
    # The work is said to be more than it is, so that each opens a parallel region.
    steps = [
        Launch("bump", (n, n + 1), (), 2, 0, 8000, "sync?debug-sync-all=1")
        for n in range(SUB_KERNELS)
    ]
    plan = Plan(
        "chain", (), (tensor_input("x", 128),), buffers, (), tuple(steps),
        (TensorResult(SUB_KERNELS),), (KernelRef("bump", "Bump", "bump"),),
    )  # fmt: skip
    objects = {"bump": codegen.compile_kernel(kernel, host())}
    fused = form(plan, {"bump": kernel}, threads=2).plan
    (one,) = fused.supers
    driver = driver_ir(one, list(sub_launches(fused, one)), host().triple)
    x = torch.ones(128)
    apart = load(plan, objects)
    together = load(fused, {**objects, one.name: codegen.emit(driver, host())})
    calls: dict[str, Call] = {"launches": lambda: apart(x), "super kernel": lambda: together(x)}
    threads = torch.get_num_threads()
    found = in_turns(calls)
    torch.set_num_threads(1)
    alone = in_turns(calls)["super kernel"]
    torch.set_num_threads(threads)
    return {name: (seconds - alone) / SUB_KERNELS for name, seconds in found.items()}


def compiled(model: nn.Module, args: Sequence[Tensor], fused: bool) -> Call:
    """A model through kernelmill, as launches or as super kernels wherever possible."""
    config = kernelmill.CompilerConfig()
    config.experimental_config.super_kernel_optimize = fused
    backend = kernelmill.get_backend(compiler_config=config)
    call = torch.compile(model, backend=backend, dynamic=False)
    call(*args)
    return lambda: call(*args)


def mlp() -> dict[str, float]:
    """24 layers, 64 wide, batch 4."""
    case = zoo.mlp(24)
    return in_turns({
        "Inductor": inductor(Subject(case)),
        "AOTInductor": aot_inductor(Subject(case)),
        "launches": compiled(case.model, case.args, False),
        "super kernel": _scoped(case.model, case.args),
    })  # fmt: skip


class Scoped(nn.Module):
    """All of a model in one range."""

    def __init__(self, model: nn.Module, options: str = "") -> None:
        super().__init__()
        self.model, self.options = model, options

    def forward(self, *args: Tensor) -> object:
        with kernelmill.scope.super_kernel("all", self.options):
            return self.model(*args)


def _scoped(model: nn.Module, args: Sequence[Tensor], options: str = "") -> Call:
    return compiled(Scoped(model, options), args, False)


def decoder(width: int) -> dict[str, float]:
    """Eight decoder layers of this width, one token."""
    heads = max(1, width // 64)
    model = zoo.DecoderStep(8, width, heads, max(1, heads // 2), 4 * width, 512)
    args = (torch.randn(1, 1, width), torch.tensor([100]))
    return in_turns({
        "launches": compiled(model.eval(), args, False), "super kernel": _scoped(model.eval(), args)
    })  # fmt: skip


class Towers(nn.Module):
    """Two towers of 8 layers that meet at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.towers = nn.ModuleList(zoo.mlp(8, 256).model for _ in range(2))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.towers[0](x) + self.towers[1](y)


def towers() -> dict[str, float]:
    """The towers with stream-fusion=0 and 1."""
    model, args = Towers().eval(), (torch.randn(4, 256), torch.randn(4, 256))
    return in_turns({
        "stream-fusion=0": _scoped(model, args),
        "stream-fusion=1": _scoped(model, args, "stream-fusion=1"),
    })  # fmt: skip


def _faster(found: dict[str, float], slower: str, faster: str) -> str:
    return f"{found[slower] / found[faster]:.2f}x"


def main() -> None:
    """Measures, prints and writes the result."""
    rows: list[tuple[str, ...]] = []
    with torch.no_grad():
        sync = synchronisation()
        rows.append(
            (
                f"synchronisation of a sub-kernel, {SUB_KERNELS} in a chain",
                duration(sync["launches"]),
                duration(sync["super kernel"]),
                _faster(sync, "launches", "super kernel"),
            )
        )
        layers = mlp()
        rows += [
            (f"MLP, 24 layers of 64, batch 4: {name}", duration(layers[name]),
             duration(layers["super kernel"]), _faster(layers, name, "super kernel"))
            for name in ("Inductor", "AOTInductor", "launches")
        ]  # fmt: skip
        for width in WIDTHS:
            found = decoder(width)
            times = duration(found["launches"]), duration(found["super kernel"])
            gain = _faster(found, "launches", "super kernel")
            rows.append((f"decoder step, 8 layers of {width}", *times, gain))
            print(rows[-1], flush=True)
        found = towers()
        times = duration(found["stream-fusion=0"]), duration(found["stream-fusion=1"])
        gain = _faster(found, "stream-fusion=0", "stream-fusion=1")
        rows.append(("two towers, stream-fusion 0 and 1", *times, gain))
    text = "\n\n".join(
        [
            "# Performance of super kernels",
            f"{description()}. Lower quartile of {TURNS} turns taken one after the other in one "
            "process. `python -m tools.bench.super` measures this.",
            table(["", "apart", "as a super kernel", "faster"], rows),
            "Synchronisation is the time beyond what one thread takes for all the work. An MLP "
            "this small has kernels of one task each, which run on one thread either way: only "
            "the executor's walk between launches is saved.",
        ]
    )
    RESULT.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
