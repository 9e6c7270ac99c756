"""State of all private parts: for `kernelmill doctor`, reports and tests."""

from __future__ import annotations

from importlib import import_module

from kernelmill.core.dataclass import dataclass
from kernelmill.torch_internals import registry

SUBJECTS = tuple(
    (
        "autograd compiles decompositions devices dispatch dynamo export forks groups inductor "
        "llvm modules native objects operators profiler registry sizes tensors trace_notes tracing"
    ).split()
)
"""The modules of this package that have private parts."""


@dataclass(frozen=True)
class State:
    """A private part in this process: whether it works, or the `problem`; its reason, its fallback,
    and the seconds that its probe took."""

    name: str
    works: bool
    problem: str
    reason: str
    fallback: str
    seconds: float


def state() -> tuple[State, ...]:
    """Return all private parts by name. Runs the probes that have not run yet, for which it imports
    torch's compiler: a second or two the first time."""
    register_all()
    for part in registry.known().values():
        part.get()
    return tuple(_state(name) for name in sorted(registry.known()))


def failed() -> tuple[State, ...]:
    """Return the parts whose probe has failed in this process so far; runs no probes."""
    names = sorted(name for name, outcome in registry.outcomes().items() if outcome.problem)
    return tuple(_state(name) for name in names)


def counters() -> dict[str, int]:
    """Return counters of a report for failed parts: "without_" and the name, 1 each."""
    return {f"without_{part.name.replace('.', '_')}": 1 for part in failed()}


def register_all() -> None:
    """Import every module that has private parts; probes do not run."""
    for subject in SUBJECTS:
        import_module(f"kernelmill.torch_internals.{subject}")


def _state(name: str) -> State:
    part, outcome = registry.known()[name], registry.outcomes()[name]
    return State(
        name, not outcome.problem, outcome.problem, part.reason, part.fallback, outcome.seconds
    )
