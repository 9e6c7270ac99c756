"""Super kernels of the ranges of a plan: their parts of the team, the arena, and waits."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from kernelmill.config.super_kernel_marks import LIMITED, RangeOptions, parse_options
from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import evaluate
from kernelmill.core.errors import ConfigError
from kernelmill.core.log import get_logger
from kernelmill.core.target.machine import Machine, host
from kernelmill.kernel.ir import Kernel
from kernelmill.plan import ir
from kernelmill.plan.arena import assign, lifetimes
from kernelmill.plan.ir import AtenCall, Launch, Plan, Step
from kernelmill.superkernel.footprint import Footprints, SubKernel, conflicting, waits_of
from kernelmill.superkernel.side_by_side import (
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
class Segment:
    """Steps `first` up to `last`: launches of one range with nothing else in between."""

    first: int
    last: int


@dataclass(frozen=True)
class Range:
    """A range: its name, its options, its segments, the reasons for each split, and its
    collectives, behind which it goes on."""

    scope: str
    options: RangeOptions
    segments: tuple[Segment, ...]
    splits: tuple[str, ...]
    collectives: tuple[str, ...] = ()

    def limits(self, plan: Plan, segment: Segment) -> bool:
        """Return whether a part of the range has fewer threads than the team."""
        steps = plan.steps[segment.first : segment.last]
        return self.options.threads > 0 or any(step.mark.threads for step in steps)


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


def _segments(steps: Sequence[Step], scopes: Sequence[str], scope: str) -> tuple[Segment, ...]:
    found: list[Segment] = []
    first = 0
    for number in range(len(steps) + 1):
        if number < len(steps) and scopes[number] == scope and _can_be_fused(steps[number]):
            continue
        if number > first:
            found.append(Segment(first, number))
        first = number + 1
    return tuple(found)


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


def launches_alone(plan: Plan, segments: Sequence[Segment]) -> tuple[str, ...]:
    """Return the text of launches that have no neighbour to be fused with, and stay launches."""
    alone = [segment.first for segment in segments if segment.last - segment.first == 1]
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
    team = _Team(machine or host(), threads or len(os.sched_getaffinity(0)))
    drafts = [
        _FusedLaunch(plan, kernels, segment, one, team)
        for one in ranges
        for segment in one.segments
        if segment.last - segment.first > 1 or one.limits(plan, segment)
    ]
    drafts = [draft for draft in drafts if draft.scope != AUTOMATIC or draft.saves()]
    drafts.sort(key=lambda draft: draft.segment.first)
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


@dataclass(frozen=True)
class _Team:
    """The threads to expect, and the machine they run on."""

    machine: Machine
    threads: int


class _FusedLaunch:
    """A super kernel in the making."""

    def __init__(
        self,
        plan: ir.Plan,
        kernels: Mapping[str, Kernel],
        segment: Segment,
        range_: Range,
        team: _Team,
    ) -> None:
        self.segment = segment
        self.team = team
        self.scope = range_.scope
        self.options = range_.options
        steps = plan.steps[segment.first : segment.last]
        self.launches = [step for step in steps if isinstance(step, ir.Launch)]
        self.tasks = [evaluate(launch.tasks, {}) for launch in self.launches]
        self.work = [evaluate(launch.work, {}) for launch in self.launches]
        wide = self._wide(plan, kernels)
        self.beside = _beside(segment, wide)
        self.streams = len(set(wide) - {ir.WHOLE_TEAM}) or 1
        self.parts = wide = tuple(map(self._limited, wide, self.launches))
        if not self.options.sync_all:
            self.parts = tuple(
                narrowed(part, tasks, work, team.machine)
                for part, tasks, work in zip(wide, self.tasks, self.work, strict=True)
            )

    def saves(self) -> bool:
        return saves(self.tasks, self.work, self.parts, self.team.threads, self.team.machine)

    def _limited(self, part: ir.Part, launch: ir.Launch) -> ir.Part:
        """Return the part with at most as many threads as the range and the operator may have."""
        team, most = self.team.threads, self.options.threads
        if 0 < most < team:
            own = ir.thread_range(part, most)
            part = part_of(own.start, own.stop, team)
        own, most = ir.thread_range(part, team), launch.mark.threads
        return part_of(own.start, own.start + most, team) if 0 < most < len(own) else part

    def _wide(self, plan: ir.Plan, kernels: Mapping[str, Kernel]) -> tuple[ir.Part, ...]:
        options = self.options
        threads = min(self.team.threads, options.threads or self.team.threads)
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
        return branch_parts(self.tasks, self.work, depends, threads, self.team.machine)

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
            name, self.scope, self.segment.first, self.segment.last, self.parts, waits
        )
        depending = sum(
            any(conflicting(before, sub) for before in subs[:n]) for n, sub in enumerate(subs)
        )
        barriers = sum(map(bool, waits))
        return made, SuperReport(
            name, tuple(types), barriers, max(0, depending - barriers), self.streams
        )


def _free_name(scope: str, first: str, last: str, taken: set[str]) -> str:
    name = f"sk_{scope}_start_{first[:_NAME_PART]}_end_{last[:_NAME_PART]}"
    name = unique = re.sub(r"\W", "_", name)
    number = 1
    while unique in taken:
        number += 1
        unique = f"{name}_{number}"
    return unique


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


def _beside(segment: Segment, parts: Sequence[ir.Part]) -> list[Segment]:
    """Return the runs of launches on parts of the team, side by side ones in one run."""
    found: list[Segment] = []
    for whole, group in groupby(enumerate(parts, segment.first), lambda at: at[1] == ir.WHOLE_TEAM):
        numbers = [number for number, _ in group]
        if not whole:
            found.append(Segment(numbers[0], numbers[-1] + 1))
    return found


def _placed_apart(plan: ir.Plan, runs: Sequence[Segment]) -> ir.Plan:
    """Return the plan with an arena in which buffers of launches that run side by side do not
    overlap: inside of a run, and of launches beside each other elsewhere, everything is alive all
    the time."""
    beside = extents_beside(plan.steps)
    inside = {
        number: (run.first, run.last - 1) for run in runs for number in range(run.first, run.last)
    }
    lives = {
        number: extended(extended(life, beside), inside)
        for number, life in lifetimes(plan.steps, plan.buffers).items()
    }
    arena = assign(list(lives.values()))
    offsets = dict(zip(lives, arena.offsets, strict=True))
    buffers = tuple(
        replace(spec, offset=offsets[number]) if number in offsets else spec
        for number, spec in enumerate(plan.buffers)
    )
    return replace(plan, buffers=buffers, arena_bytes=arena.bytes)
