"""Runs a program with a cached method beside eager, and makes what is wrong smaller."""

from __future__ import annotations

import importlib
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kernelmill.inference import cache_compile
from tests.state.model import Program, Step, model_text, steps_text

NEAR = {"rtol": 1e-4, "atol": 1e-4, "equal_nan": True}


@dataclass
class Verdict:
    """What a run has found: "right", "wrong", or "torch" where torch.compile is wrong in the same
    steps and the method was traced before them. `anew`: a method that had just been
    cached anew gave it. `counts` has calls, those that were
    refused, and the statistics of the cached methods."""

    status: str
    detail: str = ""
    anew: bool = False
    counts: Counter[str] = field(default_factory=Counter[str])


def check(program: Program) -> Verdict:
    """Runs a program by cached methods; where these are wrong, by torch.compile too."""
    verdict = run(program, cached=True)
    excused = verdict.status == "wrong" and not verdict.anew
    if excused and run(program, cached=False).status == "wrong":
        verdict.status = "torch"
    return verdict


def run(program: Program, *, cached: bool) -> Verdict:
    """Calls cached methods, or what torch.compile makes without a compiler, beside eager."""
    folder = Path(tempfile.mkdtemp(prefix="state"))
    names = f"{folder.name}_model", f"{folder.name}_steps"
    sys.path.insert(0, str(folder))
    torch._dynamo.reset()
    torch.manual_seed(program.seed)
    try:
        texts = model_text(program, names[1]), steps_text(program)
        for name, text in zip(names, texts, strict=True):
            (folder / f"{name}.py").write_text(text)
        importlib.invalidate_caches()
        module, steps = map(importlib.import_module, names)
        models = [module.Model().eval() for _ in range(2)]
        return _Run(program, module, steps, models, folder / "cache" if cached else None).verdict()
    finally:
        sys.path.remove(str(folder))
        for name in names:
            sys.modules.pop(name, None)
        shutil.rmtree(folder, ignore_errors=True)


class _Wrong(Exception):
    """A call that gave what eager does not."""


class _Run:
    def __init__(
        self, program: Program, module: Any, steps: Any, models: Sequence[Any], cache: Path | None
    ) -> None:
        self._program, self._module, self._steps = program, module, steps
        self._models, self._cache = models, cache
        self._counts: Counter[str] = Counter()
        self._anew = False
        self._methods = [[self._made(model)] for model in models]

    def verdict(self) -> Verdict:
        try:
            for number, step in enumerate(self._program.steps):
                self._take(number, step)
        except _Wrong as wrong:
            return Verdict("wrong", str(wrong), self._anew, self._counts)
        if self._cache is not None:
            for method in (each for methods in self._methods for each in methods):
                self._counts.update(method.statistics)
        return Verdict("right", counts=self._counts)

    def _made(self, model: Any) -> Any:
        dynamic = self._program.dynamic
        if self._cache is None:
            return torch.compile(model.run, backend="eager", fullgraph=True, dynamic=dynamic)
        return cache_compile(model.run, cache_dir=self._cache, dynamic=dynamic)

    @torch.no_grad()
    def _take(self, number: int, step: Step) -> None:
        for place in range(len(step.edits)):
            edit = getattr(self._steps, f"edit_{number}_{place}")
            try:
                edit(self._models[step.other], self._module)
            except Exception:  # of what another edit has taken away
                self._counts["edits that failed"] += 1
        for model, methods in zip(self._models[: 1 + step.other], self._methods, strict=False):
            if step.anew:
                methods.append(self._made(model))
            for method in dict.fromkeys((methods[-1], methods[0])):
                self._anew = step.anew and method is methods[-1]
                self._compare(model.run, method, number, step)

    def _compare(
        self, eager: Callable[..., Any], method: Callable[..., Any], number: int, step: Step
    ) -> None:
        seed, x = int(torch.randint(1 << 30, ())), torch.randn(step.rows, 4)
        given = [list(self._values(number, step, x, seed)) for _ in range(2)]
        how, expected = _outcome(eager, given[0])
        came, found = _outcome(method, given[1])
        self._counts["calls"] += 1
        if how == came == "returned":
            told = _difference(found, expected) or _difference(given[1], given[0])
            if told:
                raise _Wrong(told)
        elif came == "returned":
            raise _Wrong(f"returned {found}, where eager raises {expected!r}")
        elif how == "returned":
            self._counts["refused"] += 1

    def _values(self, number: int, step: Step, x: torch.Tensor, seed: int) -> Iterator[Any]:
        torch.manual_seed(seed)
        x, passed = x.clone(), dict(step.values)
        yield x
        for part in self._program.parts:
            name = f"value_{number}_{part.number}"
            value = part.number in passed
            yield getattr(self._steps, name)(x, self._module) if value else None


def _outcome(call: Callable[..., Any], values: Sequence[Any]) -> tuple[str, Any]:
    try:
        return "returned", call(*values)
    except Exception as error:
        return "raised", error


def _difference(found: Any, expected: Any) -> str:
    """In what two values differ; "" where they do not."""
    if type(found) is not type(expected):
        return f"{found!r} for {expected!r}"
    if isinstance(expected, torch.Tensor):
        try:
            torch.testing.assert_close(found, expected, **NEAR)
        except AssertionError as error:
            return f"{str(error).splitlines()[0]} {found.tolist()} for {expected.tolist()}"
        return ""
    if isinstance(expected, dict):
        if list(found) != list(expected):
            return f"keys {list(found)} for {list(expected)}"
        return _first(found.values(), expected.values())
    if isinstance(expected, (list, tuple)):
        if len(found) != len(expected):
            return f"{len(found)} elements for {len(expected)}"
        return _first(found, expected)
    if isinstance(expected, np.ndarray):
        return "" if np.array_equal(found, expected) else f"{found} for {expected}"
    if isinstance(expected, torch.nn.Module) or callable(expected):
        return ""
    if is_dataclass(expected) or hasattr(expected, "__dict__"):
        return _difference(vars(found), vars(expected))
    return "" if repr(found) == repr(expected) else f"{found!r} for {expected!r}"


def _first(found: Any, expected: Any) -> str:
    pairs = zip(found, expected, strict=True)
    return next((told for pair in pairs if (told := _difference(*pair))), "")


# ---- what is wrong, made smaller ------------------------------------------------------------


def minimised(program: Program, fails: Callable[[Program], bool]) -> Program:
    """The smallest program found that still fails."""
    smaller: Program | None = program
    while smaller is not None:
        program = smaller
        smaller = next((each for each in _smaller(program) if fails(each)), None)
    return program


def _smaller(program: Program) -> Iterator[Program]:
    parts, steps = program.parts, program.steps
    for n in range(len(parts)):
        if len(parts) > 1:
            yield replace(program, parts=parts[:n] + parts[n + 1 :])
    for n in range(1, len(steps)):
        yield replace(program, steps=steps[:n] + steps[n + 1 :])
    for n, step in enumerate(steps):
        for less in _less(step):
            yield replace(program, steps=(*steps[:n], less, *steps[n + 1 :]))


def _less(step: Step) -> Iterator[Step]:
    for n in range(len(step.edits)):
        yield replace(step, edits=step.edits[:n] + step.edits[n + 1 :])
    plain = Step()
    for name in ("anew", "other", "rows"):
        if getattr(step, name) != getattr(plain, name):
            yield replace(step, **{name: getattr(plain, name)})
