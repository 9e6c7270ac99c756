"""A report as lines of text, and as one page of HTML without a file, script or style from
elsewhere; a call as a trace for Perfetto and chrome://tracing, with a track for each thread.

Format of traces: Google's "Trace Event Format", complete events ("X") with times in microseconds,
and metadata events ("M") with names.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from kernelmill.codegen import assembly
from kernelmill.core.target.isa import machine_isa, withheld
from kernelmill.core.text import counted
from kernelmill.core.version import VERSION
from kernelmill.kernel.text import print_kernel
from kernelmill.lower.templates.matmul.pieced import NO_TILES
from kernelmill.report.facts import Bar, CallFacts, Explained, ProgramFacts, Step
from kernelmill.report.sums import KernelSum, changes, kernel_sums, module_sums

if TYPE_CHECKING:
    import jinja2

    from kernelmill.compiler.report import GraphReport


def text_of(found: Explained) -> str:
    """Return the whole report."""
    lines = [
        f"{counted(len(found.captures), 'graph')}, {counted(found.graph_breaks, 'graph break')}; "
        "first call "
        f"{found.first_call * 1e3:.0f} ms: capture {found.capture_seconds * 1e3:.0f} ms, compile "
        f"{found.compile_seconds * 1e3:.0f} ms; then {found.later_call * 1e3:.2f} ms a call"
    ]
    if not found.is_compiled:
        lines.append("nothing of the model was compiled")
    for one in found.breaks:
        lines.append(f"graph break: {one.reason}")
        if one.place:
            lines.append(f"  at {one.place}: {one.code}")
    lines += found.advice
    lines += call_lines(found.call) + _sums(found.programs)
    for capture in found.captures:
        if capture.refused:
            lines.append(f"\n{capture.name} runs in torch as a whole: {capture.refused}")
    for report in found.reports:
        lines += ["", *_compiled(report)]
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
    for number, reason in enumerate(call.reasons):
        lines.append(f"{'then' if number else 'do first'}: {reason.advice}")
        lines.append(f"  {time_text(reason.time)}  {reason.text}")
    return lines


def left_text(kernel: KernelSum) -> str:
    """Return the possible gain of a kernel, such as "31% of limit by operations", or ""."""
    if kernel.share is None:
        return "in ATen" if kernel.kind == "aten" else "limit unknown"
    reached = f"{kernel.share:.0%} of limit by {kernel.bound}"
    return f"nothing left here: {reached}" if kernel.is_at_limit else reached


_MOST_KERNELS = 10
_LEAST_PART = 0.05
"""Smallest part of the time of all steps for which the text has a line on a module."""


def _sums(programs: Sequence[ProgramFacts]) -> list[str]:
    """Return lines on the kernels of the longest total time, and on modules."""
    lines: list[str] = []
    kernels, modules = kernel_sums(programs), module_sums(programs)
    for each in kernels[:_MOST_KERNELS]:
        time = f"  {time_text(each.time):>9} {each.part:4.0%}"
        lines.append(f"{time} {each.launches:4} x {each.title}, {left_text(each)}")
    if lines:
        lines.insert(0, "kernels by total time:")
    found = [each for each in modules if each.part >= _LEAST_PART]
    if found:
        lines.append("time by module:")
    for each in found:
        time = f"  {time_text(each.time):>9} {each.part:4.0%}"
        name = each.path or "the model itself"
        lines.append(f"{time} {name}, {counted(each.steps, 'step')}")
    return lines


_MOST_CHANGES = 12


def changes_text(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return a table of the changes between two reports, as `Explanation.as_dict` has them."""
    rows = changes(before, after)
    lines = [f"{'before':>9} {'now':>9} {'saved':>9}"]
    for row in rows[: _MOST_CHANGES + 1]:
        saved = ("-" if row.saved < 0 else "") + time_text(abs(row.saved))
        times = f"{time_text(row.before):>9} {time_text(row.after):>9} {saved:>9}"
        lines.append(f"{times}  {row.what}")
    if len(rows) > _MOST_CHANGES + 1:
        lines.append(f"and {counted(len(rows) - _MOST_CHANGES - 1, 'smaller change')}")
    return "\n".join(lines)


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


def _other_sizes(report: GraphReport) -> str:
    """Return the sizes to compare the arena's size with, where known."""
    if report.live_bytes is None:
        return ""
    return f" (alive together {report.live_bytes}, all tensors {report.tensor_bytes})"


def _compiled(report: GraphReport) -> list[str]:
    stages = ", ".join(f"{name} {spent * 1e3:.0f} ms" for name, spent in report.seconds.items())
    lines = [
        f"{report.name}: {counted(report.nodes_before, 'node')}, {report.nodes_after} after "
        f"passes; {counted(len(report.kernels), 'kernel')} ({report.compiled} compiled, "
        f"{report.reused} reused, {report.fused} fused); "
        f"arena {report.arena_bytes} bytes{_other_sizes(report)}",
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
    lines += _ranges(report)
    for operator, reason, origin in report.fallbacks:
        lines.append(f"  ATen {operator}: {reason}  ({origin or 'origin unknown'})")
    return lines


def product_lines(products: Mapping[str, int]) -> list[str]:
    """Return the methods of float32 products, where the instruction set leaves a choice."""
    chosen = {how: count for how, count in products.items() if NO_TILES not in how}
    return [f"{counted(count, 'launch')} by {how}" for how, count in chosen.items()]


def _ranges(report: GraphReport) -> list[str]:
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


# ---- numbers -------------------------------------------------------------------------------------


def time_text(nanoseconds: float | None) -> str:
    """Return text as "12.3 us"; a dash for an unknown value."""
    return _scaled(nanoseconds, ((" s", 1e9), (" ms", 1e6), (" us", 1e3)), " ns")


def bytes_text(count: float | None) -> str:
    """Return text as "1.5 MiB"; a dash for an unknown value."""
    return _scaled(count, ((" GiB", 1 << 30), (" MiB", 1 << 20), (" KiB", 1 << 10)), " B")


def count_text(count: float | None) -> str:
    """Return text as "2.1 M"; a dash for an unknown value."""
    return _scaled(count, ((" G", 1e9), (" M", 1e6), (" k", 1e3)), "")


def _scaled(value: float | None, units: Sequence[tuple[str, float]], smallest: str) -> str:
    if value is None:
        return "-"
    found = next((each for each in units if value >= each[1]), None)
    return f"{value:.0f}{smallest}" if found is None else f"{value / found[1]:.3g}{found[0]}"


def page_of(explanation: Explained, framed: bool = False) -> str:
    """Return the page's text; `framed` for the `srcdoc` of a frame."""
    call = explanation.call
    page = _environment().get_template("page.html")
    return page.render(
        told=explanation,
        framed=framed,
        call=call,
        machine=explanation.machine,
        programs=explanation.programs,
        codes={
            name: (print_kernel(kernel), assembly(kernel, isa))
            for name, (kernel, isa) in explanation.kernels.items()
        },
        products=product_lines,
        kernels=kernel_sums(explanation.programs),
        modules=module_sums(explanation.programs),
        other_work="" if call.other_work is None else other_work(call.other_work),
        verdict="" if call.speedup is None else verdict(call),
        version=VERSION,
    )


def frame_of(explanation: Explained) -> str:
    """Return the page in a frame, for notebooks: its ids, styles and script are its own, however
    many are shown, and affect nothing in the notebook."""
    page = html.escape(page_of(explanation, framed=True))
    name = html.escape(explanation.name or "model")
    return (
        f'<iframe title="{name}: kernelmill report" sandbox="allow-scripts" srcdoc="{page}" '
        'style="width: 100%; height: 45rem; border: 0; resize: vertical"></iframe>'
    )


@cache
def _environment() -> jinja2.Environment:
    # Imported here: only a saved page needs it. Names of a user's code are escaped.
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("kernelmill.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(time=time_text, size=bytes_text, count_of=count_text)
    environment.filters.update(share=_share, left=left_text)
    return environment


def _share(value: Any) -> str:
    return "-" if value is None else f"{value:.0%}"


_PROCESS = 1


def trace_of(explanation: Explained) -> dict[str, Any]:
    """Return the JSON document of the report's timeline; without events if nothing was measured."""
    call = explanation.call
    events: list[dict[str, Any]] = [
        _named("process_name", 0, name=explanation.name or "kernelmill")
    ]
    for number, name in enumerate(call.threads):
        events.append(_named("thread_name", number, name=name))
        events.append(_named("thread_sort_index", number, sort_index=number))
    events += [_event(explanation, bar) for bar in call.timeline]
    machine = explanation.machine
    about = {} if machine is None else {"processor": machine.processor, "isa": machine.isa}
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": about}


def _named(what: str, thread: int, **args: Any) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": _PROCESS, "tid": thread, "args": args}


def _event(explanation: Explained, bar: Bar) -> dict[str, Any]:
    facts = explanation.programs[bar.program]
    if bar.step < 0:
        name, category, args = "pack weights", "packing", dict[str, Any]()
    elif bar.whole:
        made = next(whole for whole in facts.supers if whole.first == bar.step)
        name, category = made.name, "super kernel"
        args = {"scope": made.scope, "sub-kernels": made.last - made.first}
    else:
        step = facts.steps[bar.step]
        name, category, args = step.title, step.kind, _arguments(step, bar)
    return {
        "ph": "X", "name": name, "cat": category, "pid": _PROCESS, "tid": bar.thread,
        "ts": bar.begin / 1000, "dur": (bar.end - bar.begin) / 1000,
        "args": {"program": facts.name, **args},
    }  # fmt: skip


def _arguments(step: Step, bar: Bar) -> dict[str, Any]:
    found: dict[str, Any] = {
        "step": step.number,
        "operators": " ".join(step.operators),
        "reads": [f"{use.what}: {use.tensor}" for use in step.reads],
        "writes": [use.tensor for use in step.writes],
        "bytes": step.bytes,
        "operations": step.operations,
        "origin": step.origin,
    }
    if step.kind == "kernel":
        found["tasks"] = f"{bar.tasks} of {step.tasks}"
    else:
        found["reason"] = step.reason
    return found
