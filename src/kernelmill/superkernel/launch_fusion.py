"""Super kernels of the ranges of a plan: their parts of the team, the arena, and waits."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count, groupby
from operator import itemgetter

from kernelmill.config.super_kernel_marks import LIMITED, RangeOptions, parse_options
from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import evaluate
from kernelmill.core.errors import ConfigError
from kernelmill.core.log import get_logger
from kernelmill.core.target.machine import Machine, host
from kernelmill.kernel.ir import Kernel
from kernelmill.plan import ir
from kernelmill.plan.arena import lifetimes
from kernelmill.plan.ir import AtenCall, Launch, Plan, Step
from kernelmill.superkernel.footprint import Footprints, SubKernel, conflicting, waits_of
from kernelmill.superkernel.side_by_side import (
    at_places,
    branch_parts,
    extended,
    extents_beside,
    narrowed,
    part_of,
    saves,
    tagged_parts,
)

_log = get_logger("superkernel")

AUTOMATIC = "(automatic)"
"""The name of the range that is not in the model: no name for a user's."""


@dataclass(frozen=True)
class Range:
    """A range: its name, its options, its segments (steps that are launches of the range, with
    nothing else in between), the reasons for each split, and its collectives, behind which it goes
    on."""

    scope: str
    options: RangeOptions
    segments: tuple[range, ...]
    splits: tuple[str, ...]
    collectives: tuple[str, ...] = ()

    def limits(self, plan: Plan, segment: range) -> bool:
        """Return whether a part of the range has fewer threads than the team."""
        return self.options.threads > 0 or any(plan.steps[n].mark.threads for n in segment)


def ranges_of(plan: Plan) -> list[Range]:
    """Return the ranges of a plan in the order in which they begin.

    ConfigError when the graph is dynamic, when a range is given two sets of options, or when it
    splits although it must not.
    """
    scopes = [step.mark.scope for step in plan.steps]
    found: list[Range] = []
    for scope in dict.fromkeys(scope for scope in scopes if scope):
        if plan.symbols and scope == LIMITED:
            _log.warning("limit_threads has no effect in a graph with dynamic shapes")
            continue
        if plan.symbols:
            names = ", ".join(symbol.name for symbol in plan.symbols)
            raise ConfigError(
                f"super_kernel range {scope!r}{_place(plan, scopes.index(scope))} is in a graph "
                f"with dynamic shapes ({names}); compile with dynamic=False, or declare gears with "
                "set_dim_gears"
            )
        options = _options(plan, scope)
        segments = _segments(plan.steps, scopes, scope)
        splits = () if scope == LIMITED else _splits(plan, scopes, scope)
        _refuse(scope, options, splits)
        for reason in splits:
            _log.warning("super_kernel range %r is split: %s", scope, reason)
        found.append(Range(scope, options, segments, splits, _collectives(plan, scope)))
    return found


def _refuse(scope: str, options: RangeOptions, splits: Sequence[str]) -> None:
    if options.abort and splits:
        raise ConfigError(f"super_kernel range {scope!r} (strict-scope-check=abort): {splits[0]}")


def automatic_ranges(plan: Plan, options: RangeOptions) -> list[Range]:
    """Return all launches of a static plan that are in no range, as one range. ConfigError when it
    splits although it must not."""
    if plan.symbols:
        return []
    scopes = ["" if s.mark or isinstance(s, AtenCall) else AUTOMATIC for s in plan.steps]
    segments = _segments(plan.steps, scopes, AUTOMATIC)
    splits = _splits(plan, scopes, AUTOMATIC)
    _refuse(AUTOMATIC, options, splits)
    return [Range(AUTOMATIC, options, segments, splits)]


def _options(plan: Plan, scope: str) -> RangeOptions:
    marks = [step.mark for step in plan.steps if step.mark.scope == scope]
    texts = dict.fromkeys(mark.options for mark in marks if mark.options)
    if len(texts) > 1:
        raise ConfigError(
            f"super_kernel range {scope!r} is given different options: "
            f"{' and '.join(map(repr, texts))}"
        )
    return parse_options(next(iter(texts), ""))


def _segments(steps: Sequence[Step], scopes: Sequence[str], scope: str) -> tuple[range, ...]:
    named = zip(steps, scopes, strict=True)
    return tuple(_runs(name == scope and _can_be_fused(step) for step, name in named))


def _runs(holds: Iterable[bool], start: int = 0) -> Iterator[range]:
    """Yield the numbers, from `start` on, of neighbours for which it holds."""
    for true, group in groupby(enumerate(holds, start), itemgetter(1)):
        numbers = [number for number, _ in group]
        if true:
            yield range(numbers[0], numbers[-1] + 1)


def _can_be_fused(step: Step) -> bool:
    """Return whether a step launches a kernel of constant size."""
    return isinstance(step, Launch) and all(isinstance(d, int) for d in (*step.dims, step.tasks))


def _splits(plan: Plan, scopes: Sequence[str], scope: str) -> tuple[str, ...]:
    """Return a reason for each step that ends a super kernel of the range before the range ends. A
    collective of the range does so too, as a part of it."""
    own = [number for number, name in enumerate(scopes) if name == scope]
    reasons: list[str] = []
    for number in range(own[0], own[-1] + 1) if own else ():
        step, at = plan.steps[number], _place(plan, number)
        if _is_collective(step) and step.mark.scope == scope:
            continue
        if isinstance(step, AtenCall):
            reasons.append(f"{step.target} runs in ATen and cannot be fused{at}")
        elif scopes[number] != scope:
            reasons.append(f"{_type(plan, step)} in between is not in the range{at}")
        elif not _can_be_fused(step):
            reasons.append(f"{_type(plan, step)} is a kernel for all sizes and cannot be fused{at}")
    return tuple(reasons)


def _collectives(plan: Plan, scope: str) -> tuple[str, ...]:
    own = [n for n, step in enumerate(plan.steps) if step.mark.scope == scope]
    calls = [n for n in own if _is_collective(plan.steps[n])]
    names = ((_type(plan, plan.steps[n]), _place(plan, n)) for n in calls)
    return tuple(f"{name}{at}" for name, at in names if "wait_tensor" not in name)


def _is_collective(step: Step) -> bool:
    """Return whether a step is communication between ranks, which no kernel does."""
    return isinstance(step, AtenCall) and "c10d" in step.target.partition(".")[0]


def launches_alone(plan: Plan, segments: Sequence[range]) -> tuple[str, ...]:
    """Return the text of launches that have no neighbour to be fused with, and stay launches."""
    alone = [segment[0] for segment in segments if len(segment) == 1]
    return tuple(f"{_type(plan, plan.steps[n])}{_place(plan, n)}" for n in alone)


def _type(plan: Plan, step: Step) -> str:
    if isinstance(step, AtenCall):
        return step.target
    return next(ref.type for ref in plan.kernels if ref.name == step.kernel)


def _place(plan: Plan, number: int) -> str:
    """Return the place in the model that a step comes from, as a suffix of its name."""
    step = plan.steps[number]
    if isinstance(step, AtenCall):
        origin = step.origin
    else:
        origin = next(ref.origin for ref in plan.kernels if ref.name == step.kernel)
    return f" at {origin}" if origin else ""


_NAME_PART = 24
"""Characters of an operator's name in a super kernel's."""


@dataclass(frozen=True)
class SuperReport:
    """One super kernel. `barriers` sub-kernels wait for other threads; `elided` depend on earlier
    ones too and need not."""

    name: str
    kernels: tuple[str, ...]
    barriers: int
    elided: int
    streams: int


@dataclass(frozen=True)
class RangeReport:
    """The super kernels of a range, with the reason for every split. `alone` are kernels without
    neighbours to fuse with, which stay launches; after `collectives` another super kernel
    begins."""

    scope: str
    supers: tuple[SuperReport, ...]
    splits: tuple[str, ...]
    alone: tuple[str, ...]
    collectives: tuple[str, ...] = ()


@dataclass(frozen=True)
class Formed:
    """A plan with its super kernels."""

    plan: ir.Plan
    reports: tuple[RangeReport, ...]


def form(
    plan: ir.Plan,
    kernels: Mapping[str, Kernel],
    automatic: RangeOptions | None = None,
    machine: Machine | None = None,
    threads: int | None = None,
) -> Formed:
    """Make super kernels of a plan's ranges, and with options for it of launches in none where that
    is estimated to be faster.

    `machine` says what waiting costs, this one if None; `threads` is the size of team to expect,
    any size runs correctly. ConfigError as `ranges_of`.
    """
    ranges = ranges_of(plan) + (automatic_ranges(plan, automatic) if automatic else [])
    if not ranges:
        return Formed(plan, ())
    machine, threads = machine or host(), threads or len(os.sched_getaffinity(0))
    drafts = [
        _FusedLaunch(plan, kernels, segment, one, machine, threads)
        for one in ranges
        for segment in one.segments
        if len(segment) > 1 or one.limits(plan, segment)
    ]
    drafts = [draft for draft in drafts if draft.scope != AUTOMATIC or draft.saves()]
    drafts.sort(key=lambda draft: draft.segment.start)
    beside = [run for draft in drafts for run in draft.beside]
    if beside:
        plan = _placed_apart(plan, beside)
    supers: list[ir.SuperKernel] = []
    reports: dict[str, list[SuperReport]] = {}
    for draft in drafts:
        made, report = draft.finish(plan, kernels, {s.name for s in supers})
        supers.append(made)
        reports.setdefault(made.scope, []).append(report)
    return Formed(
        replace(plan, supers=tuple(supers)),
        tuple(
            RangeReport(
                r.scope,
                tuple(reports.get(r.scope, ())),
                r.splits,
                launches_alone(plan, r.segments),
                r.collectives,
            )
            for r in ranges
            if r.scope != AUTOMATIC or r.scope in reports
        ),
    )


class _FusedLaunch:
    """A super kernel in the making."""

    def __init__(
        self,
        plan: ir.Plan,
        kernels: Mapping[str, Kernel],
        segment: range,
        range_: Range,
        machine: Machine,
        threads: int,
    ) -> None:
        self.segment = segment
        self.machine, self.threads = machine, threads
        self.scope = range_.scope
        self.options = range_.options
        steps = plan.steps[segment.start : segment.stop]
        self.launches = [step for step in steps if isinstance(step, ir.Launch)]
        self.tasks = [evaluate(launch.tasks, {}) for launch in self.launches]
        self.work = [evaluate(launch.work, {}) for launch in self.launches]
        wide = self._wide(plan, kernels)
        self.beside = list(_runs((part != ir.WHOLE_TEAM for part in wide), segment.start))
        self.streams = len(set(wide) - {ir.WHOLE_TEAM}) or 1
        self.parts = wide = tuple(map(self._limited, wide, self.launches))
        if not self.options.sync_all:
            self.parts = tuple(
                narrowed(part, tasks, work, machine)
                for part, tasks, work in zip(wide, self.tasks, self.work, strict=True)
            )

    def saves(self) -> bool:
        return saves(self.tasks, self.work, self.parts, self.threads, self.machine)

    def _limited(self, part: ir.Part, launch: ir.Launch) -> ir.Part:
        """Return the part with at most as many threads as the range and the operator may have."""
        team, most = self.threads, self.options.threads
        if 0 < most < team:
            own = ir.thread_range(part, most)
            part = part_of(own.start, own.stop, team)
        own, most = ir.thread_range(part, team), launch.mark.threads
        return part_of(own.start, own.start + most, team) if 0 < most < len(own) else part

    def _wide(self, plan: ir.Plan, kernels: Mapping[str, Kernel]) -> tuple[ir.Part, ...]:
        options = self.options
        threads = min(self.threads, options.threads or self.threads)
        marks = [launch.mark for launch in self.launches]
        if options.sync_all:
            return (ir.WHOLE_TEAM,) * len(marks)
        tags = [mark.stream for mark in marks]
        if any(tags):
            priorities = {mark.stream: mark.priority for mark in marks}
            most = len(tags) if options.stream_fusion else 2
            return tagged_parts(tags, priorities, self.work, threads, most)
        if not options.stream_fusion:
            return (ir.WHOLE_TEAM,) * len(marks)
        depends = _needs(plan, self.launches, kernels)
        return branch_parts(self.tasks, self.work, depends, threads, self.machine)

    def finish(
        self, plan: ir.Plan, kernels: Mapping[str, Kernel], taken: set[str]
    ) -> tuple[ir.SuperKernel, SuperReport]:
        """Return the super kernel over the final places in the arena, and its report."""
        refs = {ref.name: ref for ref in plan.kernels}
        types = [refs[launch.kernel].type for launch in self.launches]
        touches = Footprints(plan, kernels)
        subs = [
            SubKernel(tasks, part, touches.of(launch))
            for tasks, part, launch in zip(self.tasks, self.parts, self.launches, strict=True)
        ]
        if self.options.sync_all:
            waits = tuple((n - 1,) if n else () for n in range(len(subs)))
        else:
            waits = waits_of(subs)
        name = _free_name(self.scope, types[0], types[-1], taken)
        made = ir.SuperKernel(
            name, self.scope, self.segment.start, self.segment.stop, self.parts, waits
        )
        depending = sum(
            any(conflicting(before, sub) for before in subs[:n]) for n, sub in enumerate(subs)
        )
        barriers = sum(map(bool, waits))
        return made, SuperReport(
            name, tuple(types), barriers, max(0, depending - barriers), self.streams
        )


def _free_name(scope: str, first: str, last: str, taken: set[str]) -> str:
    name = re.sub(r"\W", "_", f"sk_{scope}_start_{first[:_NAME_PART]}_end_{last[:_NAME_PART]}")
    names = chain([name], (f"{name}_{number}" for number in count(2)))
    return next(each for each in names if each not in taken)


def _needs(
    plan: ir.Plan, launches: Sequence[ir.Launch], kernels: Mapping[str, Kernel]
) -> list[frozenset[int]]:
    """Map each launch to the earlier ones that write memory it accesses, or access memory it
    writes, without memory shared only because one came after the other."""
    readers: dict[object, list[int]] = {}
    writers: dict[object, list[int]] = {}
    found: list[frozenset[int]] = []
    for number, launch in enumerate(launches):
        own = zip(launch.buffers, kernels[launch.kernel].buffers, strict=True)
        access = [(_identity(plan, n), buffer.access) for n, buffer in own if n >= 0]
        access += [(("event", event), "in") for event in launch.mark.awaited]
        access += [(("event", event), "out") for event in launch.mark.given]
        needed = {i for name, _ in access for i in writers.get(name, ())}
        needed |= {i for name, how in access if how != "in" for i in readers.get(name, ())}
        found.append(frozenset(needed))
        for name, how in access:
            (readers if how == "in" else writers).setdefault(name, []).append(number)
    return found


def _identity(plan: ir.Plan, buffer: int) -> object:
    spec = plan.buffers[buffer]
    return ("input", spec.source) if spec.kind == ir.BufferKind.INPUT else buffer


def _placed_apart(plan: ir.Plan, runs: Sequence[range]) -> ir.Plan:
    """Return the plan with an arena in which buffers of launches that run side by side do not
    overlap: inside of a run, and of launches beside each other elsewhere, everything is alive all
    the time."""
    beside = extents_beside(plan.steps)
    inside = {number: (run[0], run[-1]) for run in runs for number in run}
    lives = {
        number: extended(extended(life, beside), inside)
        for number, life in lifetimes(plan.steps, plan.buffers).items()
    }
    return at_places(plan, lives, {})
