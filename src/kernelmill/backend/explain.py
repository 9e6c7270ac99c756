"""`kernelmill.explain`: what happens to a model, as text and as data."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from kernelmill.backend.entry import Backend
from kernelmill.backend.graph_breaks import advice
from kernelmill.backend.report import Capture
from kernelmill.config import CompilerConfig
from kernelmill.core.isa import machine_isa, withheld

if TYPE_CHECKING:
    from kernelmill.compiler import CompileReport


@dataclass(frozen=True)
class Explanation:
    """What compiling and calling a model did. `str()` is the text, `as_dict()` the data.

    captures        graphs that Dynamo and AOTAutograd made of the model
    reports         what the compiler made of each of them
    graph_breaks    places where Dynamo gave up and went on in Python
    advice          what to do about some of them
    first_call      seconds of the first call: capture, compile, link, run
    later_call      seconds of the second call
    """

    captures: tuple[Capture, ...]
    reports: tuple[CompileReport, ...]
    graph_breaks: int
    first_call: float
    later_call: float
    advice: tuple[str, ...] = ()

    @property
    def capture_seconds(self) -> float:
        """The part of the first call that Dynamo and AOTAutograd took."""
        ours = sum(c.import_seconds + c.compile_seconds for c in self.captures)
        return max(0.0, self.first_call - ours - self.later_call)

    @property
    def compile_seconds(self) -> float:
        """The part of the first call that kernelmill took."""
        return sum(c.import_seconds + c.compile_seconds for c in self.captures)

    def as_dict(self) -> dict[str, Any]:
        """JSON-able data; times are in seconds, sizes in bytes."""
        kernels = [kernel for report in self.reports for kernel in report.kernels]
        return {
            "captures": [asdict(capture) for capture in self.captures],
            "isa": [report.isa for report in self.reports],
            "graph_breaks": self.graph_breaks,
            "advice": list(self.advice),
            "graph_nodes_before": sum(report.nodes_before for report in self.reports),
            "graph_nodes_after": sum(report.nodes_after for report in self.reports),
            "kernels": [asdict(kernel) for kernel in kernels],
            "compiled": sum(report.compiled for report in self.reports),
            "reused": sum(report.reused for report in self.reports),
            "fused": sum(report.fused for report in self.reports),
            "fallbacks": [entry for report in self.reports for entry in report.fallbacks],
            "super_kernel_ranges": [asdict(one) for r in self.reports for one in r.ranges],
            "refused": [capture.refused for capture in self.captures if capture.refused],
            "arena_peak": [report.arena_bytes for report in self.reports],
            "live_peak": [report.live_bytes for report in self.reports],
            "tensor_bytes": [report.tensor_bytes for report in self.reports],
            "stages": [dict(report.seconds) for report in self.reports],
            "capture_seconds": self.capture_seconds,
            "compile_seconds": self.compile_seconds,
            "first_call": self.first_call,
            "later_call": self.later_call,
        }

    def __str__(self) -> str:
        lines = [
            f"{len(self.captures)} graphs, {self.graph_breaks} graph breaks; first call "
            f"{self.first_call * 1e3:.0f} ms: capture {self.capture_seconds * 1e3:.0f} ms, compile "
            f"{self.compile_seconds * 1e3:.0f} ms; then {self.later_call * 1e3:.2f} ms a call"
        ]
        lines += self.advice
        for capture in self.captures:
            if capture.refused:
                lines.append(f"\n{capture.name} runs in torch as a whole: {capture.refused}")
        for report in self.reports:
            lines += ["", *_describe(report)]
        return "\n".join(lines)


def _sums(report: CompileReport) -> str:
    """What the arena's size is to be compared with, where sizes are known."""
    if report.live_bytes is None:
        return ""
    return f" (alive together {report.live_bytes}, all tensors {report.tensor_bytes})"


def _describe(report: CompileReport) -> list[str]:
    stages = ", ".join(f"{name} {spent * 1e3:.0f} ms" for name, spent in report.seconds.items())
    lines = [
        f"{report.name}: {report.nodes_before} nodes, {report.nodes_after} after passes; "
        f"{len(report.kernels)} kernels ({report.compiled} compiled, {report.reused} reused, "
        f"{report.fused} fused); arena {report.arena_bytes} bytes{_sums(report)}",
        f"  for {report.isa}; {stages}",
    ]
    if report.isa == str(machine_isa()) and withheld():
        lines.append(f"  {withheld()}")
    if report.tuned:
        lines.append(
            f"  schedules of {report.tuned} kernels by measuring: {report.schedules_measured} "
            "measured now"
        )
    for kernel in report.kernels:
        why = f", new: differs in {', '.join(kernel.differs)}" if kernel.differs else ""
        source = "" if kernel.source in kernel.kind else f", {kernel.source}"
        lines.append(f"  {kernel.launches:4} x {kernel.name} [{kernel.kind}{source}{why}]")
        template = f"{kernel.template}: " if kernel.template else ""
        origin = kernel.origin or "origin unknown"
        lines.append(f"         {template}{' '.join(kernel.operators)}  ({origin})")
        if kernel.classes:
            lines.append(f"         shape classes: {' | '.join(kernel.classes)}")
    for one in report.ranges:
        count = len(one.supers)
        lines.append(f"  super-kernel range {one.scope}: {count} super kernel{'s' * (count != 1)}")
        for made in one.supers:
            lines.append(
                f"    {made.name}: {len(made.kernels)} sub-kernels, "
                f"{made.barriers} barrier{'s' * (made.barriers != 1)} kept, {made.elided} elided, "
                f"{made.streams} stream{'s' * (made.streams > 1)}"
            )
        lines += [f"    stays a launch, alone: {kernel}" for kernel in one.alone]
        lines += [f"    split: {reason}" for reason in one.splits]
    for operator, reason, origin in report.fallbacks:
        lines.append(f"  ATen {operator}: {reason}  ({origin or 'origin unknown'})")
    return lines


def explain(
    model: Callable[..., Any],
    *args: Any,
    compiler_config: CompilerConfig | None = None,
    dynamic: bool | None = None,
    **kwargs: Any,
) -> Explanation:
    """Compile a model anew, call it twice with these arguments, and say what happened.

    What is in the kernel folder is reused, as any compile would. Backward graphs are compiled when
    the model is called in training mode with gradients enabled and a result asks for them; the
    gradients themselves are not accumulated. Raises what the model or its compile raises.
    """
    import torch
    from torch._dynamo.utils import counters

    from kernelmill.compiler import collect_reports

    backend = Backend(compiler_config)
    before = counters["graph_break"].copy()
    with collect_reports() as reports:
        compiled = torch.compile(model, backend=backend, dynamic=dynamic)
        start = time.perf_counter()
        compiled(*args, **kwargs)
        middle = time.perf_counter()
        compiled(*args, **kwargs)
        end = time.perf_counter()
    breaks = counters["graph_break"] - before
    return Explanation(
        tuple(backend.captures),
        tuple(reports),
        breaks.total(),
        middle - start,
        end - middle,
        advice(breaks),
    )
