"""The ranges of a plan that become super kernels, and the reasons why a range splits."""

from __future__ import annotations

from collections.abc import Sequence

from kernelmill.config.super_kernel_marks import LIMITED, RangeOptions, parse_options
from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import ConfigError
from kernelmill.core.log import get_logger
from kernelmill.plan.ir import AtenCall, Launch, Plan, Step

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
