"""Plans from text, by recursive descent over the grammar of printer.py.

The long lists of a plan, read line by line as the printer writes them.

A large model's plan is some thousand lines of three forms, and recursive descent takes ten times as
long for one as a pattern does. What is laid out otherwise is left in the text for the parser.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar, Union

from kernelmill.config.super_kernel_marks import UNMARKED, Mark, read_mark
from kernelmill.core.dim import Dim, Sym, of_atom, read_dim
from kernelmill.core.dtype import BY_NAME, DType
from kernelmill.core.roles import InputRole
from kernelmill.core.scalar import NUMBERS, read_declared
from kernelmill.core.text import Reader
from kernelmill.plan import ir
from kernelmill.plan.ir import BufferKind, BufferSpec, Launch, Order, Plan, SymbolInput, TensorInput
from kernelmill.plan.printer import NAMED_LITERALS

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


def parse_plan(text: str) -> ir.Plan:
    """Parse the plan that `text` describes.

    Raises ValueError with the line and what was expected there. The rules beyond the grammar are
    the verifier's: what comes from disk is to be verified before it is loaded.
    """
    lines = Lines(text)
    parser = _Parser(lines.rest)
    try:
        return lines.put_into(parser.plan(), parser.scope)
    except ValueError:
        # Once more, for the message: it tells the line.
        return _Parser(text).plan()


class _Parser:
    def __init__(self, text: str) -> None:
        self._reader = Reader(text)
        self.scope: dict[str, Dim] = {}

    def plan(self) -> ir.Plan:
        reader = self._reader
        reader.expect("plan")
        name = reader.string()
        symbols = self._group("symbols", self._symbol)
        reader.expect("inputs")
        reader.expect("(")
        inputs = tuple(reader.listed(self._input, ")"))
        arena = self._bracketed(self._dim) if reader.accept("arena") else 0
        checks = self._group("checks", reader.string)
        equations = self._group("where", self._equation)
        reader.expect("{")
        kernels = self._while("kernel", self._kernel)
        buffers = self._while("buffer", self._buffer)
        prepare: tuple[ir.Launch, ...] = ()
        if reader.accept("prepare"):
            reader.expect("{")
            prepare = self._while("launch", self._launch)
            reader.expect("}")
        steps: list[ir.Step] = []
        while not reader.at("return", "super", "views"):
            steps.append(self._launch() if reader.accept("launch") else self._aten())
        supers = self._while("super", self._super)
        views = self._views() if reader.accept("views") else ()
        reader.expect("return")
        reader.expect("(")
        results = tuple(reader.listed(self._result, ")"))
        reader.expect("}")
        reader.expect_end()
        return ir.Plan(
            name, symbols, inputs, buffers, prepare, tuple(steps), results, kernels, arena,
            checks, supers, equations, views,
        )  # fmt: skip

    # ---- pieces -----------------------------------------------------------------------------

    def _group(self, word: str, item: Callable[[], T]) -> tuple[T, ...]:
        """Parse `word "(" item {"," item} ")"`, or nothing."""
        if not self._reader.accept(word):
            return ()
        self._reader.expect("(")
        return tuple(self._reader.listed(item, ")"))

    def _while(self, word: str, item: Callable[[], T]) -> tuple[T, ...]:
        items: list[T] = []
        while self._reader.accept(word):
            items.append(item())
        return tuple(items)

    def _bracketed(self, item: Callable[[], T]) -> T:
        self._reader.expect("(")
        result = item()
        self._reader.expect(")")
        return result

    def _dim(self) -> Dim:
        return read_dim(self._reader, self.scope)

    def _equation(self) -> tuple[Dim, Dim]:
        left = self._dim()
        self._reader.expect("=")
        return left, self._dim()

    def _bracketed_dim(self) -> Dim:
        self._reader.expect("<")
        dim = self._dim()
        self._reader.expect(">")
        return dim

    def _type(self) -> tuple[DType, tuple[Dim, ...], tuple[Dim, ...]]:
        reader = self._reader
        dtype = BY_NAME.get(reader.name("a dtype"))
        if dtype is None:
            reader.fail_before(f"a dtype ({', '.join(BY_NAME)})")
        reader.expect("[")
        shape = tuple(reader.listed(self._dim, "]"))
        reader.expect("{")
        return dtype, shape, tuple(reader.listed(self._dim, "}"))

    def _number(self) -> int:
        name = self._reader.value()
        if not name.isdecimal():
            self._reader.fail_before("a buffer's number (%0, %1...)")
        return int(name)

    def _origin(self) -> str:
        return self._reader.string() if self._reader.accept("at") else ""

    # ---- header -----------------------------------------------------------------------------

    def _symbol(self) -> Sym:
        symbol = read_declared(self._reader, self.scope)
        self.scope[symbol.name] = of_atom(symbol)
        return symbol

    def _input(self) -> ir.TensorInput | ir.SymbolInput:
        reader = self._reader
        if not reader.at_kind("string"):
            name = reader.name("a symbol or a string")
            reader.expect(":")
            reader.expect("dim")
            return ir.SymbolInput(name)
        name = reader.string()
        reader.expect(":")
        dtype, shape, strides = self._type()
        named = reader.at(InputRole.PARAM, InputRole.BUFFER)
        role = InputRole(reader.take()) if named else InputRole.USER
        return ir.TensorInput(name, dtype, shape, strides, role, reader.accept("updated"))

    def _kernel(self) -> ir.KernelRef:
        reader = self._reader
        name = reader.name("a kernel")
        reader.expect("type")
        kind = reader.string()
        digest = reader.string() if reader.accept("digest") else ""
        operators = self._group("operators", reader.string)
        return ir.KernelRef(name, kind, digest, operators, self._origin())

    def _buffer(self) -> ir.BufferSpec:
        reader = self._reader
        self._number()
        reader.expect("=")
        name = reader.name("input, arena, tensor, packed or view")
        if name not in tuple(ir.BufferKind):
            reader.fail_before(f"a kind of buffer, not {name!r}")
        kind = ir.BufferKind(name)
        source = self._bracketed(reader.integer) if kind == ir.BufferKind.INPUT else -1
        offset = self._bracketed(self._dim) if kind == ir.BufferKind.ARENA else 0
        reader.expect(":")
        dtype, shape, strides = self._type()
        return ir.BufferSpec(kind, dtype, shape, strides, source, offset)

    # ---- steps and results ------------------------------------------------------------------

    def _launch(self) -> ir.Launch:
        reader = self._reader
        kernel = reader.name("a kernel")
        reader.expect("(")
        buffers = tuple(reader.listed(self._operand, ")"))
        dims = self._group("dims", self._dim)
        reader.expect("tasks")
        tasks = self._bracketed(self._dim)
        scratch = self._bracketed(self._dim) if reader.accept("scratch") else 0
        reader.expect("work")
        work = self._bracketed(self._dim)
        order = next(
            (o for o in (ir.Order.BESIDE, ir.Order.BEHIND) if reader.accept(o)), ir.Order.AFTER
        )
        return ir.Launch(kernel, buffers, dims, tasks, scratch, work, self._mark(), order)

    def _mark(self) -> Mark:
        return read_mark(self._reader.string()) if self._reader.accept("mark") else UNMARKED

    def _super(self) -> ir.SuperKernel:
        reader = self._reader
        name = reader.name("a driver")
        reader.expect("scope")
        scope = reader.string()
        reader.expect("from")
        first = reader.integer()
        reader.expect("{")
        subs = self._while("part", self._sub)
        reader.expect("}")
        parts, waits = tuple(part for part, _ in subs), tuple(waits for _, waits in subs)
        return ir.SuperKernel(name, scope, first, first + len(subs), parts, waits)

    def _sub(self) -> tuple[ir.Part, tuple[int, ...]]:
        reader = self._reader
        reader.expect("(")
        begin = reader.integer()
        reader.expect(",")
        end = reader.integer()
        reader.expect(")")
        return (begin, end), self._group("waits", reader.integer)

    def _operand(self) -> int:
        return -1 if self._reader.accept("status") else self._number()

    def _aten(self) -> ir.AtenCall:
        reader = self._reader
        reader.expect("aten")
        target = reader.string()
        reader.expect("(")
        args = tuple(reader.listed(self._literal, ")"))
        kwargs = tuple(reader.listed(self._keyword, "}")) if reader.accept("{") else ()
        results = self._group("gives", self._aten_result)
        binds = self._group("binds", self._bind)
        return ir.AtenCall(target, args, kwargs, results, binds, self._origin(), self._mark())

    def _views(self) -> tuple[ir.AtenCall, ...]:
        self._reader.expect("{")
        calls: list[ir.AtenCall] = []
        while not self._reader.accept("}"):
            calls.append(self._aten())
        return tuple(calls)

    def _keyword(self) -> tuple[str, ir.Literal]:
        name = self._reader.name("an argument's name")
        self._reader.expect("=")
        return name, self._literal()

    def _aten_result(self) -> int:
        return -1 if self._reader.accept("_") else self._number()

    def _bind(self) -> tuple[str, int, int]:
        reader = self._reader
        symbol = reader.name("a symbol")
        reader.expect("=")
        result = reader.integer()
        reader.expect("dim")
        return symbol, result, reader.integer()

    def _literal(self) -> ir.Literal:
        reader = self._reader
        if reader.at_kind("string"):
            return reader.string()
        if reader.at_kind("value"):
            return ("tensor", self._number())
        if reader.at("<"):
            return ("dim", str(self._bracketed_dim()))
        if reader.accept("["):
            return ("list", *reader.listed(self._literal, "]"))
        if reader.accept("("):
            return ("tuple", *reader.listed(self._literal, ")"))
        if reader.at_number():
            return reader.number()
        word = reader.name("an argument")
        if word in NUMBERS:
            return (word, str(self._bracketed_dim()))
        if word in NAMED_LITERALS:
            return (word, reader.string())
        if word not in _WORDS:
            reader.fail_before(f"an argument, not {word!r}")
        return _WORDS[word]

    def _result(self) -> ir.Result:
        if self._reader.accept("none"):
            return None
        if self._reader.at(*NUMBERS):
            kind = self._reader.take()
            return ir.DimResult(self._bracketed_dim(), kind)
        if self._reader.at("<"):
            return ir.DimResult(self._bracketed_dim())
        return ir.TensorResult(self._number())


_WORDS: dict[str, bool | None] = {"true": True, "false": False, "none": None}
