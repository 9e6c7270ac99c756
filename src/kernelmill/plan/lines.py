"""The long lists of a plan, read line by line as the printer writes them.

A large model's plan is some thousand lines of three forms, and recursive descent takes ten times as
long for one as a pattern does. What is laid out otherwise is left in the text for the parser.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar, Union

from kernelmill.config.super_kernel_marks import UNMARKED, read_mark
from kernelmill.core.dim import Dim, read_dim
from kernelmill.core.dtype import BY_NAME, DType
from kernelmill.core.roles import InputRole
from kernelmill.core.text import Reader
from kernelmill.plan.ir import BufferKind, BufferSpec, Launch, Order, Plan, SymbolInput, TensorInput

T = TypeVar("T")
Scope = Mapping[str, Dim]
Input = Union[TensorInput, SymbolInput]

_STRING = r'"(?:[^"\\\n]|\\.)*"'
_TYPE = r"(\w+)\[([^\]\n]*)\]\{([^}\n]*)\}"
_INPUT = re.compile(rf"  (?:({_STRING}): {_TYPE}(?: (param|buffer))?( updated)?|(\w+): dim)")
_BUFFER = re.compile(rf"  buffer %(\d+) = (input|arena|tensor|packed|view)(?:\((.*)\))?: {_TYPE}")
_LAUNCH = re.compile(
    r" +launch (\w+)\(((?:%\d+|status|, )*)\)(?: dims\((.*?)\))? tasks\((.*?)\)"
    rf"(?: scratch\((.*?)\))? work\((.*?)\)(?: (beside|behind))?(?: mark ({_STRING}))?"
)
_INPUTS_PART = re.compile(r" inputs\(\n((?:  .*\n)*?)(?=\))")
_BUFFERS_PART = re.compile(r"^((?:  buffer .*\n)+)", re.MULTILINE)
_PREPARE_PART = re.compile(r"^  prepare \{\n((?:    .*\n)+)(?=  \}$)", re.MULTILINE)
_STEPS_PART = re.compile(r"^((?:  launch .*\n)+)(?=  (?:return|super|views)\b)", re.MULTILINE)


class Lines:
    """The lists of a plan's text that are laid out as the printer does it; `rest` is the text of a
    plan without them."""

    def __init__(self, text: str) -> None:
        self._found: dict[str, list[re.Match[str]]] = {}
        text = self._take("inputs", _INPUTS_PART, _INPUT, text, ",\n")
        text = self._take("buffers", _BUFFERS_PART, _BUFFER, text)
        text = self._take("prepare", _PREPARE_PART, _LAUNCH, text)
        only_launches = "\n  aten " not in text
        self.rest = self._take("steps", _STEPS_PART, _LAUNCH, text) if only_launches else text
        self._types: dict[tuple[str, str, str], tuple[DType, tuple[Dim, ...], tuple[Dim, ...]]] = {}
        self._scope: dict[str, Dim] = {}

    def _take(
        self, name: str, part: re.Pattern[str], line: re.Pattern[str], text: str, end: str = "\n"
    ) -> str:
        """Return the text without a list, if each of its lines has the form."""
        found = part.search(text)
        if found is None:
            return text
        rows = [line.fullmatch(row) for row in found[1][:-1].split(end)]
        matches = [row for row in rows if row is not None]
        if len(matches) < len(rows) or not all(map(_sound, matches)):
            return text
        self._found[name] = matches
        return text[: found.start(1)] + text[found.end(1) :]

    def put_into(self, plan: Plan, scope: Scope) -> Plan:
        """Return the whole plan, from that of `rest`. Raises ValueError for a malformed dim, and
        when a list has more elements elsewhere."""
        if any(getattr(plan, name) for name in self._found):
            raise ValueError("a list in several parts")
        self._scope = dict(scope)
        made: dict[str, tuple[object, ...]] = {
            **self._made("inputs", self._input),
            **self._made("buffers", self._buffer),
            **self._made("prepare", self._launch),
            **self._made("steps", self._launch),
        }
        return replace(plan, **made) if made else plan

    def _made(self, name: str, make: Callable[[re.Match[str]], T]) -> dict[str, tuple[T, ...]]:
        return {name: tuple(map(make, self._found[name]))} if name in self._found else {}

    def _input(self, row: re.Match[str]) -> Input:
        name, dtype, shape, strides, role, updated, symbol = row.groups()
        if symbol:
            return SymbolInput(symbol)
        kind = self._type(dtype, shape, strides)
        return TensorInput(json.loads(name), *kind, InputRole(role or "user"), updated is not None)

    def _buffer(self, row: re.Match[str]) -> BufferSpec:
        _, name, place, *of = row.groups()
        kind = BufferKind(name)
        source = int(place) if kind == BufferKind.INPUT else -1
        offset = self._dim(place) if kind == BufferKind.ARENA else 0
        return BufferSpec(kind, *self._type(*of), source, offset)

    def _launch(self, row: re.Match[str]) -> Launch:
        kernel, operands, dims, tasks, scratch, work, order, mark = row.groups()
        buffers = tuple(
            -1 if operand == "status" else int(operand[1:])
            for operand in (operands.split(", ") if operands else ())
        )
        return Launch(
            kernel, buffers, self._dims(dims or ""), self._dim(tasks), self._dim(scratch or "0"),
            self._dim(work), read_mark(json.loads(mark)) if mark else UNMARKED,
            Order(order or Order.AFTER),
        )  # fmt: skip

    def _type(
        self, dtype: str, shape: str, strides: str
    ) -> tuple[DType, tuple[Dim, ...], tuple[Dim, ...]]:
        key = dtype, shape, strides
        found = self._types.get(key)
        if found is None:
            found = self._types[key] = BY_NAME[dtype], self._dims(shape), self._dims(strides)
        return found

    def _dims(self, text: str) -> tuple[Dim, ...]:
        parts = text.split(", ") if text else []
        if all(map(str.isdecimal, parts)):
            return tuple(map(int, parts))
        reader = Reader(f"{text}]")
        dims = reader.listed(lambda: read_dim(reader, self._scope), "]")
        reader.expect_end()
        return tuple(dims)

    def _dim(self, text: str) -> Dim:
        if text.isdecimal():
            return int(text)
        (dim,) = self._dims(text)
        return dim


def _sound(row: re.Match[str]) -> bool:
    """Check the parts of a row that the pattern alone does not: a dtype, an input's number."""
    if row.re is _INPUT:
        return row[2] is None or row[2] in BY_NAME
    if row.re is not _BUFFER:
        return True
    place = row[3]
    right = (place is None) == (row[2] not in (BufferKind.INPUT, BufferKind.ARENA))
    return right and row[4] in BY_NAME and (row[2] != "input" or place.isdecimal())
