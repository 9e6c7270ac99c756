"""Plans as text. Grammar (parser.py reads it):

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

from collections.abc import Iterable, Iterator, Sequence

from kernelmill.config.super_kernel_marks import Mark
from kernelmill.core.dim import Dim
from kernelmill.core.dtype import DType
from kernelmill.core.roles import InputRole
from kernelmill.core.scalar import NUMBERS, symbol_text
from kernelmill.core.text import number_text, string_text
from kernelmill.plan import ir

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
