"""A program of torch operators as data: it prints as a Python module, and runs step by step.

A program makes its tensors (`inputs`), gives some of them as arguments and keeps others as buffers
or parameters, calls operators one after the other, and returns some of what it has. Each name is
bound once. A step is data, so that a program that fails can be made smaller by taking steps out.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from tests.programs import values

OWNERS: Mapping[str, Any] = {
    "torch": torch,
    "F": torch.nn.functional,
    "Tensor": torch.Tensor,
    "operator": operator,
    "values": values,
}
"""Where the functions of steps are found: "F.linear", "Tensor.add_"."""

SIZE = "n"
"""The name that stands for the size which differs from call to call, where inputs are made."""

SEED = "seed"


@dataclass(frozen=True, order=True)
class Ref:
    """What a step has named; in inputs also `SIZE`."""

    name: str

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, order=True)
class SizeOf:
    """The size of a tensor's dim, as the program asks for it."""

    name: str
    dim: int

    def __repr__(self) -> str:
        return f"{self.name}.size({self.dim})"


@dataclass(frozen=True)
class Seed:
    """A seed that differs from call to call, and from other ones of the program."""

    number: int

    def __repr__(self) -> str:
        return f"{SEED} + {self.number}"


@dataclass(frozen=True)
class Slice:
    """`start:stop:step` in an index."""

    start: int | None = None
    stop: int | None = None
    step: int | None = None

    def __repr__(self) -> str:
        ends = ":".join("" if end is None else str(end) for end in (self.start, self.stop))
        return ends if self.step is None else f"{ends}:{self.step}"


Value = Any
"""Ref, SizeOf, Seed, Slice, a number, None, text, a dtype, or a tuple of such."""


@dataclass(frozen=True)
class Step:
    """`names = function(*args, **kwargs)`; without names for what it does to an argument.

    `rounds`: floats come out rounded, and may differ from eager's by that.
    """

    names: tuple[str, ...]
    function: str
    args: tuple[Value, ...]
    kwargs: tuple[tuple[str, Value], ...] = ()
    rounds: bool = False

    def reads(self) -> list[str]:
        """The names that it uses."""
        return [*_names(self.args), *_names(tuple(value for _, value in self.kwargs))]


@dataclass(frozen=True)
class Program:
    """What to run, and with what.

    inputs      makes tensors; `SIZE` stands for the size that varies
    arguments   the names of the inputs that are passed
    buffers, parameters   names of inputs that the module has
    results     what is returned
    sizes       of `SIZE`, at the first call, and at later ones where sizes may vary
    gradient    float arguments and parameters want gradients of the results' sum
    """

    inputs: tuple[Step, ...]
    arguments: tuple[str, ...]
    buffers: tuple[str, ...]
    parameters: tuple[str, ...]
    steps: tuple[Step, ...]
    results: tuple[str, ...]
    sizes: tuple[int, ...]
    gradient: bool = False

    @property
    def varies(self) -> bool:
        """Whether a size of an argument is `SIZE`."""
        return any(SIZE in step.reads() for step in self.inputs)

    @property
    def finite(self) -> bool:
        """Whether its inputs hold neither NaN nor infinities nor very large numbers."""
        fills = {step.args[2] for step in self.inputs if step.function == "values.make"}
        return not fills & {"special", "huge", "masked"}

    @property
    def digest(self) -> str:
        """A short name, of what it does."""
        return hashlib.sha256(module_text(self).encode()).hexdigest()[:12]


# ---- running --------------------------------------------------------------------------------


def run(steps: tuple[Step, ...], found: dict[str, Any]) -> None:
    """Runs the steps in eager; `found` has what they use, and gets what they name."""
    for step in steps:
        run_step(step, found)


def run_step(step: Step, found: dict[str, Any]) -> None:
    """Runs one step in eager."""
    owner, _, name = step.function.partition(".")
    function = getattr(OWNERS[owner], name)
    kwargs = {key: _value(value, found) for key, value in step.kwargs}
    result = function(*(_value(value, found) for value in step.args), **kwargs)
    if len(step.names) == 1:
        found[step.names[0]] = result
    elif step.names:
        found.update(zip(step.names, result, strict=True))


def _value(value: Value, found: Mapping[str, Any]) -> Any:
    if isinstance(value, Ref):
        return found[value.name]
    if isinstance(value, SizeOf):
        return found[value.name].size(value.dim)
    if isinstance(value, Seed):
        return found[SEED] + value.number
    if isinstance(value, Slice):
        return slice(value.start, value.stop, value.step)
    return tuple(_value(one, found) for one in value) if isinstance(value, tuple) else value


def _names(value: Value) -> list[str]:
    if isinstance(value, (Ref, SizeOf)):
        return [value.name]
    return [n for one in value for n in _names(one)] if isinstance(value, tuple) else []


# ---- printing -------------------------------------------------------------------------------


def module_text(program: Program) -> str:
    """The program as a Python module: `inputs(n, seed)`, `Model`, and the same with its steps in a
    super kernel's range, `Marked`. Run as a script, it is checked in every mode."""
    held = [*program.buffers, *program.parameters]
    lines = [
        "import torch",
        "import torch.nn.functional as F",
        "",
        "import kernelmill",
        "from tests.programs import values",
        "from tests.programs.held import Held",
        "",
        "",
        f"def inputs({SIZE}={program.sizes[0]}, {SEED}=0):",
        *(f"    {_line(step)}" for step in program.inputs),
        f"    return [{', '.join(program.arguments)}], {{{_items(program.buffers)}}}, "
        f"{{{_items(program.parameters)}}}",
    ]
    for name, range_name in (("Model", None), ("Marked", "range")):
        lines += ["", "", f"class {name}(Held):", f"    def run(self{_listed(program.arguments)}):"]
        lines += [f"        {one} = self.{one}" for one in held]
        indent = "        "
        if range_name:
            lines.append(f"{indent}with kernelmill.scope.super_kernel({range_name!r}):")
            indent += "    "
        lines += [f"{indent}{_line(step)}" for step in program.steps] or [f"{indent}pass"]
        lines.append(f"        return ({''.join(f'{name}, ' for name in program.results)})")
    return "\n".join(lines) + "\n"


def _listed(names: tuple[str, ...]) -> str:
    return "".join(f", {name}" for name in names)


def _items(names: tuple[str, ...]) -> str:
    return ", ".join(f"{name!r}: {name}" for name in names)


def _line(step: Step) -> str:
    owner, _, name = step.function.partition(".")
    args = list(step.args)
    if step.function in ("operator.getitem", "operator.setitem"):
        index = args[1] if isinstance(args[1], tuple) else (args[1],)
        text = f"{args[0]!r}[{', '.join(map(_text, index))}]"
        if name == "setitem":
            text += f" = {_text(args[2])}"
    else:
        where = f"{args.pop(0)!r}" if owner == "Tensor" else owner
        given = [*map(_text, args), *(f"{key}={_text(value)}" for key, value in step.kwargs)]
        text = f"{where}.{name}({', '.join(given)})"
    return f"{', '.join(step.names)} = {text}" if step.names else text


def _text(value: Value) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_text, value))}{',' * (len(value) == 1)})"
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return f"float({str(value)!r})"
    return "..." if value is Ellipsis else repr(value)
