"""One program in one mode, against eager: right, refused, torch's own fault, or wrong."""

from __future__ import annotations

import importlib.util
import os
import sys
import traceback
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from kernelmill.core.errors import KernelmillError
from tests.programs.modes import MODES, Made, Mode, Subject, prepared
from tests.programs.outcome import Difference, Outcome, Rules, call, difference
from tests.programs.program import SEED, SIZE, Program, module_text, run
from tests.programs.rounding import NOISY_RUNS, SLACK, exact_names, noisy

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


def check(program: Program, mode: Mode) -> Verdict:
    """Runs the program in eager and compiled, call by call."""
    with prepared(mode) as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        subject = Subject(program, load(program, folder), folder)
        try:
            try:
                eager = _Caller(subject, mode).all()
            except Exception as error:
                return Verdict(mode.name, "invalid", f"{type(error).__name__}: {error}")
            return _Comparison(subject, mode, eager).verdict()
        finally:
            sys.modules.pop(subject.module.__name__, None)


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


class _Caller:
    """Calls of one way to run a program."""

    def __init__(self, subject: Subject, mode: Mode, made: Made | None = None) -> None:
        self.subject, self.mode = subject, mode
        if made is None:
            model = subject.model()
            made = model, model
        self.holder, self.function = made

    def one(self, size: int, seed: int) -> Outcome:
        names = (*self.subject.program.buffers, *self.subject.program.parameters)
        found: dict[str, Tensor] = {
            **dict(self.holder.named_buffers()), **dict(self.holder.named_parameters())
        }  # fmt: skip
        held = {name: found[name] for name in names if name in found}
        arguments = self.subject.arguments(size, seed)
        gradient, beside = self.subject.program.gradient, not self.mode.owns_memory
        return call(self.function, arguments, held, gradient, beside)

    def all(self) -> list[Outcome]:
        """The outcomes of a mode's calls, up to the first that raises."""
        found: list[Outcome] = []
        for size, seed in self.mode.calls(self.subject.program):
            try:
                found.append(self.one(size, seed))
            except Exception:
                if not found:
                    raise
                break
        return found


class _Comparison:
    def __init__(self, subject: Subject, mode: Mode, eager: list[Outcome]) -> None:
        self.subject, self.mode, self.eager = subject, mode, eager

    def verdict(self) -> Verdict:
        found = self._against(self.mode.make)
        fallback = bool(self.subject.uncaptured)
        if found is None:
            return Verdict(self.mode.name, "right", fallback=fallback)
        if isinstance(found, KernelmillError) and self.mode.name in MAY_REFUSE:
            return Verdict(self.mode.name, "refused", str(found))
        torchs = self._against(self.mode.reference)
        kind, detail = _described(found)
        if _alike(found, torchs):
            return Verdict(self.mode.name, "torch", detail, kind)
        return Verdict(self.mode.name, "wrong", detail, kind, fallback)

    def _against(self, make: Any) -> Difference | Exception | None:
        """How what is made differs from eager in the first call in which it does."""
        try:
            caller = _Caller(self.subject, self.mode, make(self.subject))
        except Exception as error:
            return error
        for number, expected in enumerate(self.eager):
            size, seed = self.mode.calls(self.subject.program)[number]
            if self.subject.fixed and size != self.subject.program.sizes[0]:
                continue
            rounding = _Rounding(self.subject.program, size, seed, expected)
            rules = Rules(rounding.is_exact, rounding.slack, self.mode.aliases)
            try:
                found = difference(_known(caller.one(size, seed), expected), expected, rules)
            except Exception as error:
                return error
            if found is not None:
                return found
        return None


def _known(mine: Outcome, theirs: Outcome) -> Outcome:
    """A saved program leaves out what it does not read: that counts as unchanged."""
    others = {**theirs.others, **mine.others}
    gradients = {**theirs.gradients, **mine.gradients}
    return Outcome(mine.results, others, gradients, mine.memory, mine.wants_gradient)


def _described(found: Difference | Exception) -> tuple[str, str]:
    if isinstance(found, Difference):
        return found.kind, str(found)
    frames = "".join(traceback.format_exception(found)[-4:])
    return (
        f"{type(found).__name__}",
        f"{type(found).__name__}: {str(found)[:1500]}\n{frames[-1500:]}",
    )


def _alike(ours: Difference | Exception, torchs: Difference | Exception | None) -> bool:
    if isinstance(ours, Difference) and isinstance(torchs, Difference):
        return (ours.kind, ours.name) == (torchs.kind, torchs.name)
    return isinstance(ours, Exception) and isinstance(torchs, Exception)


class _Rounding:
    """What rounding may do to the results of one call."""

    def __init__(self, program: Program, size: int, seed: int, eager: Outcome) -> None:
        self.program, self.size, self.seed, self.eager = program, size, seed, eager

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
