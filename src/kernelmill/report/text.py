"""A report as lines of text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kernelmill.core.target.isa import machine_isa, withheld
from kernelmill.core.wording import counted
from kernelmill.lower.templates.matmul.bind_pieces import NO_TILES
from kernelmill.report.facts import CallFacts, Explained, ProgramFacts, Step

if TYPE_CHECKING:
    from kernelmill.compiler import CompileReport


def text_of(explanation: Explained) -> str:
    """Return the whole report."""
    told = explanation
    lines = [
        f"{counted(len(told.captures), 'graph')}, {counted(told.graph_breaks, 'graph break')}; "
        "first call "
        f"{told.first_call * 1e3:.0f} ms: capture {told.capture_seconds * 1e3:.0f} ms, compile "
        f"{told.compile_seconds * 1e3:.0f} ms; then {told.later_call * 1e3:.2f} ms a call"
    ]
    if not told.is_compiled:
        lines.append("nothing of the model was compiled")
    for one in told.breaks:
        lines.append(f"graph break: {one.reason}")
        if one.place:
            lines.append(f"  at {one.place}: {one.code}")
    lines += told.advice
    lines += call_lines(told.call)
    for capture in told.captures:
        if capture.refused:
            lines.append(f"\n{capture.name} runs in torch as a whole: {capture.refused}")
    for number, report in enumerate(told.reports):
        lines += ["", *_compiled(report)]
        if number < len(told.programs):
            lines += _steps(told.programs[number])
    return "\n".join(lines)


def call_lines(call: CallFacts) -> list[str]:
    """Return the lines on the time of a call, next to eager's, and its reasons."""
    if call.error:
        return [f"not measured: {call.error}"]
    if call.compiled is None or call.eager is None:
        return []
    lines = [f"{verdict(call)}; medians of {counted(call.rounds, 'call')} of each in turns"]
    if call.other_work is not None:
        lines.append(other_work(call.other_work))
    if call.recorded is not None:
        lines.append(
            f"a recorded call of {time_text(call.recorded)}: kernels {time_text(call.kernels)}, "
            + (f"ATen {time_text(call.aten)}, " if call.aten else "")
            + f"between steps {time_text(call.between)}, outside {time_text(call.outside)}"
        )
    return lines + [f"  {time_text(reason.time)}  {reason.text}" for reason in call.reasons]


def verdict(call: CallFacts) -> str:
    """Return one line that compares a call with eager's."""
    assert call.compiled is not None and call.eager is not None and call.speedup is not None
    ours, theirs = time_text(call.compiled), time_text(call.eager)
    if call.least_compiled is not None and call.least_eager is not None:
        ours += f" (least {time_text(call.least_compiled)})"
        theirs += f" (least {time_text(call.least_eager)})"
    times = f"{ours} a call, eager {theirs}"
    if call.outcome == "as fast":
        return f"as fast as eager: {times}"
    factor = call.speedup if call.outcome == "faster" else 1 / call.speedup
    how = "as fast as" if call.outcome == "faster" else "slower than"
    return f"{factor:.2f} times {how} eager: {times}"


def other_work(share: float) -> str:
    """Return a line on the reliability of the times."""
    return f"meanwhile other work took {share:.0%} of the processors' time"


def _steps(facts: ProgramFacts) -> list[str]:
    """Return a line for each step of a program that ran, with its known facts."""
    if not any(step.time is not None for step in facts.steps):
        return []
    shown = [(_time_and_share(step), step) for step in facts.steps]
    return [f"  {text}  {_what(step)}" for text, step in shown]


def _time_and_share(step: Step) -> str:
    share = "" if step.share is None else f"{step.share:4.0%} of limit by {step.bound}"
    return f"{step.number:4} {time_text(step.time):>9} {share:27}"


def _what(step: Step) -> str:
    moved = "" if step.bytes is None else f", {bytes_text(step.bytes)}"
    work = "" if not step.operations else f", {count_text(step.operations)} operations"
    threads = f", {counted(step.threads, 'thread')}" if step.threads else ""
    written = ", ".join(use.tensor for use in step.writes)
    return f"{step.title} -> {written}{moved}{work}{threads}"


def _sums(report: CompileReport) -> str:
    """Return the sizes to compare the arena's size with, where known."""
    if report.live_bytes is None:
        return ""
    return f" (alive together {report.live_bytes}, all tensors {report.tensor_bytes})"


def _compiled(report: CompileReport) -> list[str]:
    stages = ", ".join(f"{name} {spent * 1e3:.0f} ms" for name, spent in report.seconds.items())
    lines = [
        f"{report.name}: {counted(report.nodes_before, 'node')}, {report.nodes_after} after "
        f"passes; {counted(len(report.kernels), 'kernel')} ({report.compiled} compiled, "
        f"{report.reused} reused, {report.fused} fused); "
        f"arena {report.arena_bytes} bytes{_sums(report)}",
        f"  for {report.isa}; {stages}",
    ]
    if report.isa == str(machine_isa()) and withheld():
        lines.append(f"  {withheld()}")
    if report.tuned:
        lines.append(
            f"  schedules of {counted(report.tuned, 'kernel')} by measuring: "
            f"{report.schedules_measured} measured now"
        )
    lines += [f"  products of float32: {text}" for text in product_lines(report.f32_products)]
    for kernel in report.kernels:
        why = f", new: differs in {', '.join(kernel.differs)}" if kernel.differs else ""
        source = "" if kernel.source in kernel.kind else f", {kernel.source}"
        lines.append(f"  {kernel.launches:4} x {kernel.name} [{kernel.kind}{source}{why}]")
        template = f"{kernel.template}: " if kernel.template else ""
        origin = kernel.origin or "origin unknown"
        lines.append(f"         {template}{' '.join(kernel.operators)}  ({origin})")
        if kernel.schedule:
            lines.append(f"         schedule: {kernel.schedule}")
        if kernel.classes:
            lines.append(f"         shape classes: {' | '.join(kernel.classes)}")
    return lines + _ranges(report) + _fallbacks(report)


def product_lines(products: Mapping[str, int]) -> list[str]:
    """Return the methods of float32 products, where the instruction set leaves a choice."""
    chosen = {how: count for how, count in products.items() if NO_TILES not in how}
    return [f"{counted(count, 'launch')} by {how}" for how, count in chosen.items()]


def _ranges(report: CompileReport) -> list[str]:
    lines: list[str] = []
    for one in report.ranges:
        supers = counted(len(one.supers), "super kernel")
        lines.append(f"  super-kernel range {one.scope}: {supers}")
        for made in one.supers:
            lines.append(
                f"    {made.name}: {counted(len(made.kernels), 'sub-kernel')}, "
                f"{counted(made.barriers, 'barrier')} kept, {made.elided} elided, "
                f"{counted(made.streams, 'stream')}"
            )
        lines += [f"    stays a launch, alone: {kernel}" for kernel in one.alone]
        lines += [f"    split: {reason}" for reason in one.splits]
        lines += [f"    goes on behind the collective {name}" for name in one.collectives]
    return lines


def _fallbacks(report: CompileReport) -> list[str]:
    return [
        f"  ATen {operator}: {reason}  ({origin or 'origin unknown'})"
        for operator, reason, origin in report.fallbacks
    ]


# ---- numbers -------------------------------------------------------------------------------------


def time_text(nanoseconds: float | None) -> str:
    """Return text as "12.3 us"; a dash for an unknown value."""
    if nanoseconds is None:
        return "-"
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds:.0f} ns"


def bytes_text(count: float | None) -> str:
    """Return text as "1.5 MiB"; a dash for an unknown value."""
    if count is None:
        return "-"
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} B"


def count_text(count: float | None) -> str:
    """Return text as "2.1 M"; a dash for an unknown value."""
    if count is None:
        return "-"
    for unit, size in ((" G", 1e9), (" M", 1e6), (" k", 1e3)):
        if count >= size:
            return f"{count / size:.3g}{unit}"
    return f"{count:.0f}"
