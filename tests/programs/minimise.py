"""Makes a failing program smaller for as long as it goes on failing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from tests.programs.program import SEED, SIZE, Program, Ref, SizeOf, Step, Value, run

CALL_SEEDS = (0, 100, 200)


def minimise(program: Program, fails: Callable[[Program], bool]) -> Program:
    """The smallest program found that eager takes and for which `fails` holds."""
    seen: set[Program] = {program}
    smaller = True
    while smaller:
        smaller = False
        for candidate in _candidates(program):
            if candidate in seen:
                continue
            seen.add(candidate)
            if runs(candidate) and fails(candidate):
                program, smaller = candidate, True
                break
    return program


def runs(program: Program) -> bool:
    """Whether eager takes the program in all calls."""
    if not program.results:
        return False
    pairs = zip((*program.sizes[:2], program.sizes[0]), CALL_SEEDS, strict=True)
    try:
        with torch.set_grad_enabled(program.gradient):
            for size, seed in pairs:
                found: dict[str, Any] = {SIZE: size, SEED: seed}
                run(program.inputs, found)
                run(program.steps, found)
                if not all(isinstance(found[name], torch.Tensor) for name in program.results):
                    return False
    except Exception:
        return False
    return True


def _candidates(program: Program) -> Iterator[Program]:
    """Programs that are smaller by one thing, the largest cuts first."""
    if len(program.results) > 1:
        for name in program.results:
            yield pruned(replace(program, results=(name,)))
        for name in program.results:
            rest = tuple(n for n in program.results if n != name)
            yield pruned(replace(program, results=rest))
    for step in reversed(program.steps):
        yield from _without(program, step)
    yield pruned(program)
    if program.gradient:
        inputs = tuple(replace(step, kwargs=()) for step in program.inputs)
        yield replace(program, gradient=False, inputs=inputs)
    for step in program.inputs:
        yield from _simpler_input(program, step)
    for held in (program.buffers, program.parameters):
        for name in held:
            yield replace(
                program,
                arguments=(*program.arguments, name),
                buffers=tuple(n for n in program.buffers if n != name),
                parameters=tuple(n for n in program.parameters if n != name),
            )
    for sizes in ((2, 3), (3, 2), (4, 7)):
        if program.sizes != sizes and sum(program.sizes) > sum(sizes):
            yield replace(program, sizes=sizes)


def _without(program: Program, step: Step) -> Iterator[Program]:
    """The program without a step: what it made is what it read, or all that uses it goes too."""
    steps = tuple(s for s in program.steps if s is not step)
    for operand in dict.fromkeys(step.reads()):
        changes = dict.fromkeys(step.names, operand)
        yield pruned(
            replace(
                program,
                steps=tuple(_renamed(s, changes) for s in steps),
                results=tuple(dict.fromkeys(changes.get(n, n) for n in program.results)),
            )
        )
    gone = set(step.names)
    kept: list[Step] = []
    for other in steps:
        if gone & set(other.reads()):
            gone.update(other.names)
        else:
            kept.append(other)
    results = tuple(n for n in program.results if n not in gone)
    yield pruned(replace(program, steps=tuple(kept), results=results))


def _renamed(step: Step, changes: dict[str, str]) -> Step:
    kwargs = tuple((key, _with_names(value, changes)) for key, value in step.kwargs)
    return replace(step, args=_with_names(step.args, changes), kwargs=kwargs)


def _with_names(value: Value, changes: dict[str, str]) -> Value:
    if isinstance(value, (Ref, SizeOf)):
        return replace(value, name=changes.get(value.name, value.name))
    return tuple(_with_names(v, changes) for v in value) if isinstance(value, tuple) else value


def pruned(program: Program) -> Program:
    """The program without inputs that nothing reads."""
    used = {name for step in program.steps for name in step.reads()} | set(program.results)
    arguments = tuple(n for n in program.arguments if n in used)
    needed = used.copy()
    kept: list[Step] = []
    for step in reversed(program.inputs):
        if needed & set(step.names):
            needed.update(step.reads())
            kept.insert(0, step)
    return replace(
        program,
        inputs=tuple(kept),
        arguments=arguments,
        buffers=tuple(n for n in program.buffers if n in used),
        parameters=tuple(n for n in program.parameters if n in used),
    )


def _simpler_input(program: Program, step: Step) -> Iterator[Program]:
    def with_args(*args: Any) -> Program:
        other = replace(step, args=args)
        return replace(program, inputs=tuple(other if s is step else s for s in program.inputs))

    if step.function != "values.make":
        fresh = [s for s in program.inputs if s.names != step.names]
        made = Step(step.names, "values.make", (torch.float32, (2, 3), "whole", 0))
        if len(fresh) < len(program.inputs):
            yield pruned(replace(program, inputs=(*fresh, made)))
        return
    dtype, shape, fill, seed = step.args
    if not fill.startswith("below") and fill != "whole":
        yield with_args(dtype, shape, "whole", seed)
    if dtype != torch.float32 and not fill.startswith("below"):
        yield with_args(torch.float32, shape, fill, seed)
    for at, size in enumerate(shape):
        yield with_args(dtype, (*shape[:at], *shape[at + 1 :]), fill, seed)
        smaller = (program.sizes[0],) if isinstance(size, Ref) else (1, 2, 3, 5, size // 2)
        for other in smaller:
            if isinstance(size, Ref) or other < size:
                yield with_args(dtype, (*shape[:at], other, *shape[at + 1 :]), fill, seed)
