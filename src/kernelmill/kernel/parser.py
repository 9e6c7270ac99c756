"""Kernels from text, by recursive descent over the grammar of ir.py. Types are taken as written."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kernelmill.core.dim import Dim, Sym, of_atom, read_dim, read_range, read_symbol
from kernelmill.core.dtype import BY_NAME, DType
from kernelmill.core.text import Reader
from kernelmill.kernel import ir

Block = tuple[list[ir.Stmt], tuple[ir.Operand, ...]]


def parse_kernel(text: str) -> ir.Kernel:
    """Parse the kernel that `text` describes; printing it gives the canonical text again.

    Raises ValueError with the line and what was expected there. The rules beyond the grammar are
    the verifier's.
    """
    return _Parser(text).kernel()


class _Parser:
    def __init__(self, text: str) -> None:
        self._reader = Reader(text)
        self._scope: dict[str, Dim] = {}
        self._values: dict[str, ir.Value] = {}

    def kernel(self) -> ir.Kernel:
        reader = self._reader
        reader.expect("kernel")
        kernel = ir.Kernel(reader.name(), "", [], [], 1, 0, [])
        reader.expect("(")
        buffers = reader.position
        reader.skip_parentheses()
        if reader.accept("dims"):
            reader.expect("(")
            kernel.dims = reader.listed(self._symbol, ")")
        rest = reader.position
        reader.position = buffers
        kernel.buffers = reader.listed(self._buffer, ")")
        reader.position = rest
        reader.expect("tasks")
        kernel.tasks = self._bracketed_dim("(", ")")
        if reader.accept("scratch"):
            kernel.scratch = self._bracketed_dim("(", ")")
        if reader.accept("type"):
            kernel.type = reader.string()
        if reader.accept("classes"):
            reader.expect("(")
            kernel.classes = tuple(reader.listed(reader.string, ")"))
        self._scope[ir.TASK] = of_atom(Sym(ir.TASK, 0, kernel.tasks - 1))
        kernel.body, yields = self._block()
        if yields:
            reader.fail_before("no yield outside a loop or branch")
        reader.expect_end()
        return kernel

    def _symbol(self) -> Sym:
        symbol = read_symbol(self._reader, self._scope)
        self._scope[symbol.name] = of_atom(symbol)
        return symbol

    def _buffer(self) -> ir.Buffer:
        reader = self._reader
        name = reader.name("a buffer")
        reader.expect(":")
        dtype = self._dtype(reader.name("a dtype"))
        elements = self._bracketed_dim("[", "]")
        access = reader.name("in, out or inout")
        nontemporal = reader.accept("nontemporal")
        over: list[str] = []
        if reader.accept("over"):
            reader.expect("(")
            over = reader.listed(lambda: reader.name("a buffer"), ")")
        return ir.Buffer(name, dtype, elements, access, tuple(over), nontemporal)

    # ---- parts ------------------------------------------------------------------------------

    def _dtype(self, name: str) -> DType:
        if name not in BY_NAME:
            self._reader.fail_before(f"a dtype, not {name!r}")
        return BY_NAME[name]

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

    def _dim(self) -> Dim:
        return read_dim(self._reader, self._scope)

    def _bracketed_dim(self, opening: str, closing: str) -> Dim:
        self._reader.expect(opening)
        dim = self._dim()
        self._reader.expect(closing)
        return dim

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
        scope = dict(self._scope)
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
        self._scope = scope
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
            buffer, index = reader.name("a buffer"), self._bracketed_dim("[", "]")
            mask, stride = self._mask(), self._stride()
            return ir.Load(self._define(name, type), buffer, index, mask, stride)
        if reader.accept("gather"):
            buffer, base, offsets = self._scattered()
            mask = self._mask()
            return ir.Gather(self._define(name, type), buffer, base, offsets, mask)
        if reader.accept("tile_load"):
            buffer, index = reader.name("a buffer"), self._bracketed_dim("[", "]")
            reader.expect("stride")
            return ir.TileLoad(self._define(name, type), buffer, index, self._dim())
        op = reader.name("an operator")
        reader.expect("(")
        if op == "index":
            dim = self._bracketed_dim("<", ">")
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

    def _scattered(self) -> tuple[str, Dim, ir.Value]:
        """NAME "[" dim "+" VALUE "]" """
        reader = self._reader
        buffer = reader.name("a buffer")
        reader.expect("[")
        base = self._dim()
        reader.expect("+")
        offsets = self._use()
        reader.expect("]")
        return buffer, base, offsets

    def _store(self) -> ir.Store:
        reader = self._reader
        buffer, index = reader.name("a buffer"), self._bracketed_dim("[", "]")
        reader.expect(",")
        return ir.Store(buffer, index, self._use(), self._mask(), self._stride())

    def _scatter(self) -> ir.Scatter:
        buffer, base, offsets = self._scattered()
        self._reader.expect(",")
        return ir.Scatter(buffer, base, offsets, self._use(), self._mask())

    def _tile_store(self) -> ir.TileStore:
        reader = self._reader
        buffer, index = reader.name("a buffer"), self._bracketed_dim("[", "]")
        reader.expect(",")
        value = self._use()
        reader.expect("stride")
        return ir.TileStore(buffer, index, value, self._dim())

    def _prefetch(self) -> ir.Prefetch:
        return ir.Prefetch(self._reader.name("a buffer"), self._bracketed_dim("[", "]"))

    def _let(self) -> ir.Let:
        reader = self._reader
        name = reader.name("a symbol")
        reader.expect("=")
        value = self._use()
        symbol = read_range(reader, name, self._scope)
        self._scope[name] = of_atom(symbol)
        return ir.Let(symbol, value)

    def _for(self, results: Sequence[str]) -> ir.For:
        reader = self._reader
        name = reader.name("a symbol")
        reader.expect("=")
        start = self._dim()
        reader.expect("to")
        stop = self._dim()
        reader.expect("step")
        loop = ir.For(ir.loop_symbol(name, start, stop), start, stop, self._dim())
        loop.carried, loop.initial = self._carries(results)
        loop.unroll = reader.accept("unroll")
        scope = dict(self._scope)
        self._scope[name] = of_atom(loop.symbol)
        loop.body, loop.yields = self._block()
        self._scope = scope
        types = (carried.type for carried in loop.carried)
        loop.results = tuple(map(self._define, results, types))
        return loop

    def _repeat(self, results: Sequence[str]) -> ir.Repeat:
        carried, initial = self._carries(results)
        body, yields = self._block()
        self._reader.expect("while")
        condition = self._use()
        defined = tuple(self._define(n, c.type) for n, c in zip(results, carried, strict=True))
        return ir.Repeat(carried, initial, defined, condition, body, yields)

    def _carries(
        self, results: Sequence[str]
    ) -> tuple[tuple[ir.Value, ...], tuple[ir.Operand, ...]]:
        """Return the carried registers of a loop with these results, and their initial values."""
        reader = self._reader
        carries: list[tuple[ir.Value, ir.Operand]] = []
        if reader.accept("carry"):
            reader.expect("(")
            carries = reader.listed(self._carry, ")")
        if len(carries) != len(results):
            reader.fail_before(f"{len(results)} carried registers")
        return tuple(carried for carried, _ in carries), tuple(initial for _, initial in carries)

    def _carry(self) -> tuple[ir.Value, ir.Operand]:
        name = self._reader.value()
        self._reader.expect(":")
        type = self._type()
        self._reader.expect("=")
        initial = self._operand()
        return self._define(name, type), initial

    def _if(self, names: Sequence[str], types: Sequence[ir.VType]) -> ir.If:
        branch = ir.If(self._use())
        branch.then, branch.then_yields = self._block()
        if self._reader.accept("else"):
            branch.otherwise, branch.otherwise_yields = self._block()
        branch.results = tuple(map(self._define, names, types))
        return branch
