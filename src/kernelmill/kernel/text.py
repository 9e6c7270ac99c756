"""Kernels as text. The text is hashed: equal kernels print alike whatever built them. Parsing is by
recursive descent over the grammar of ir.py; types are taken as written."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kernelmill.core.dim import Dim, Sym, of_atom, range_text, read_range, read_symbol, render
from kernelmill.core.scalar import Descent
from kernelmill.core.text import Reader, number_text, string_text
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


Block = tuple[list[ir.Stmt], tuple[ir.Operand, ...]]


def parse_kernel(text: str) -> ir.Kernel:
    """Parse the kernel that `text` describes; printing it gives the canonical text again.

    Raises ValueError with the line and what was expected there. The rules beyond the grammar are
    the verifier's.
    """
    return _Parser(Reader(text)).kernel()


class _Parser(Descent):
    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self._values: dict[str, ir.Value] = {}

    def kernel(self) -> ir.Kernel:
        reader = self._reader
        reader.expect("kernel")
        kernel = ir.Kernel(reader.name(), "", [], [], 1, 0, [])
        reader.expect("(")
        buffers = reader.position
        reader.skip_parentheses()
        kernel.dims = list(self._group("dims", self._symbol))
        rest = reader.position
        reader.position = buffers
        kernel.buffers = reader.listed(self._buffer, ")")
        reader.position = rest
        kernel.tasks = self._after("tasks", lambda: self._inside("()", self._dim))
        if reader.accept("scratch"):
            kernel.scratch = self._inside("()", self._dim)
        if reader.accept("type"):
            kernel.type = reader.string()
        kernel.classes = self._group("classes", reader.string)
        self.scope[ir.TASK] = of_atom(Sym(ir.TASK, 0, kernel.tasks - 1))
        kernel.body, yields = self._block()
        if yields:
            reader.fail_before("no yield outside a loop or branch")
        reader.expect_end()
        return kernel

    def _symbol(self) -> Sym:
        symbol = read_symbol(self._reader, self.scope)  # none is computed
        self.scope[symbol.name] = of_atom(symbol)
        return symbol

    def _buffer(self) -> ir.Buffer:
        reader = self._reader
        name = reader.name("a buffer")
        reader.expect(":")
        dtype, elements = self._dtype(), self._inside("[]", self._dim)
        access = reader.name("in, out or inout")
        nontemporal = reader.accept("nontemporal")
        over = self._group("over", lambda: reader.name("a buffer"))
        return ir.Buffer(name, dtype, elements, access, over, nontemporal)

    # ---- parts ------------------------------------------------------------------------------

    def _type(self) -> ir.VType:
        if self._reader.accept("tile"):
            return self._tile_type()
        match = re.fullmatch(r"([a-z0-9]+?)(?:x([1-9]\d*))?", self._reader.name("a type"))
        if match is None:
            self._reader.fail_before("a type")
        return ir.VType(self._dtype(match[1]), int(match[2] or 1))

    def _tile_type(self) -> ir.VType:
        reader = self._reader
        reader.expect("<")
        rows = reader.integer()
        match = re.fullmatch(r"x([1-9]\d*)x([a-z0-9]+)", reader.name("columns and a dtype"))
        if match is None or rows < 1:
            reader.fail_before('"ROWSxCOLUMNSxDTYPE"')
        type = ir.VType(self._dtype(match[2]), int(match[1]), rows)
        reader.expect(">")
        return type

    def _operand(self) -> ir.Operand:
        reader = self._reader
        if reader.at_kind("value"):
            return self._use()
        if reader.at("true", "false"):
            return reader.take() == "true"
        return reader.number()

    def _use(self) -> ir.Value:
        name = self._reader.value()
        if name not in self._values:
            self._reader.fail_before(f"a register defined above, not %{name}")
        return self._values[name]

    def _define(self, name: str, type: ir.VType) -> ir.Value:
        if name in self._values:
            self._reader.fail_before(f"a new name, but %{name} is defined above")
        value = self._values[name] = ir.Value(name, type)
        return value

    def _mask(self) -> ir.Value | None:
        return self._use() if self._reader.accept("mask") else None

    def _stride(self) -> Dim:
        return self._dim() if self._reader.accept("stride") else 1

    # ---- statements -------------------------------------------------------------------------

    def _block(self) -> Block:
        reader = self._reader
        scope = dict(self.scope)
        reader.expect("{")
        body: list[ir.Stmt] = []
        yields: list[ir.Operand] = []
        while not reader.at("}", "yield"):
            body.append(self._statement())
        if reader.accept("yield"):
            yields.append(self._operand())
            while reader.accept(","):
                yields.append(self._operand())
        reader.expect("}")
        self.scope = scope
        return body, tuple(yields)

    def _statement(self) -> ir.Stmt:
        reader = self._reader
        if reader.at_kind("value"):
            return self._assignment()
        for keyword, read in (
            ("store", self._store),
            ("scatter", self._scatter),
            ("tile_store", self._tile_store),
            ("prefetch", self._prefetch),
            ("let", self._let),
        ):
            if reader.accept(keyword):
                return read()
        if reader.accept("for"):
            return self._for(())
        if reader.accept("repeat"):
            return self._repeat(())
        reader.expect("if")
        return self._if((), ())

    def _assignment(self) -> ir.Stmt:
        reader = self._reader
        names = [reader.value()]
        while reader.accept(","):
            names.append(reader.value())
        types: list[ir.VType] = []
        if reader.accept(":"):
            types.append(self._type())
            while reader.accept(","):
                types.append(self._type())
        reader.expect("=")
        if not types:
            if reader.accept("repeat"):
                return self._repeat(names)
            reader.expect("for")
            return self._for(names)
        if len(names) != len(types):
            reader.fail(f"{len(names)} types before it")
        if reader.accept("if"):
            return self._if(names, types)
        if len(names) > 1:
            reader.fail("'if'")
        return self._computed(names[0], types[0])

    def _computed(self, name: str, type: ir.VType) -> ir.Stmt:
        reader = self._reader
        if reader.accept("load"):
            buffer, index = self._element()
            mask, stride = self._mask(), self._stride()
            return ir.Load(self._define(name, type), buffer, index, mask, stride)
        if reader.accept("gather"):
            buffer, base, offsets = self._scattered()
            mask = self._mask()
            return ir.Gather(self._define(name, type), buffer, base, offsets, mask)
        if reader.accept("tile_load"):
            buffer, index = self._element()
            stride = self._after("stride", self._dim)
            return ir.TileLoad(self._define(name, type), buffer, index, stride)
        op = reader.name("an operator")
        reader.expect("(")
        if op == "index":
            dim = self._bracketed_dim()
            reader.expect(")")
            return ir.IndexValue(self._define(name, type), dim)
        args = tuple(reader.listed(self._operand, ")"))
        attrs = dict(reader.listed(self._attr, "}")) if reader.accept("{") else {}
        return ir.Instr(self._define(name, type), op, args, attrs)

    def _attr(self) -> tuple[str, int | str]:
        reader = self._reader
        name = reader.name("an attribute")
        reader.expect("=")
        return name, reader.string() if reader.at_kind("string") else reader.integer()

    def _element(self) -> tuple[str, Dim]:
        """NAME "[" dim "]" """
        return self._reader.name("a buffer"), self._inside("[]", self._dim)

    def _scattered(self) -> tuple[str, Dim, ir.Value]:
        """NAME "[" dim "+" VALUE "]" """
        buffer, base = self._reader.name("a buffer"), self._after("[", self._dim)
        return buffer, base, self._after("+", self._use, "]")

    def _store(self) -> ir.Store:
        buffer, index = self._element()
        value = self._after(",", self._use)
        return ir.Store(buffer, index, value, self._mask(), self._stride())

    def _scatter(self) -> ir.Scatter:
        buffer, base, offsets = self._scattered()
        return ir.Scatter(buffer, base, offsets, self._after(",", self._use), self._mask())

    def _tile_store(self) -> ir.TileStore:
        buffer, index = self._element()
        value = self._after(",", self._use)
        return ir.TileStore(buffer, index, value, self._after("stride", self._dim))

    def _prefetch(self) -> ir.Prefetch:
        return ir.Prefetch(*self._element())

    def _let(self) -> ir.Let:
        reader = self._reader
        name, value = reader.name("a symbol"), self._after("=", self._use)
        symbol = read_range(reader, name, self.scope)
        self.scope[name] = of_atom(symbol)
        return ir.Let(symbol, value)

    def _for(self, results: Sequence[str]) -> ir.For:
        reader = self._reader
        name = reader.name("a symbol")
        start, stop, step = (self._after(mark, self._dim) for mark in ("=", "to", "step"))
        loop = ir.For(ir.loop_symbol(name, start, stop), start, stop, step)
        loop.carried, loop.initial = self._carries(results)
        loop.unroll = reader.accept("unroll")
        scope = dict(self.scope)
        self.scope[name] = of_atom(loop.symbol)
        loop.body, loop.yields = self._block()
        self.scope = scope
        types = (carried.type for carried in loop.carried)
        loop.results = tuple(map(self._define, results, types))
        return loop

    def _repeat(self, results: Sequence[str]) -> ir.Repeat:
        carried, initial = self._carries(results)
        body, yields = self._block()
        condition = self._after("while", self._use)
        defined = tuple(self._define(n, c.type) for n, c in zip(results, carried, strict=True))
        return ir.Repeat(carried, initial, defined, condition, body, yields)

    def _carries(
        self, results: Sequence[str]
    ) -> tuple[tuple[ir.Value, ...], tuple[ir.Operand, ...]]:
        """Return the carried registers of a loop with these results, and their initial values."""
        carries = self._group("carry", self._carry)
        if len(carries) != len(results):
            self._reader.fail_before(f"{len(results)} carried registers")
        return tuple(carried for carried, _ in carries), tuple(initial for _, initial in carries)

    def _carry(self) -> tuple[ir.Value, ir.Operand]:
        name, type = self._reader.value(), self._after(":", self._type)
        initial = self._after("=", self._operand)
        return self._define(name, type), initial

    def _if(self, names: Sequence[str], types: Sequence[ir.VType]) -> ir.If:
        branch = ir.If(self._use())
        branch.then, branch.then_yields = self._block()
        if self._reader.accept("else"):
            branch.otherwise, branch.otherwise_yields = self._block()
        branch.results = tuple(map(self._define, names, types))
        return branch
