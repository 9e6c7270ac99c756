"""Bodies of higher-order operators: the programs that these call, and objects passed unchanged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, Union

from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import KernelmillError

Body = Any
"""A function of tensors and integers, or an object that torch runs or reads."""


class Callee(Protocol):
    """A compiled program."""

    @property
    def call(self) -> Callable[..., list[Any]]: ...


@dataclass(frozen=True)
class ProgramBody:
    """A program that a higher-order operator calls."""

    program: Callee


Bodies = Mapping[str, Union[ProgramBody, object]]
"""Programs and other objects passed to operators, by their names in a plan."""

NO_BODIES: Bodies = {}


def given_as(tag: str, name: str, bodies: Bodies) -> Body:
    """Return the body of this name: for a program a function that returns its only result if `tag`
    is "single", else a tuple. KernelmillError if there is none."""
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
    """Call the body as torch's operator of this name does, without tens of microseconds of
    dispatch."""
    return body(*operands)


def cond(predicate: Any, true: Body, false: Body, operands: Any) -> Any:
    """Call one of two bodies, as torch's operator of this name does."""
    return true(*operands) if predicate else false(*operands)
