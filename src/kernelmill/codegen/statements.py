"""Walks a kernel's body and writes each statement as LLVM IR."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from kernelmill.codegen import arithmetic, memory, vectors
from kernelmill.codegen.code import Block, Code, Reg
from kernelmill.codegen.index import Indices
from kernelmill.codegen.math import functions
from kernelmill.codegen.memory import Access, Promises, fills_vectors
from kernelmill.codegen.run_loads import RunLoads
from kernelmill.codegen.targets import answers, tiles
from kernelmill.core.dim import Dim, Sym, provably_less
from kernelmill.core.dtype import BOOL, F32, F64, I8, I16, I32, I64, DType
from kernelmill.core.errors import CodegenError
from kernelmill.core.target.dot_units import DOT_UNITS, DotUnit
from kernelmill.kernel import ir
from kernelmill.kernel.ir import COMPARE, MATH, REDUCE, statements_of

INDEX = ir.VType(I64)

_PREFETCH = "llvm.prefetch.p0"
_SHORT = 64
"""A loop is written out when all its passes together have so many statements at most: what counting
them costs is felt in kernels of a few vectors."""


class Body:
    """Writes the statements of one kernel into `code`. `pointers` names each buffer's address,
    `told` has the promises about it."""

    def __init__(
        self, code: Code, kernel: ir.Kernel, pointers: dict[str, str], told: Mapping[str, Promises]
    ) -> None:
        self.code, self.kernel, self.pointers, self.told = code, kernel, pointers, told
        self.indices = Indices(code)
        self._target = answers(code.isa)
        self.values: dict[ir.Value, Reg] = {}
        self._elements = {b.name: b.dtype for b in kernel.buffers}
        self._branch = 0  # the region of the innermost branch: code does not leave it
        self._loads = RunLoads(code, self.indices, pointers, self.values)
        self._write: dict[type, Callable[[Any], None]] = {
            ir.Instr: self.instruction, ir.IndexValue: self.index_value, ir.Load: self.load,
            ir.Gather: self.gather, ir.Store: self.store, ir.Scatter: self.scatter,
            ir.Prefetch: self.prefetch, ir.TileLoad: self.tile_load, ir.TileStore: self.tile_store,
            ir.Let: self.let, ir.For: self.loop, ir.Repeat: self.repeat, ir.If: self.branch,
        }  # fmt: skip

    def statements(self, body: Sequence[ir.Stmt]) -> None:
        """Write a block, in order."""
        self._loads.enter(body)
        for statement in body:
            try:
                self._write[type(statement)](statement)
            except (KeyError, AssertionError) as error:
                message = f"kernel {self.kernel.name}: {statement!r} cannot be generated: {error!r}"
                raise CodegenError(message) from error
        self._loads.leave()

    # ---- operands ---------------------------------------------------------------------------

    def operand(self, operand: ir.Operand, type: ir.VType) -> Reg:
        """Return a register spread over the lanes of `type`, or a literal of `type`."""
        if isinstance(operand, ir.Value):
            return self.code.splat(self.values[operand], type.lanes)
        return self.code.const(type, operand)

    def _operands(self, operands: Sequence[ir.Operand], types: Sequence[ir.Value]) -> list[Reg]:
        """Return operands for registers that are like these."""
        return [self.operand(a, like.type) for a, like in zip(operands, types, strict=True)]

    def _mask(self, mask: ir.Value | None, lanes: int) -> Reg | None:
        return None if mask is None else self.code.splat(self.values[mask], lanes)

    def _access(self, buffer: str, type: ir.VType, index: Dim) -> Access:
        address = self.indices.pointer(self.pointers[buffer], type.dtype, index)
        return Access(self.code, address, self.told[buffer].constant)

    def _stride(self, stride: Dim) -> Reg | int:
        stride = self.indices.resolve(stride)
        if isinstance(stride, int):
            return stride
        return Reg(self.code, self.indices.value(stride), INDEX)

    # ---- memory -----------------------------------------------------------------------------

    def load(self, statement: ir.Load) -> None:
        if self._loads.load(statement):
            return
        type = statement.result.type
        with self.code.outside(self._depth_of_load(statement)):
            access = self._access(statement.buffer, type, statement.index)
            mask, stride = self._mask(statement.mask, type.lanes), self._stride(statement.stride)
            plain = stride == 1
            found = access.load(type, mask) if plain else access.load_strided(type, stride, mask)
        self.values[statement.result] = found

    def _depth_of_load(self, statement: ir.Load) -> int:
        """Return the number of the region in which to load: one loop further out at most. A loop
        around that one may run where it has no pass, and the memory may then not be there."""
        here = len(self.code.regions) - 1
        fixed = statement.mask is None and self.told[statement.buffer].constant
        if statement.result.type.lanes > 1 or not fixed:
            return here
        return min(here, max(self._branch, here - 1, self.indices.depth(statement.index)))

    def store(self, statement: ir.Store) -> None:
        value = self.values[statement.value]
        access = self._access(statement.buffer, value.type, statement.index)
        isa, bytes = self.code.isa, value.dtype.bytes
        aligned = self.told[statement.buffer].aligned
        if aligned and fills_vectors(statement, value.lanes, bytes, isa):
            access.aligned = isa.vector_bytes
        mask, stride = self._mask(statement.mask, value.lanes), self._stride(statement.stride)
        if stride == 1:
            value = self._whole(value) if mask is None else value
            access.store(value, mask)
        else:
            access.store_strided(value, stride, mask)

    def _whole(self, value: Reg) -> Reg:
        """Freeze a value to be stored whole, where that is quicker. Of one that was chosen lane by
        lane LLVM would store some lanes alone if the others have just been read there. A frozen
        value is unknown to it."""
        chosen = self.code.definitions.get(value.text, "").startswith("select <")
        if not chosen or not self._target.stores_lanes_slowly:
            return value
        return self.code.result(f"freeze {value.typed}", value.type)

    def gather(self, statement: ir.Gather) -> None:
        type = statement.result.type
        access = self._access(statement.buffer, type, statement.base)
        offsets, mask = self.values[statement.offsets], self._mask(statement.mask, type.lanes)
        self.values[statement.result] = access.gather(type, offsets, mask)

    def scatter(self, statement: ir.Scatter) -> None:
        offsets = self.values[statement.offsets]
        value = self.code.splat(self.values[statement.value], offsets.lanes)
        access = self._access(statement.buffer, value.type, statement.base)
        access.scatter(value, offsets, self._mask(statement.mask, value.lanes))

    def tile_load(self, statement: ir.TileLoad) -> None:
        type = statement.result.type
        address = self.indices.pointer(self.pointers[statement.buffer], type.dtype, statement.index)
        stride = Reg(self.code, self.indices.value(statement.stride), INDEX)
        self.values[statement.result] = self._target.tile_load(type, address, stride)

    def tile_store(self, statement: ir.TileStore) -> None:
        value, dtype = self.values[statement.value], statement.value.type.dtype
        address = self.indices.pointer(self.pointers[statement.buffer], dtype, statement.index)
        stride = Reg(self.code, self.indices.value(statement.stride), INDEX)
        self._target.tile_store(value, address, stride)

    def prefetch(self, statement: ir.Prefetch) -> None:
        if self.told[statement.buffer].aligned:
            return  # what is written past the caches need not be in them
        dtype = self._elements[statement.buffer]
        address = self.indices.pointer(self.pointers[statement.buffer], dtype, statement.index)
        self.code.module.declare(_PREFETCH, "void", ["ptr", "i32", "i32", "i32"])
        self.code.line(f"call void @{_PREFETCH}(ptr {address}, i32 0, i32 3, i32 1)")

    # ---- values -----------------------------------------------------------------------------

    def index_value(self, statement: ir.IndexValue) -> None:
        text = self.indices.value(statement.dim)
        self.values[statement.result] = Reg(self.code, text, INDEX)

    def let(self, statement: ir.Let) -> None:
        self.indices.bind(statement.symbol, self.values[statement.value].text)

    def instruction(self, statement: ir.Instr) -> None:
        with self.code.outside(self._depth(statement)):
            self.values[statement.result] = self._instruction(statement)
        self._loads.computed(statement)

    def _depth(self, statement: ir.Instr) -> int:
        """Return the number of the region in which to compute this: scalars that do not change in a
        loop are computed before it. LLVM leaves them inside where it counts many registers."""
        here, type = len(self.code.regions) - 1, statement.result.type
        if type.lanes > 1 or type.rows or statement.op == "check":
            return here
        args = [self.values[arg] for arg in statement.args if isinstance(arg, ir.Value)]
        return min(here, max(self._branch, self.code.depth(*args)))

    def _instruction(self, statement: ir.Instr) -> Reg:
        op, args, type = statement.op, statement.args, statement.result.type
        if op in arithmetic.UNARY:
            return arithmetic.UNARY[op](self.operand(args[0], type))
        if op in arithmetic.BINARY:
            a, b = self.operand(args[0], type), self.operand(args[1], type)
            return arithmetic.BINARY[op](a, b)
        if op in MATH:
            return functions.apply(op, [self.operand(arg, type) for arg in args])
        if op in COMPARE:
            compared = ir.VType(self._dtype_of(args), type.lanes)
            a, b = self.operand(args[0], compared), self.operand(args[1], compared)
            return arithmetic.compare(op, a, b)
        if op == "fma":
            return arithmetic.fma(self.code, *(self.operand(arg, type) for arg in args))
        if op == "dot":
            unit = _unit(statement)
            lanes = unit.words(type.lanes)
            a, b = (self.operand(args[n], ir.VType(unit.word, lanes[n])) for n in (0, 1))
            return self._target.dot(unit, a, b, self.operand(args[2], type))
        if op == "select":
            # With a known condition LLVM 22 drops the selection where it takes both sides for 0,
            # as it does 0 / 0.
            condition = memory.hidden(self.operand(args[0], ir.VType(BOOL)))
            a, b = self.operand(args[1], type), self.operand(args[2], type)
            return self.code.select(condition, a, b)
        return self._other(statement)

    def _dtype_of(self, args: Sequence[ir.Operand]) -> DType:
        """Return the dtype of literals among the operands: the first register's, or their own."""
        for arg in args:
            if isinstance(arg, ir.Value):
                return arg.type.dtype
        if isinstance(args[0], bool):
            return BOOL
        return I64 if isinstance(args[0], int) else F64

    def _other(self, statement: ir.Instr) -> Reg:
        op, args, type = statement.op, statement.args, statement.result.type
        if op == "iota":
            return vectors.iota(self.code, type)
        if op == "tile_zero":
            return self._target.tile_zero(self.code, type)
        if op == "tile_dot":
            a, b, total = (self.operand(arg, type) for arg in args)
            return self._target.tile_dot(_unit(statement), a, b, total)
        source = self.operand(args[0], ir.VType(self._dtype_of(args[:1])))
        if op == "cast":
            outside = str(statement.attrs.get("outside", ""))
            if outside == "lowest" and source.dtype == F32 and type.dtype in (I8, I16, I32):
                source = self._target.truncate(source) or source
            return self.code.splat(arithmetic.cast(source, type.dtype, outside), type.lanes)
        if op == "bitcast":
            return arithmetic.bitcast(source, type)
        if op == "splat":
            return self.operand(args[0], type)
        if op == "lane_mask":
            return self._lane_mask(self.operand(args[0], INDEX), type.lanes)
        if op == "extract":
            return vectors.extract(self.code, source, self.operand(args[1], INDEX))
        if op == "slice":
            return vectors.slice_lanes(source, int(statement.attrs["start"]), type.lanes)
        if op == "concat2":
            return vectors.concat(source, self.operand(args[1], ir.VType(source.dtype)))
        if op == "interleave":
            second = self.operand(args[1], ir.VType(source.dtype))
            interleave = tiles.interleave if self._turns_tiles(source) else vectors.interleave
            return interleave(source, second, int(statement.attrs["half"]))
        if op == "check":
            return self._check(source, int(statement.attrs.get("code", 1)))
        if op in REDUCE:
            return vectors.reduce(op, source)
        raise CodegenError(f"kernel {self.kernel.name}: unknown operator {op!r}")

    def _lane_mask(self, count: Reg, lanes: int) -> Reg:
        if count.text.startswith("%"):
            return vectors.lane_mask(self.code, count, lanes)
        return memory.first_lanes(self.code, int(count.text), lanes)

    @cached_property
    def _tiles_in_memory(self) -> bool:
        body = statements_of(self.kernel.body)
        return not self.code.isa.has_tiles and any(isinstance(each, ir.TileLoad) for each in body)

    def _turns_tiles(self, row: Reg) -> bool:
        """Return whether a register is wider than a vector and may be a row of a tile."""
        return row.lanes * row.dtype.bits > self.code.isa.vector_bits and self._tiles_in_memory

    def _check(self, condition: Reg, code: int) -> Reg:
        every = vectors.reduce("reduce_and", condition)
        fail, done = self.code.new_block("fail"), self.code.new_block("checked")
        self.code.line(f"br {every.typed}, label %{done.label}, label %{fail.label}")
        self.code.place(fail)
        # Several threads may report at once, so the plain store is an atomic one.
        address = self.pointers[ir.STATUS]
        self.code.line(f"store atomic i64 {code}, ptr {address} monotonic, align 8")
        self.code.line(f"br label %{done.label}")
        self.code.place(done)
        return condition

    # ---- control ----------------------------------------------------------------------------

    def loop(self, statement: ir.For) -> None:
        start, stop = self.indices.resolve(statement.start), self.indices.resolve(statement.stop)
        step = self.indices.resolve(statement.step)
        if isinstance(start, int) and isinstance(stop, int) and isinstance(step, int):
            numbers = range(start, stop, step)
            if statement.unroll or _is_short(statement, len(numbers)):
                self._unrolled(statement, numbers)
                return
        elif statement.unroll:
            raise CodegenError(f"kernel {self.kernel.name}: unrolled loop of unknown length")
        initial = self._operands(statement.initial, statement.carried)

        chains = self._loads.chains(statement)

        def body() -> list[Reg]:
            self.statements(statement.body)
            return [*self._finals(statement), *map(self._loads.following, chains)]

        carried = list(zip(statement.carried, initial, strict=True))
        carried += [(chain.address, self._loads.beginning(chain, start)) for chain in chains]
        results = self.counted(statement.symbol, (start, stop, step), carried, body)
        self.values.update(zip(statement.results, results, strict=False))

    def _unrolled(self, statement: ir.For, numbers: range) -> None:
        state = self._operands(statement.initial, statement.carried)
        for number in numbers:
            self.indices.replace(statement.symbol, number)
            self.values.update(zip(statement.carried, state, strict=True))
            self.statements(statement.body)
            state = self._operands(statement.yields, statement.carried)
        self.values.update(zip(statement.results, state, strict=True))

    def counted(
        self, symbol: Sym, bounds: tuple[Dim, Dim, Dim], carried: list[tuple[ir.Value, Reg]],
        body: Callable[[], list[Reg]], limits: tuple[str, str] | None = None,
    ) -> list[Reg]:  # fmt: skip
        """Write a loop with its test at the end, entered only when there is a pass to make.

        `limits` are the operands for the first two of `bounds`, when these are not expressions.
        """
        code, (start, stop, step) = self.code, bounds
        first, last = limits or (self.indices.value(start), self.indices.value(stop))
        increment = self.indices.value(step)
        entry, head, exit_ = (code.new_block(hint) for hint in ("enter", "loop", "exit"))
        certain = limits is None and provably_less(start, stop)
        before = code.label
        if certain:
            code.line(f"br label %{entry.label}")
        else:
            some = code.result(f"icmp slt i64 {first}, {last}", ir.VType(BOOL))
            code.line(f"br {some.typed}, label %{entry.label}, label %{exit_.label}")
        code.place(entry)
        around = code.regions[-1]
        known = dict(around.known)
        with code.region(head):
            finals, latch = self._passes(symbol, first, last, increment, carried, body, exit_)
        code.line(f"br label %{head.label}")
        code.place(exit_)
        if certain:
            return finals
        # What was hoisted to the loop's entry is unknown where the loop had no pass.
        around.known = known
        starts = [initial for _, initial in carried]
        return [
            _phi(code, [(begin, before), (end, latch)])
            for begin, end in zip(starts, finals, strict=True)
        ]

    def _passes(
        self, symbol: Sym, first: str, last: str, step: str, carried: list[tuple[ir.Value, Reg]],
        body: Callable[[], list[Reg]], exit_: Block,
    ) -> tuple[list[Reg], str]:  # fmt: skip
        """Write a loop's own region: phis, body, test. Return final values and the last block."""
        code = self.code
        head = code.regions[-1].block
        counter = code.result("", INDEX)
        phis = [code.result("", start.type, start.special) for _, start in carried]
        self.indices.bind(symbol, counter.text)
        self.values.update(zip((value for value, _ in carried), phis, strict=True))
        finals = body()
        following = code.result(f"add nsw i64 {counter.text}, {step}", INDEX)
        again = code.result(f"icmp slt i64 {following.text}, {last}", ir.VType(BOOL))
        weights = _weights(first, last, step)
        code.line(f"br {again.typed}, label %{head.label}, label %{exit_.label}{weights}")
        latch = code.label
        starts = [Reg(code, first, INDEX), *(initial for _, initial in carried)]
        _write_phis(head, [counter, *phis], starts, [following, *finals])
        return finals, latch

    def repeat(self, statement: ir.Repeat) -> None:
        """Write a loop that its own body ends."""
        code = self.code
        initial = self._operands(statement.initial, statement.carried)
        entry, head, exit_ = (code.new_block(hint) for hint in ("enter", "loop", "exit"))
        code.line(f"br label %{entry.label}")
        code.place(entry)
        with code.region(head):
            phis = [code.result("", value.type, value.special) for value in initial]
            self.values.update(zip(statement.carried, phis, strict=True))
            self.statements(statement.body)
            finals = self._finals(statement)
            again = self.values[statement.condition]
            code.line(f"br {again.typed}, label %{head.label}, label %{exit_.label}")
            _write_phis(head, phis, initial, finals)
        code.line(f"br label %{head.label}")
        code.place(exit_)
        self.values.update(zip(statement.results, finals, strict=True))

    def _finals(self, loop: ir.For | ir.Repeat) -> list[Reg]:
        """Return the values that a pass leaves to the next one, the last pass to later code."""
        finals = self._operands(loop.yields, loop.carried)
        tiles = iter(self._target.tiles_carried([value for value in finals if value.type.rows]))
        return [next(tiles) if value.type.rows else value for value in finals]

    def branch(self, statement: ir.If) -> None:
        code = self.code
        condition = self.values[statement.condition]
        then, otherwise, done = (code.new_block(hint) for hint in ("then", "else", "done"))
        before = code.regions[-1].block
        sides = [(then, statement.then, statement.then_yields)]
        if statement.otherwise or statement.otherwise_yields:
            sides.append((otherwise, statement.otherwise, statement.otherwise_yields))
        ends: list[tuple[list[Reg], str]] = []
        for block, body, yields in sides:
            with code.region(block):
                outer, self._branch = self._branch, len(code.regions) - 1
                self.statements(body)
                self._branch = outer
                values = self._operands(yields, statement.results)
                code.line(f"br label %{done.label}")
                ends.append((values, code.label))
        other = otherwise if len(sides) == 2 else done
        before.lines.append(f"br {condition.typed}, label %{then.label}, label %{other.label}")
        code.place(done)
        for i, result in enumerate(statement.results):
            self.values[result] = _phi(code, [(values[i], label) for values, label in ends])


def _unit(statement: ir.Instr) -> DotUnit:
    return DOT_UNITS[str(statement.attrs["unit"])]


def _is_short(loop: ir.For, passes: int) -> bool:
    straight = not any(isinstance(statement, (ir.For, ir.Repeat, ir.If)) for statement in loop.body)
    return straight and passes * len(loop.body) <= _SHORT


def _phi(code: Code, edges: list[tuple[Reg, str]]) -> Reg:
    first = edges[0][0]
    return code.result(_phi_text(edges), first.type, first.special)


def _write_phis(head: Block, phis: list[Reg], begins: list[Reg], ends: list[Reg]) -> None:
    """Write the first lines of a loop, whose region is the current one: what its registers are at
    its beginning, and what a pass leaves to the next."""
    code = phis[0].code
    before = code.regions[-2].block.label
    for i, (phi, begin, end) in enumerate(zip(phis, begins, ends, strict=True)):
        head.lines[i] = f"{phi.text} = {_phi_text([(begin, before), (end, code.label)])}"


def _phi_text(edges: list[tuple[Reg, str]]) -> str:
    values = ", ".join(f"[ {value.text}, %{label} ]" for value, label in edges)
    return f"phi {edges[0][0].llvm} {values}"


def pointer_names(kernel: ir.Kernel) -> dict[str, str]:
    """Map each buffer to the argument that holds its address."""
    names = {buffer.name: f"%b{i}" for i, buffer in enumerate(kernel.buffers)}
    names[ir.SCRATCH] = "%scratch"
    return names


def _weights(first: str, last: str, step: str) -> str:
    """Return branch weights of a loop of known length, as the end of its last branch."""
    try:
        passes = -(-(int(last) - int(first)) // int(step))
    except ValueError:
        return ""
    return f', !prof !{{!"branch_weights", i32 {min(max(passes - 1, 0), 10**9)}, i32 1}}'
