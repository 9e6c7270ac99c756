"""A random model of rows of `reads.py`, the edits of its state, and its text as a module."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from textwrap import indent

from tests.state.reads import ARGUMENTS, STATE, TENSORS

NUMBERS = ("2", "3", "1", "0", "-1", "2.0", "0.5", "True", "False", "4")

USES = (
    "out = out * {e}",
    "out = out + (1.5 if {e} else -0.5)",
    "out = out * (2 if {e} == {v} else 3)",
    "out = out + ({e} if {e} > 1 else 7)",
    "out = torch.where(out > 0, out, out * {e})",
    "out = out + len(str({e}))",
    "out = out * {1: 2.0, 2: 3.0}.get({e}, 0.5)",
    "out = out + (1 if isinstance({e}, bool) else 2 if isinstance({e}, int) else 3)",
    "k = {e}\nout = out - k * k",
    "results['r{n}'] = {e}",
    "out = out + (2 if not {e} else 5)",
    "k = {e}\nif k is None or k < 2:\n    out = out.sin()\nelse:\n    out = out.cos()",
    "out = out / (abs({e}) + 1)",
    "out = out + torch.full_like(out, {e})",
    "out = out + torch.tensor({e})",
    "out = out.clamp(max={e})",
    "out = out + min({e}, 2)",
    "out = out * (lambda: {e})()",
    "out = out + sum([{e} for _ in range(2)])",
    "out = functools.reduce(lambda a, b: a + b, [{e}, {e}], out)",
    "out = out + [0, 1][bool({e})]",
    "out = out**{e}",
    "k = {e}\nout = out + (lambda j=k: j)()",
)
"""What is done with an expression {e}."""

PLACES = (
    "here", "method", "function", "nested", "loop", "branch", "try", "decorated", "static", "base",
    "generator", "submodule", "submodule", "method of a submodule",
)  # fmt: skip
"""Where a part of the model has its code."""

IMPORTS = """\
import collections, contextvars, dataclasses, enum, functools, math, operator, sys, types, weakref
import numpy as np
import torch
from torch import nn
"""
HEAD = """\
import {steps} as H


def plain(f):
    @functools.wraps(f)
    def g(*args):
        return f(*args)
    return g


"""


@dataclass(frozen=True)
class Part:
    """One row in a model: `body` changes `out`."""

    number: int
    name: str
    place: str
    setup: str
    start: str
    body: str

    @property
    def argument(self) -> str:
        """The name of its argument of the call."""
        return f"a{self.number}"


@dataclass(frozen=True)
class Step:
    """Calls after some edits: what is passed, by the numbers of parts; whether the method is cached
    anew, as another process does; whether the other of two models is edited and called too; how
    many rows the input has."""

    edits: tuple[str, ...] = ()
    values: tuple[tuple[int, str], ...] = ()
    anew: bool = False
    other: bool = False
    rows: int = 3


@dataclass(frozen=True)
class Program:
    """A model, and the steps of a run."""

    seed: int
    parts: tuple[Part, ...]
    steps: tuple[Step, ...]
    dynamic: bool


def generate(seed: int) -> Program:
    """The program of a seed."""
    choose = random.Random(seed)
    parts: list[Part] = []
    edits: list[Callable[[], str]] = []
    values: dict[int, tuple[str, ...]] = {}

    def filled(text: str, number: int, place: str) -> str:
        while "{v}" in text:
            text = text.replace("{v}", choose.choice(NUMBERS), 1)
        owner = f"model.part{number}" if "submodule" in place else "model"
        names = {"{n}": str(number), "{m}": owner, "{M}": "M", "{a}": f"a{number}"}
        for name, meant in {**names, "{{": "{", "}}": "}"}.items():
            text = text.replace(name, meant)
        return text

    def edit(options: tuple[str, ...], number: int, place: str) -> Callable[[], str]:
        return lambda: filled(choose.choice(options), number, place)

    for number in range(choose.randint(1, 3)):
        row, place = choose.choice((*STATE, *TENSORS, *ARGUMENTS)), choose.choice(PLACES)
        use = row.use or choose.choice(USES).replace("{e}", row.expression)
        texts = (filled(text, number, place) for text in (row.setup, row.start, use))
        parts.append(Part(number, row.name, place, *texts))
        if row.edits:
            edits.append(edit(row.edits, number, place))
        if row.values:
            values[number] = tuple(filled(v, number, place) for v in row.values)

    def step(edits: tuple[str, ...] = (), *, anew: bool = False, other: bool = False) -> Step:
        passed = tuple((number, choose.choice(its)) for number, its in values.items())
        return Step(edits, passed, anew, other, choose.choice((3, 3, 3, 5)))

    steps = [step()]
    for _ in range(choose.randint(5, 9)):
        chosen = tuple(make() for make in edits if choose.random() < 0.6)
        steps.append(step(chosen, anew=choose.random() < 0.25, other=choose.random() < 0.15))
    return Program(seed, tuple(parts), tuple(steps), choose.random() < 0.5)


def steps_text(program: Program) -> str:
    """The module of the steps: functions of a model and its module that edit, and functions of an
    input and the module that give what is passed."""
    found = [IMPORTS]
    for n, step in enumerate(program.steps):
        for place, edit in enumerate(step.edits):
            found.append(f"def edit_{n}_{place}(model, M):\n{indent(edit, '    ')}\n")
        for part, value in step.values:
            found.append(f"def value_{n}_{part}(x, M):\n    return {value}\n")
    return "\n".join(found)


def model_text(program: Program, steps: str) -> str:
    """The module of a program, which has a class `Model`, and imports that of the `steps`."""
    setups, classes, base, start, methods, run = ([] for _ in range(6))
    for part in program.parts:
        setups.append(part.setup)
        name, argument = f"part{part.number}", part.argument
        function = f"def {name}(self, out, results, {argument}):\n{indent(part.body, '    ')}\n"
        whole = function + "    return out\n"
        call = f"out = {{}}(out, results, {argument})"
        if "submodule" in part.place:
            method = whole.replace(name, "forward") if part.place == "submodule" else whole
            classes.append(
                f"class Part{part.number}(nn.Module):\n    def __init__(self):\n"
                f"        super().__init__()\n{indent(part.start, ' ' * 8)}\n"
                f"{indent(method, '    ')}"
            )
            start.append(f"self.{name} = Part{part.number}()")
            suffix = "" if part.place == "submodule" else f".{name}"
            run.append(call.format(f"self.{name}{suffix}"))
            continue
        start.append(part.start)
        if part.place in ("method", "decorated", "static"):
            marks = {"decorated": "@plain\n", "static": "@staticmethod\n"}
            methods.append(marks.get(part.place, "") + whole)
            first = "self, " if part.place == "static" else ""
            run.append(f"out = self.{name}({first}out, results, {argument})")
        elif part.place == "generator":
            methods.append(function + "    yield out\n")
            run.append(f"out = next(self.{name}(out, results, {argument}))")
        elif part.place == "base":
            base.append(whole)
            run.append(call.format(f"super().{name}"))
        elif part.place == "function":
            classes.append(whole)
            run.append(f"out = {name}(self, out, results, {argument})")
        else:
            run.append(_here(part))
    passed = "".join(f", {part.argument}=None" for part in program.parts)
    lines = ["super().__init__()", *start]
    return "\n".join([
        IMPORTS + HEAD.format(steps=steps), *setups, *classes,
        "class Base(nn.Module):\n    pass", *(indent(each, "    ") for each in base),
        "class Model(Base):\n    def __init__(self):", *(indent(each, " " * 8) for each in lines),
        *(indent(each, "    ") for each in methods),
        f"    def run(self, x{passed}):\n        out, results = x, {{}}",
        *(indent(each, " " * 8) for each in run),
        "        return {'out': out, **results}\n",
    ])  # fmt: skip


def _here(part: Part) -> str:
    """The statements of a part that is in the method itself."""
    inner = indent(part.body, "    ")
    if part.place == "nested":
        return f"def inner(out):\n{inner}\n    return out\nout = inner(out)"
    heads = {"loop": "for _ in range(2):", "branch": "if out.ndim == 2:", "try": "try:"}
    if part.place not in heads:
        return part.body
    last = "\nfinally:\n    out = out + 1" if part.place == "try" else ""
    return f"{heads[part.place]}\n{inner}{last}"
