"""What higher-order operators are given: the programs that they call, and objects as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, Union

from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import KernelmillError

Body = Any
"""A function of tensors and integers, or an object that torch runs or reads."""


class Callee(Protocol):
    """A program."""

    @property
    def call(self) -> Callable[..., list[Any]]: ...


@dataclass(frozen=True)
class ProgramBody:
    """A program that operators call."""

    program: Callee


Bodies = Mapping[str, Union[ProgramBody, object]]
"""Programs, and what else is given, by the names that a plan has for them."""

NO_BODIES: Bodies = {}


def given_as(tag: str, name: str, bodies: Bodies) -> Body:
    """What an operator is given by this name: of a program a function that gives its only result
    where the argument is "single", else a tuple. KernelmillError where there is nothing."""
    if name not in bodies:
        raise KernelmillError(f"no program for body {name}")
    found = bodies[name]
    if not isinstance(found, ProgramBody):
        return found
    call = found.program.call
    if tag == "single":
        return lambda *arguments: call(*arguments)[0]
    return lambda *arguments: tuple(call(*arguments))


def invoke_subgraph(body: Body, _: str, *operands: Any) -> Any:
    """As torch's operator of this name, which Python dispatches in tens of microseconds."""
    return body(*operands)


def cond(predicate: Any, true: Body, false: Body, operands: Any) -> Any:
    """As torch's operator of this name."""
    return true(*operands) if predicate else false(*operands)
