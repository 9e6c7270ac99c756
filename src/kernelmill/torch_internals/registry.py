"""Private parts of other packages: each with a name, a probe, a reason and a fallback.

    @internal("dispatch.autocast", reason="...", fallback="...")
    def autocast() -> Autocast:
        ...try it, and return it

    found = autocast.get()      # None: take the slower way

A probe returns the part that it has tested; None or any exception means that it is missing or not
as expected. It runs at the first `get` and never again, except after `forced`. It runs as in a new
thread, without its caller's modes. It names the dtypes of its tensors, since all threads share the
default dtype.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from importlib import import_module
from time import perf_counter
from typing import Any, Generic, TypeVar

from kernelmill.core import knobs
from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import ConfigError, UnsupportedError
from kernelmill.core.log import get_logger

T = TypeVar("T")

_log = get_logger("torch_internals")


@dataclass(frozen=True)
class ProbeOutcome:
    """The result of a probe: `found` is None where it failed, and `problem` says why."""

    found: Any
    problem: str
    seconds: float


_known: dict[str, Internal[Any]] = {}
_outcomes: dict[str, ProbeOutcome] = {}
_forced: set[str] = set()


@dataclass(frozen=True)
class Internal(Generic[T]):
    """A private part of torch, CPython, llvmlite or tvm-ffi. `reason` says why it is needed,
    `fallback` the behaviour without it; both are for people."""

    name: str
    reason: str
    fallback: str
    probe: Callable[[], T | None]
    in_callers_modes: bool = False

    def get(self) -> T | None:
        """Return the result of the probe, None where it failed or does not apply."""
        if self.name not in _known:
            return None
        outcome = _outcomes.get(self.name)
        return (outcome or _run(self)).found

    @property
    def works(self) -> bool:
        """True if the probe succeeded."""
        return self.get() is not None

    def require(self) -> T:
        """Return the result of the probe. UnsupportedError names the part and torch's version."""
        found = self.get()
        if found is None:
            import torch

            raise UnsupportedError(
                f"torch {torch.__version__} is not supported: {self.name} is not as expected "
                f"({_outcomes[self.name].problem}), which is needed for {self.reason}; install a "
                "version of torch that docs/compatibility.md lists"
            )
        return found


def internal(
    name: str,
    *,
    reason: str,
    fallback: str,
    applies: bool = True,
    in_callers_modes: bool = False,
) -> Callable[[Callable[[], T | None]], Internal[T]]:
    """Register the decorated function as the probe of the part `name`. One that does not apply to
    this version of Python is absent without a failure. `in_callers_modes`: the part switches modes
    off, so its probe runs under those of its caller."""

    def register(probe: Callable[[], T | None]) -> Internal[T]:
        made = Internal(name, reason, fallback, probe, in_callers_modes)
        assert name not in _known, name
        if applies:
            _known[name] = made
        return made

    return register


def _run(part: Internal[Any]) -> ProbeOutcome:
    _record(part.name)
    outcome = attempt(part)
    kept = _outcomes.setdefault(part.name, outcome)
    if kept is outcome and outcome.problem:
        _log.warning("%s does not work (%s): %s", part.name, outcome.problem, part.fallback)
    return kept


def attempt(part: Internal[Any]) -> ProbeOutcome:
    """Run the probe of a part and return the outcome, without recording it."""
    start = perf_counter()
    found, problem = None, ""
    if part.name in _forced or part.name in knobs.WITHOUT_INTERNALS.get():
        problem = "it is not to be used"
    else:
        try:
            with _settings(part):
                found = part.probe()
            problem = "" if found is not None else "it is not there"
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
    return ProbeOutcome(found, problem, perf_counter() - start)


def _settings(part: Internal[Any]) -> AbstractContextManager[None]:
    if part.in_callers_modes or "torch" not in sys.modules:
        return nullcontext()
    return as_in_new_thread()


@internal(
    "registry.disable_modes",
    reason="making real tensors, and trying private parts, whatever modes and transforms are on",
    fallback="the compiler runs in a thread of its own, where no mode is active",
    in_callers_modes=True,
)
def disable_modes() -> Callable[[], AbstractContextManager[Any]] | None:
    """Return a factory of contexts in which no mode is active."""
    import torch
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
    from torch._ops import _len_torch_dispatch_stack_pre_dispatch
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import _disable_current_modes

    functions = torch._C._len_torch_function_stack
    pop, push = torch._C._pop_torch_function_stack, torch._C._push_on_torch_function_stack

    def dispatchers() -> int:
        return torch._C._len_torch_dispatch_stack() + _len_torch_dispatch_stack_pre_dispatch()

    @contextmanager
    def off() -> Generator[None]:
        modes = [pop() for _ in range(functions())]
        try:
            with ExitStack() as stack:
                stack.enter_context(temporarily_clear_interpreter_stack())
                if dispatchers():  # else without its imports
                    stack.enter_context(_disable_current_modes())
                yield
        finally:
            for mode in reversed(modes):
                push(mode)

    with TorchFunctionMode(), off():
        right = not functions() and not dispatchers() and torch.empty(1).data_ptr() != 0
    return off if right else None


@contextmanager
def as_in_new_thread() -> Generator[None]:
    """Run with no mode and no transform, and with autograd on. State shared by all threads is left
    alone: while the default dtype were another, other threads would make tensors of it."""
    import torch

    disable = disable_modes.get()
    with torch.inference_mode(False):
        if disable is None:
            yield
            return
        with disable():
            yield


def _record(name: str) -> None:
    if path := knobs.RECORD_INTERNALS.get():
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{name}\n")


def known() -> Mapping[str, Internal[Any]]:
    """Return all registered parts, by name; `inventory.state` registers all of them first."""
    return _known


def outcomes() -> Mapping[str, ProbeOutcome]:
    """Return the outcomes of the probes that have run, by name."""
    return _outcomes


@contextmanager
def forced(names: Iterable[str]) -> Generator[None]:
    """Let the probes of these parts fail, for tests. Objects made before keep their parts.
    ConfigError for an unknown name."""
    wanted = set(names)
    if unknown := wanted - _known.keys():
        raise ConfigError(f"no internal {', '.join(sorted(unknown))}; known: {sorted(_known)}")
    before = {name: _outcomes.pop(name) for name in wanted if name in _outcomes}
    _forced.update(wanted)
    try:
        yield
    finally:
        _forced.difference_update(wanted)
        for name in wanted:
            _outcomes.pop(name, None)
        _outcomes.update(before)


SUBJECTS = (
    "autograd compiles devices dispatch dynamo export llvm modules native objects operators "
    "profiler registry sizes tensors trace_notes tracing"
).split()
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
    for part in known().values():
        part.get()
    return tuple(_state(name) for name in sorted(known()))


def failed() -> tuple[State, ...]:
    """Return the parts whose probe has failed in this process so far; runs no probes."""
    names = sorted(name for name, outcome in outcomes().items() if outcome.problem)
    return tuple(_state(name) for name in names)


def counters() -> dict[str, int]:
    """Return counters of a report for failed parts: "without_" and the name, 1 each."""
    return {f"without_{part.name.replace('.', '_')}": 1 for part in failed()}


def register_all() -> None:
    """Import every module that has private parts; probes do not run."""
    for subject in SUBJECTS:
        import_module(f"kernelmill.torch_internals.{subject}")


def _state(name: str) -> State:
    part, outcome = known()[name], outcomes()[name]
    return State(
        name, not outcome.problem, outcome.problem, part.reason, part.fallback, outcome.seconds
    )
