"""Kernels as text. The text is hashed: equal kernels print alike whatever built them."""

from __future__ import annotations

from collections.abc import Sequence

from kernelmill.core.dim import Dim, Sym, range_text, render
from kernelmill.core.text import number_text, string_text
from kernelmill.kernel import ir


def print_kernel(kernel: ir.Kernel, name: bool = True) -> str:
    """Return the text of `kernel`, in the grammar of ir.py.

    Registers and symbols are renumbered in the order in which the text defines them. `name` False
    leaves out what two kernels with the same code may differ in: name, type and words of classes.
    """
    return _Printer().kernel(kernel, name)


def print_statement(statement: ir.Stmt) -> str:
    """Return the first line of a statement, under the names it was built with, for messages."""
    printer = _Printer(own_names=True)
    printer.statement(statement)
    return printer.lines[0].strip()


class _Printer:
    def __init__(self, own_names: bool = False) -> None:
        self.lines: list[str] = []
        self._own_names = own_names
        self._indent = ""
        self._registers: dict[ir.Value, str] = {}
        self._symbols: dict[str, str] = {}
        self._loops = 0
        self._lets = 0
        self._dims: dict[Dim, str] = {}

    def kernel(self, kernel: ir.Kernel, name: bool) -> str:
        for number, symbol in enumerate(kernel.dims):
            self._symbols[symbol.name] = f"s{number}"
        self._symbols.setdefault(ir.TASK, ir.TASK)
        header = f"kernel {kernel.name if name else '_'}("
        header += ", ".join(map(self._buffer, kernel.buffers)) + ")"
        if kernel.dims:
            header += f" dims({', '.join(map(self._symbol, kernel.dims))})"
        header += f" tasks({self._dim(kernel.tasks)})"
        if kernel.scratch != 0:
            header += f" scratch({self._dim(kernel.scratch)})"
        if name and kernel.type:
            header += f" type {string_text(kernel.type)}"
        if name and kernel.classes:
            header += f" classes({', '.join(map(string_text, kernel.classes))})"
        self._block(header, kernel.body)
        return "\n".join(self.lines) + "\n"

    def _buffer(self, buffer: ir.Buffer) -> str:
        text = f"{buffer.name}: {buffer.dtype}[{self._dim(buffer.elements)}] {buffer.access}"
        text += " nontemporal" if buffer.nontemporal else ""
        return text + (f" over({', '.join(buffer.over)})" if buffer.over else "")

    def _symbol(self, symbol: Sym) -> str:
        name = self._symbols.get(symbol.name, symbol.name)
        return name + range_text(symbol, self._symbols)

    def _dim(self, dim: Dim) -> str:
        if isinstance(dim, int):
            return str(dim)
        text = self._dims.get(dim)
        if text is None:
            text = self._dims[dim] = render(dim, self._symbols)
        return text

    def _rename(self, symbol: Sym, name: str) -> None:
        if self._own_names:
            return
        if symbol.name in self._symbols:
            self._dims.clear()
        self._symbols[symbol.name] = name

    def _define(self, value: ir.Value) -> str:
        if self._own_names:
            return f"%{value.name}"
        text = self._registers[value] = f"%{len(self._registers)}"
        return text

    def _use(self, value: ir.Value) -> str:
        known = self._registers.get(value)
        if known is not None:
            return known
        return f"%{value.name}" if self._own_names else f"%undefined.{value.name}"

    def _typed(self, value: ir.Value) -> str:
        return f"{self._define(value)}: {value.type}"

    def _operand(self, operand: ir.Operand) -> str:
        return self._use(operand) if isinstance(operand, ir.Value) else number_text(operand)

    def _operands(self, operands: Sequence[ir.Operand]) -> str:
        return ", ".join([self._operand(operand) for operand in operands])

    def _line(self, text: str) -> None:
        self.lines.append(self._indent + text)

    def _block(
        self, header: str, body: Sequence[ir.Stmt], yields: Sequence[ir.Operand] = ()
    ) -> None:
        """Print `header {`, the statements and their yield, `}`."""
        self._line(header + " {")
        self._indent += "  "
        for statement in body:
            self.statement(statement)
        if yields:
            self._line(f"yield {self._operands(yields)}")
        self._indent = self._indent[:-2]
        self._line("}")

    def statement(self, statement: ir.Stmt) -> None:
        match statement:
            case ir.Instr(result, op, args, attrs):
                text = f"{op}({self._operands(args)})"
                if attrs:
                    text += f" {{{', '.join(f'{k}={_attr(attrs[k])}' for k in sorted(attrs))}}}"
                self._line(f"{self._typed(result)} = {text}")
            case ir.IndexValue(result, dim):
                self._line(f"{self._typed(result)} = index(<{self._dim(dim)}>)")
            case ir.Load(result, buffer, index, mask, stride):
                text = f"load {buffer}[{self._dim(index)}]{self._suffix(mask, stride)}"
                self._line(f"{self._typed(result)} = {text}")
            case ir.Gather(result, buffer, base, offsets, mask):
                text = f"gather {buffer}[{self._dim(base)} + {self._use(offsets)}]"
                self._line(f"{self._typed(result)} = {text}{self._suffix(mask, 1)}")
            case ir.Store(buffer, index, value, mask, stride):
                text = f"store {buffer}[{self._dim(index)}], {self._use(value)}"
                self._line(text + self._suffix(mask, stride))
            case ir.Scatter(buffer, base, offsets, value, mask):
                text = f"scatter {buffer}[{self._dim(base)} + {self._use(offsets)}]"
                self._line(f"{text}, {self._use(value)}{self._suffix(mask, 1)}")
            case ir.TileLoad(result, buffer, index, stride):
                text = f"tile_load {buffer}[{self._dim(index)}] stride {self._dim(stride)}"
                self._line(f"{self._typed(result)} = {text}")
            case ir.TileStore(buffer, index, value, stride):
                text = f"tile_store {buffer}[{self._dim(index)}], {self._use(value)}"
                self._line(f"{text} stride {self._dim(stride)}")
            case ir.Prefetch(buffer, index):
                self._line(f"prefetch {buffer}[{self._dim(index)}]")
            case ir.Let(symbol, value):
                self._rename(symbol, f"n{self._lets}")
                self._lets += 1
                name = self._symbols.get(symbol.name, symbol.name)
                ranged = range_text(symbol, self._symbols)
                self._line(f"let {name} = {self._use(value)}{ranged}")
            case ir.For():
                self._for(statement)
            case ir.Repeat():
                self._repeat(statement)
            case ir.If():
                self._if(statement)

    def _suffix(self, mask: ir.Value | None, stride: Dim) -> str:
        text = f" mask {self._use(mask)}" if mask is not None else ""
        return text + (f" stride {self._dim(stride)}" if stride != 1 else "")

    def _for(self, loop: ir.For) -> None:
        bounds = f"{self._dim(loop.start)} to {self._dim(loop.stop)} step {self._dim(loop.step)}"
        initial = [self._operand(operand) for operand in loop.initial]
        results = ", ".join(map(self._define, loop.results))
        carried = map(self._typed, loop.carried)
        carry = ", ".join(f"{c} = {i}" for c, i in zip(carried, initial, strict=False))
        self._rename(loop.symbol, f"i{self._loops}")
        self._loops += 1
        name = self._symbols.get(loop.symbol.name, loop.symbol.name)
        header = f"{results} = " if results else ""
        header += f"for {name} = {bounds}" + (f" carry ({carry})" if carry else "")
        header += " unroll" if loop.unroll else ""
        self._block(header, loop.body, loop.yields)

    def _repeat(self, loop: ir.Repeat) -> None:
        initial = [self._operand(operand) for operand in loop.initial]
        results = ", ".join(map(self._define, loop.results))
        carried = map(self._typed, loop.carried)
        carry = ", ".join(f"{c} = {i}" for c, i in zip(carried, initial, strict=False))
        header = f"{results} = repeat" if results else "repeat"
        self._block(header + (f" carry ({carry})" if carry else ""), loop.body, loop.yields)
        self.lines[-1] += f" while {self._use(loop.condition)}"

    def _if(self, branch: ir.If) -> None:
        condition = self._use(branch.condition)
        header = ""
        if branch.results:
            header = ", ".join(map(self._define, branch.results))
            header += f": {', '.join(str(value.type) for value in branch.results)} = "
        self._block(f"{header}if {condition}", branch.then, branch.then_yields)
        if branch.otherwise or branch.otherwise_yields:
            self.lines.pop()
            self._block("} else", branch.otherwise, branch.otherwise_yields)


def _attr(value: int | str) -> str:
    return string_text(value) if isinstance(value, str) else number_text(value)
