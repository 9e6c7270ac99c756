"""Plans as text. Grammar:

plan    = "plan" STRING ["symbols" "(" symbol {"," symbol} ")"] "inputs" "(" [input {"," input}]
          ")" ["arena" "(" dim ")"] ["checks" "(" STRING {"," STRING} ")"]
          ["where" "(" dim "=" dim {"," dim "=" dim} ")"]
          "{" {kernel} {buffer} ["prepare" "{" {launch} "}"] {step} {super}
          ["views" "{" {aten} "}"] return "}"
symbol  = NAME ["in" "[" INT "," (dim | "inf") "]"] ["=" scalar]                  (core/scalar.py)
input   = STRING ":" type ["param" | "buffer"] ["updated"]   (neither: a user's argument)
        | NAME ":" "dim"
kernel  = "kernel" NAME "type" STRING ["digest" STRING] ["operators" "(" STRING ... ")"] [at]
buffer  = "buffer" BUFFER "=" place ":" type
place   = "input" "(" INT ")" | "arena" "(" dim ")" | "tensor" | "packed" | "view"
step    = launch | aten
launch  = "launch" NAME "(" [operand {"," operand}] ")" ["dims" "(" dim {"," dim} ")"]
          "tasks" "(" dim ")" ["scratch" "(" dim ")"] "work" "(" dim ")"
          ["beside" | "behind"] ["mark" STRING]
super   = "super" NAME "scope" STRING "from" INT "{" {sub} "}"        (its first step; one sub each)
sub     = "part" "(" INT "," INT ")" ["waits" "(" INT {"," INT} ")"]
operand = BUFFER | "status"
aten    = "aten" STRING "(" [literal {"," literal}] ")" ["{" NAME "=" literal {"," ...} "}"]
          ["gives" "(" result {"," result} ")"] ["binds" "(" bind {"," bind} ")"] [at]
          ["mark" STRING]
result  = BUFFER | "_"
bind    = NAME "=" INT "dim" INT                 (the result's number, its dim; -1: its value)
literal = "none" | "true" | "false" | INT | FLOAT | STRING | BUFFER | number
        | ("dtype" | "layout" | "device" | "memory_format" | "operator" | "complex" | "body"
           | "single") STRING
        | "[" [literal ...] "]" | "(" [literal ...] ")"                 (a list, a tuple)
number  = ["float" | "bool"] "<" dim ">"             (an integer, or what stands for another number)
return  = "return" "(" [(BUFFER | number | "none") {"," ...}] ")"
at      = "at" STRING
type    = DTYPE "[" [dim {"," dim}] "]" "{" [dim {"," dim}] "}"     (shape, strides in elements)
BUFFER  = "%" INT                                 (the buffers are numbered from 0 in order)
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar, Union

from kernelmill.config.super_kernel_marks import UNMARKED, Mark, read_mark
from kernelmill.core.dim import Dim, read_dim
from kernelmill.core.dtype import BY_NAME, DType, InputRole
from kernelmill.core.scalar import NUMBERS, Descent, symbol_text
from kernelmill.core.text import Reader, number_text, string_text
from kernelmill.plan import ir
from kernelmill.plan.ir import BufferKind, BufferSpec, Launch, Order, Plan, SymbolInput, TensorInput

NAMED_LITERALS = tuple("dtype layout device memory_format operator complex body single".split())
"""Kinds of ATen arguments that stand for an object by its name."""


def print_plan(plan: ir.Plan) -> str:
    """Return the text of a plan; `parse_plan` gives an equal plan back."""
    header = f"plan {string_text(plan.name)}"
    if plan.symbols:
        header += f" symbols({_listed(map(symbol_text, plan.symbols))})"
    inputs = ",".join(f"\n  {_input(entry)}" for entry in plan.inputs)
    header += f" inputs({inputs}\n)" if inputs else " inputs()"
    if plan.arena_bytes != 0:
        header += f" arena({plan.arena_bytes})"
    if plan.checks:
        header += f" checks({_listed(map(string_text, plan.checks))})"
    if plan.equations:
        header += f" where({_listed(f'{left} = {right}' for left, right in plan.equations)})"
    lines = [header + " {"]
    lines += [f"  {_kernel(kernel)}" for kernel in plan.kernels]
    lines += [f"  buffer %{n} = {_buffer(buffer)}" for n, buffer in enumerate(plan.buffers)]
    if plan.prepare:
        lines += ["  prepare {", *(f"    {_launch(step)}" for step in plan.prepare), "  }"]
    lines += [f"  {print_step(step)}" for step in plan.steps]
    lines += [line for super_kernel in plan.supers for line in _super(super_kernel)]
    if plan.views:
        lines += ["  views {", *(f"    {_aten(call)}" for call in plan.views), "  }"]
    lines += [f"  return({_listed(map(print_result, plan.results))})", "}"]
    return "\n".join(lines) + "\n"


def print_step(step: ir.Step) -> str:
    """Return the text of one step."""
    return _launch(step) if isinstance(step, ir.Launch) else _aten(step)


def _listed(parts: Iterable[str]) -> str:
    return ", ".join(parts)


def _dims(dims: Iterable[Dim]) -> str:
    return _listed(map(str, dims))


def _type(dtype: DType, shape: Sequence[Dim], strides: Sequence[Dim]) -> str:
    return f"{dtype}[{_dims(shape)}]{{{_dims(strides)}}}"


def _at(origin: str) -> str:
    return f" at {string_text(origin)}" if origin else ""


def _input(entry: ir.TensorInput | ir.SymbolInput) -> str:
    if isinstance(entry, ir.SymbolInput):
        return f"{entry.symbol}: dim"
    text = f"{string_text(entry.name)}: {_type(entry.dtype, entry.shape, entry.strides)}"
    if entry.role != InputRole.USER:
        text += f" {entry.role}"
    return text + " updated" if entry.updated else text


def _kernel(kernel: ir.KernelRef) -> str:
    text = f"kernel {kernel.name} type {string_text(kernel.type)}"
    if kernel.digest:
        text += f" digest {string_text(kernel.digest)}"
    if kernel.operators:
        text += f" operators({_listed(map(string_text, kernel.operators))})"
    return text + _at(kernel.origin)


def _buffer(buffer: ir.BufferSpec) -> str:
    place = buffer.kind
    if buffer.kind == ir.BufferKind.INPUT:
        place += f"({buffer.source})"
    elif buffer.kind == ir.BufferKind.ARENA:
        place += f"({buffer.offset})"
    return f"{place}: {_type(buffer.dtype, buffer.shape, buffer.strides)}"


def _launch(launch: ir.Launch) -> str:
    operands = ("status" if buffer == -1 else f"%{buffer}" for buffer in launch.buffers)
    text = f"launch {launch.kernel}({_listed(operands)})"
    if launch.dims:
        text += f" dims({_dims(launch.dims)})"
    text += f" tasks({launch.tasks})"
    if launch.scratch != 0:
        text += f" scratch({launch.scratch})"
    text += f" work({launch.work})"
    if launch.order is not ir.Order.AFTER:
        text += f" {launch.order}"
    return text + _mark(launch.mark)


def _mark(mark: Mark) -> str:
    text = str(mark)
    return f" mark {string_text(text)}" if text else ""


def _super(super_kernel: ir.SuperKernel) -> Iterator[str]:
    head = f"super {super_kernel.name} scope {string_text(super_kernel.scope)}"
    yield f"  {head} from {super_kernel.first} {{"
    for part, waits in zip(super_kernel.parts, super_kernel.waits, strict=True):
        awaited = f" waits({_listed(map(str, waits))})" if waits else ""
        yield f"    part({part[0]}, {part[1]}){awaited}"
    yield "  }"


def _aten(step: ir.AtenCall) -> str:
    text = f"aten {string_text(step.target)}({_listed(map(_literal, step.args))})"
    if step.kwargs:
        text += f" {{{_listed(f'{name} = {_literal(value)}' for name, value in step.kwargs)}}}"
    if step.results:
        text += f" gives({_listed('_' if n < 0 else f'%{n}' for n in step.results)})"
    if step.binds:
        binds = (f"{symbol} = {result} dim {axis}" for symbol, result, axis in step.binds)
        text += f" binds({_listed(binds)})"
    return text + _at(step.origin) + _mark(step.mark)


def _literal(literal: ir.Literal) -> str:
    if literal is None:
        return "none"
    if isinstance(literal, str):
        return string_text(literal)
    if not isinstance(literal, tuple):
        return number_text(literal)
    tag, *rest = literal
    if tag == "list":
        return f"[{_listed(map(_literal, rest))}]"
    if tag == "tuple":
        return f"({_listed(map(_literal, rest))})"
    (name,) = rest
    if tag == "tensor":
        return f"%{name}"
    if tag == "dim":
        return f"<{name}>"
    if tag in NUMBERS:
        return f"{tag} <{name}>"
    if tag in NAMED_LITERALS:
        return f"{tag} {_literal(name)}"
    raise ValueError(f"no ATen argument is written {literal!r}")


def print_result(result: ir.Result) -> str:
    """Return the text of a result."""
    if isinstance(result, ir.TensorResult):
        return f"%{result.buffer}"
    if isinstance(result, ir.DimResult):
        return f"{result.kind} <{result.value}>".lstrip()
    return "none"


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
    """The long lists of a plan's text, read line by line as the printer writes them; `rest` is the
    text of a plan without them. A large model's plan is some thousand lines of three forms, and
    recursive descent takes ten times as long for one as a pattern does. What is laid out otherwise
    is left in the text for the parser."""

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
    parser = _PlanParser(Reader(lines.rest))
    try:
        return lines.put_into(parser.plan(), parser.scope)
    except ValueError:
        # Once more, for the message: it tells the line.
        return _PlanParser(Reader(text)).plan()


class _PlanParser(Descent):
    def plan(self) -> ir.Plan:
        reader = self._reader
        reader.expect("plan")
        name = reader.string()
        symbols = self._group("symbols", self._symbol)
        if not reader.at("inputs"):
            reader.fail("'inputs'")
        inputs = self._group("inputs", self._input)
        arena = self._size() if reader.accept("arena") else 0
        checks = self._group("checks", reader.string)
        equations = self._group("where", self._equation)
        reader.expect("{")
        kernels = self._while("kernel", self._kernel)
        buffers = self._while("buffer", self._buffer)
        prepare: tuple[ir.Launch, ...] = ()
        if reader.accept("prepare"):
            prepare = self._inside("{}", lambda: self._while("launch", self._launch))
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

    def _while(self, word: str, item: Callable[[], T]) -> tuple[T, ...]:
        items: list[T] = []
        while self._reader.accept(word):
            items.append(item())
        return tuple(items)

    def _type(self) -> tuple[DType, tuple[Dim, ...], tuple[Dim, ...]]:
        reader, dtype = self._reader, self._dtype()
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
        kind = self._after("type", reader.string)
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
        source = self._inside("()", reader.integer) if kind == ir.BufferKind.INPUT else -1
        offset = self._size() if kind == ir.BufferKind.ARENA else 0
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
        tasks = self._after("tasks", self._size)
        scratch = self._size() if reader.accept("scratch") else 0
        work = self._after("work", self._size)
        order = next(
            (o for o in (ir.Order.BESIDE, ir.Order.BEHIND) if reader.accept(o)), ir.Order.AFTER
        )
        return ir.Launch(kernel, buffers, dims, tasks, scratch, work, self._mark(), order)

    def _size(self) -> Dim:
        return self._inside("()", self._dim)

    def _mark(self) -> Mark:
        return read_mark(self._reader.string()) if self._reader.accept("mark") else UNMARKED

    def _super(self) -> ir.SuperKernel:
        reader = self._reader
        name = reader.name("a driver")
        scope = self._after("scope", reader.string)
        first = self._after("from", reader.integer)
        subs = self._inside("{}", lambda: self._while("part", self._sub))
        parts, waits = tuple(part for part, _ in subs), tuple(waits for _, waits in subs)
        return ir.SuperKernel(name, scope, first, first + len(subs), parts, waits)

    def _sub(self) -> tuple[ir.Part, tuple[int, ...]]:
        integer = self._reader.integer
        part = self._after("(", integer), self._after(",", integer, ")")
        return part, self._group("waits", integer)

    def _operand(self) -> int:
        return -1 if self._reader.accept("status") else self._number()

    def _aten(self) -> ir.AtenCall:
        reader = self._reader
        target = self._after("aten", reader.string)
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
        return self._reader.name("an argument's name"), self._after("=", self._literal)

    def _aten_result(self) -> int:
        return -1 if self._reader.accept("_") else self._number()

    def _bind(self) -> tuple[str, int, int]:
        reader = self._reader
        symbol, result = reader.name("a symbol"), self._after("=", reader.integer)
        return symbol, result, self._after("dim", reader.integer)

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
