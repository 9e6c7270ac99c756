"""Private parts of other packages: each by name, with a probe, a reason and what happens without.

    @internal("dispatch.autocast", reason="...", fallback="...")
    def autocast() -> Autocast:
        ...try it, and return it

    found = autocast.get()      # None: take the slower way

A probe returns what it has tried; None or any exception says that it is not there, or not as it is
expected to be. It runs at the first `get` and never again, except after `forced`. It runs as in a
new thread, whatever modes its caller is under; it names the dtypes of the tensors that it makes,
since the default dtype is one for all threads.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from time import perf_counter
from typing import Any, Generic, TypeVar

from kernelmill.core import knobs
from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import ConfigError, UnsupportedError
from kernelmill.core.log import get_logger

T = TypeVar("T")

_log = get_logger("torch_internals")


@dataclass(frozen=True)
class Outcome:
    """What a probe gave: `found` is None where it failed, and `problem` says why."""

    found: Any
    problem: str
    seconds: float


_known: dict[str, Internal[Any]] = {}
_outcomes: dict[str, Outcome] = {}
_forced: set[str] = set()


@dataclass(frozen=True)
class Internal(Generic[T]):
    """A private part of torch, CPython, llvmlite or tvm-ffi. `reason` says why it is needed,
    `fallback` what happens without it; both are for people."""

    name: str
    reason: str
    fallback: str
    probe: Callable[[], T | None]
    in_callers_modes: bool = False

    def get(self) -> T | None:
        """What the probe found, None where it failed or does not apply."""
        if self.name not in _known:
            return None
        outcome = _outcomes.get(self.name)
        return (outcome or _run(self)).found

    @property
    def works(self) -> bool:
        """Whether it is there."""
        return self.get() is not None

    def require(self) -> T:
        """What the probe found. UnsupportedError that says which version lacks what."""
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
    this version of Python is not there, and is no failure. `in_callers_modes`: it is what takes
    modes off, and so runs under those of its caller."""

    def register(probe: Callable[[], T | None]) -> Internal[T]:
        made = Internal(name, reason, fallback, probe, in_callers_modes)
        assert name not in _known, name
        if applies:
            _known[name] = made
        return made

    return register


def _run(part: Internal[Any]) -> Outcome:
    _record(part.name)
    outcome = attempt(part)
    kept = _outcomes.setdefault(part.name, outcome)
    if kept is outcome and outcome.problem:
        _log.warning("%s does not work (%s): %s", part.name, outcome.problem, part.fallback)
    return kept


def attempt(part: Internal[Any]) -> Outcome:
    """What its probe gives now; nothing is noted."""
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
    return Outcome(found, problem, perf_counter() - start)


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
    """What gives a context in which none is active."""
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
                if dispatchers():  # else without what it imports
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
    """Inside, no mode and no transform is active, and autograd records. What all threads share is
    left alone: while the default dtype were another, other threads would make tensors of it."""
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
    """All that are registered, by name; `inventory.state` has them all registered first."""
    return _known


def outcomes() -> Mapping[str, Outcome]:
    """What the probes gave that have run, by name."""
    return _outcomes


@contextmanager
def forced(names: Iterable[str]) -> Generator[None]:
    """Inside, the probes of these fail, for tests. What has been made before keeps what it has.
    ConfigError for a name that is not known."""
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
