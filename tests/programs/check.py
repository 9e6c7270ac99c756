"""One program in one mode, against eager: right, refused, torch's own fault, or wrong."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from kernelmill.core.errors import KernelmillError
from tests.programs.modes import MODES, Compiled, Made, Mode, Subject, prepared
from tests.programs.outcome import Difference, Outcome, Rules, call, difference
from tests.programs.program import SEED, SIZE, Program, module_text, run
from tests.programs.rounding import NOISY_RUNS, SLACK, exact_names, noisy
from tests.programs.shared_trace import SharedTrace
from tests.programs.traced import Layout, traced_layouts

MAY_REFUSE = {"gears", "gears-padded", "cache-trace", "cache-load", "aot", "super-kernel"}
"""Modes that have rules for what they take, and errors of our own for what they don't."""


@dataclass(frozen=True)
class Verdict:
    """`status`: "right", "refused", "torch" (which differs from eager in the same way), "wrong", or
    "invalid" (eager itself raises: in the backward, or with other values than the first).
    `fallback`: the whole graph ran in torch."""

    mode: str
    status: str
    detail: str = ""
    kind: str = ""
    fallback: bool = False


_Found = tuple[Difference | Exception | None, bool]


@dataclass(frozen=True)
class _Together:
    """What was found where modes share a trace; so many of them were `before` this one."""

    verdict: Verdict
    found: Difference | Exception | None
    before: int


def check(program: Program, mode: Mode) -> Verdict:
    """Runs the program in eager and compiled, call by call."""
    with Checker(program) as checker:
        return checker.verdict(mode)


class Checker:
    """Checks one program in one mode after the other; what modes have in common is found once.

    Those of the modes `sharing` that can share a trace do. Where one of them is refused or wrong
    so, its verdict is that on a trace of its own; it is wrong, too, where that finds no fault,
    unless torch's own programs are after as many calls.
    """

    def __init__(self, program: Program, sharing: Sequence[Mode] = ()) -> None:
        self.program = program
        self._groups = [group for group in _groups(sharing, program) if len(group) > 1]
        self._together: dict[str, _Together] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="kernelmill-program-")
        self._outcomes: dict[Any, list[Outcome | Exception]] = {}
        self._leeways: dict[tuple[int, int], _Leeway] = {}

    def __enter__(self) -> Checker:
        self._module = load(self.program, self._folder.name)
        return self

    def __exit__(self, *_: object) -> None:
        sys.modules.pop(self._module.__name__, None)
        self._folder.cleanup()

    def verdict(self, mode: Mode) -> Verdict:
        """What the mode makes of the program."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for group in (group for group in self._groups if mode in group):
                self._groups.remove(group)
                self._share(group)
            together = self._together.pop(mode.name, None)
            if together is not None and together.verdict.status in ("right", "torch"):
                return together.verdict
            with prepared(mode):
                alone = self._alone(mode)
            if together is None or alone.status in ("refused", "wrong"):
                return alone
            torchs = self._torchs_later(mode, together)
        detail = f"where modes share a trace: {together.verdict.detail}"
        return replace(together.verdict, status="torch" if torchs else "wrong", detail=detail)

    def _torchs_later(self, mode: Mode, together: _Together) -> bool:
        """Whether torch's own programs differ from eager in the same way when they have had as many
        calls before: those for some sizes may then be called with others."""
        subject = Subject(self.program, self._module, self._folder.name)
        with prepared(replace(mode, threads=1)):
            outcomes = list(self._calls(subject, mode, mode.reference))
            with patch.object(torch._dynamo, "reset"):
                for _ in range(together.before):
                    outcomes = list(self._calls(subject, mode, mode.reference))
        torchs = self._difference(mode, outcomes, self._expected(mode))
        return together.found is not None and _alike(together.found, torchs)

    def _share(self, group: Sequence[Mode]) -> None:
        """Judges these modes on one trace, if there is one for all of them."""
        if self._invalid(group[0]):
            return
        with prepared(replace(group[0], threads=1)):
            torch._dynamo.reset()
            trace = SharedTrace(group)
            found: list[_Found] = []
            for mode in group:
                found.append(self._found(mode, partial(trace.make, mode)))
                if trace.failed:
                    return
            if trace.serves_all:
                for before, (mode, one) in enumerate(zip(group, found, strict=True)):
                    verdict = self._judged(mode, *one)
                    self._together[mode.name] = _Together(verdict, one[0], before)

    def _alone(self, mode: Mode) -> Verdict:
        return self._invalid(mode) or self._judged(mode, *self._found(mode, mode.make))

    def _invalid(self, mode: Mode) -> Verdict | None:
        error = self._called(mode, None)[0]
        if isinstance(error, Exception):
            return Verdict(mode.name, "invalid", f"{type(error).__name__}: {error}")
        return None

    def _found(self, mode: Mode, make: Callable[[Subject], Made]) -> _Found:
        """How it differs from eager, and whether it ran in torch."""
        subject = Subject(self.program, self._module, self._folder.name)
        found = self._difference(mode, self._calls(subject, mode, make), self._expected(mode))
        return found, bool(subject.uncaptured)

    def _judged(self, mode: Mode, found: Difference | Exception | None, fallback: bool) -> Verdict:
        if found is None:
            return Verdict(mode.name, "right", fallback=fallback)
        if isinstance(found, KernelmillError) and mode.name in MAY_REFUSE:
            return Verdict(mode.name, "refused", str(found))
        kind, detail = _described(found)
        if isinstance(found, Difference) and found.traced:
            return Verdict(mode.name, "torch", detail, kind, fallback)
        torchs = self._difference(mode, self._called(mode, mode.reference), self._expected(mode))
        if _alike(found, torchs):
            return Verdict(mode.name, "torch", detail, kind)
        return Verdict(mode.name, "wrong", detail, kind, fallback)

    def _expected(self, mode: Mode) -> list[Outcome]:
        return [one for one in self._called(mode, None) if isinstance(one, Outcome)]

    def _called(self, mode: Mode, make: Any) -> list[Outcome | Exception]:
        """The outcomes of a mode's calls of what is not ours (eager where `make` is None), up to
        the first that raises."""
        key = make, tuple(mode.calls(self.program))
        if key not in self._outcomes:
            subject = Subject(self.program, self._module, self._folder.name)
            self._outcomes[key] = list(self._calls(subject, mode, make or _eager))
        return self._outcomes[key]

    def _calls(
        self, subject: Subject, mode: Mode, make: Callable[[Subject], Made]
    ) -> Iterator[Outcome | Exception]:
        """One outcome after the other, each call made when it is asked for; an exception is the
        last. What was made for the sizes of its first call is not called with others."""
        try:
            holder, function = make(subject)
            for size, seed in mode.calls(self.program):
                if subject.fixed and size != self.program.sizes[0]:
                    break
                yield _one_call(subject, mode, holder, function, size, seed)
        except Exception as error:
            yield error

    def _difference(
        self,
        mode: Mode,
        outcomes: Iterable[Outcome | Exception],
        eager: Sequence[Outcome],
    ) -> Difference | Exception | None:
        """How the first outcome that is not eager's differs from it."""
        calls = mode.calls(self.program)
        traced: Difference | None = None
        for expected, call_of, mine in zip(eager, calls, outcomes, strict=False):
            if isinstance(mine, Exception):
                return mine
            if call_of not in self._leeways:
                self._leeways[call_of] = _Leeway(self.program, *call_of)
            leeway = self._leeways[call_of]
            traces = partial(leeway.traces, mode.varies, mode.one_trace)
            rules = Rules(leeway.is_exact, leeway.slack, traces)
            found = difference(_known(mine, expected), expected, rules)
            if found is not None and not found.traced:
                return found
            traced = traced or found
        return traced


def _groups(modes: Sequence[Mode], program: Program) -> list[list[Mode]]:
    """Modes that differ behind the call of the backend only."""
    found: dict[Any, list[Mode]] = {}
    for mode in modes:
        if isinstance(mode.make, Compiled) and mode.takes(program):
            found.setdefault((mode.make.dynamic, tuple(mode.calls(program))), []).append(mode)
    return list(found.values())


def load(program: Program, folder: str) -> Any:
    """The program's text as an imported module."""
    name = f"program_{program.digest}"
    path = os.path.join(folder, f"{name}.py")
    with open(path, "w") as file:
        file.write(module_text(program))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _eager(subject: Subject) -> Made:
    model = subject.model()
    return model, model


def _one_call(
    subject: Subject, mode: Mode, holder: Any, function: Any, size: int, seed: int
) -> Outcome:
    names = (*subject.program.buffers, *subject.program.parameters)
    found: dict[str, Tensor] = {
        **dict(holder.named_buffers()), **dict(holder.named_parameters())
    }  # fmt: skip
    held = {name: found[name] for name in names if name in found}
    arguments = subject.arguments(size, seed)
    return call(function, arguments, held, subject.program.gradient)


def _known(mine: Outcome, theirs: Outcome) -> Outcome:
    """A saved program leaves out what it does not read: that counts as unchanged."""
    others = {**theirs.others, **mine.others}
    gradients = {**theirs.gradients, **mine.gradients}
    return Outcome(mine.results, others, gradients, mine.memory, mine.wants_gradient)


def _described(found: Difference | Exception) -> tuple[str, str]:
    if isinstance(found, Difference):
        return found.kind, str(found)
    frames = "".join(traceback.format_exception(found)[-4:])
    frames = re.sub(r'File "[^"]*/site-packages/', 'File "', frames)
    return (
        f"{type(found).__name__}",
        f"{type(found).__name__}: {str(found)[:1500]}\n{frames[-1500:]}",
    )


def _alike(ours: Difference | Exception, torchs: Difference | Exception | None) -> bool:
    if isinstance(ours, Difference) and isinstance(torchs, Difference):
        return (ours.kind, ours.name) == (torchs.kind, torchs.name)
    return isinstance(ours, Exception) and isinstance(torchs, Exception)


class _Leeway:
    """What rounding may do to the results of one call, and torch's trace to their layouts."""

    def __init__(self, program: Program, size: int, seed: int) -> None:
        self.program, self.size, self.seed = program, size, seed
        self._known_layouts: dict[tuple[bool, bool], Mapping[str, Layout]] = {}

    def traces(self, symbolic: bool, first: bool) -> Sequence[Mapping[str, Layout]]:
        """The layouts of results that torch traces, with writes in place and without: those for
        numbers, for symbols too where sizes may vary, and those of the first call's trace where
        that serves them all."""
        found = [self._traced(False, functional) for functional in (False, True)]
        if symbolic:
            found += [self._traced(True, functional) for functional in (False, True)]
        if first:
            found.append(self._traced_first)
        return found

    def _traced(self, symbolic: bool, functional: bool) -> Mapping[str, Layout]:
        key = symbolic, functional
        if key not in self._known_layouts:
            self._known_layouts[key] = traced_layouts(
                self.program, self.size, self.seed, symbolic, functional=functional
            )
        return self._known_layouts[key]

    @cached_property
    def _traced_first(self) -> Mapping[str, Layout]:
        size = self.program.sizes[0]
        return traced_layouts(self.program, size, self.seed, symbolic=True, called_with=self.size)

    @cached_property
    def _exact(self) -> frozenset[str]:
        with torch.set_grad_enabled(False):
            return exact_names(self.program, self.size, self.seed)

    def is_exact(self, name: str) -> bool:
        # What is not a result is compared like the least exact of what was written.
        return self._name(name) in self._exact

    def _name(self, name: str) -> str:
        kind, _, number = name.partition(" ")
        names = {"result": self.program.results, "argument": self.program.arguments}
        return names[kind][int(number)] if kind in names else name

    @cached_property
    def _spread(self) -> Mapping[str, Tensor]:
        """By name in the program: how far noise moved each element at most."""
        clean = self._run(None)
        found: dict[str, Tensor] = {}
        for attempt in range(NOISY_RUNS):
            for name, moved in self._run(attempt).items():
                if moved.shape == clean[name].shape:
                    far = (moved - clean[name]).abs()
                    far[(moved == clean[name]) | (moved.isnan() & clean[name].isnan())] = 0
                    far[far.isnan()] = torch.inf
                    found[name] = torch.maximum(found.get(name, far), far)
        return {name: SLACK * far for name, far in found.items()}

    def _run(self, noise: int | None) -> dict[str, Tensor]:
        program = self.program
        found: dict[str, Any] = {SIZE: self.size, SEED: self.seed}
        with torch.set_grad_enabled(program.gradient):
            run(program.inputs, found)
            for name in program.parameters:
                wanted = program.gradient and found[name].is_floating_point()
                found[name] = found[name].requires_grad_(wanted)
            leaves = {**found}
            if noise is None:
                run(program.steps, found)
            else:
                noisy(program.steps, found, self._exact, noise)
        results = {n: found[n].detach().double() for n in program.results}
        others = {n: _flat(leaves[n]) for n in (*program.arguments, *program.buffers)}
        if program.gradient:
            held = {n: leaves[n] for n in (*program.buffers, *program.parameters)}
            outcome = call(lambda *_: [found[n] for n in program.results],
                           [leaves[n] for n in program.arguments], held, True)  # fmt: skip
            others |= {f"gradient {n}": g.double() for n, g in outcome.gradients.items()
                       if g is not None}  # fmt: skip
        return {**others, **results}

    def slack(self, name: str) -> Tensor | None:
        key = name if name.startswith("gradient") else self._name(name)
        found = self._spread.get(key)
        if found is None and not name.startswith("gradient"):
            return None
        return found


def _flat(tensor: Tensor) -> Tensor:
    whole = torch.empty(0, dtype=tensor.dtype)
    whole.set_(tensor.detach().untyped_storage())
    return whole.double()


def by_name(name: str) -> Mode:
    """The mode of this name."""
    return next(mode for mode in MODES if mode.name == name)
