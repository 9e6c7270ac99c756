"""Checks that a kernel keeps the rules of its IR: definitions, scopes, types, buffers, symbols."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager

from kernelmill.core.dim import Dim, Sym, symbols
from kernelmill.core.dtype import BOOL, I32, I64, DType
from kernelmill.core.errors import VerificationError
from kernelmill.core.target.dot_units import TILE_ROW_BYTES, TILE_ROWS
from kernelmill.kernel import ir
from kernelmill.kernel.in_place import overwritable
from kernelmill.kernel.text import print_statement
from kernelmill.kernel.typing import TypingError, check_fits, check_instr, require

_ACCESS = ("in", "out", "inout")


def verify_kernel(kernel: ir.Kernel, stage: str = "") -> None:
    """Raise VerificationError, naming the statement, unless `kernel` keeps every rule of the IR.

    That an index lies inside its buffer is not checked. `stage` is the step that made the kernel.
    """
    try:
        _Verifier(kernel).run()
    except TypingError as error:
        raise VerificationError(f"kernel {kernel.name}: {error}", stage) from None


class _Verifier:
    def __init__(self, kernel: ir.Kernel) -> None:
        self._kernel = kernel
        self._buffers: dict[str, ir.Buffer] = {}
        self._symbols: set[str] = set()
        self._visible: set[ir.Value] = set()
        self._defined: set[ir.Value] = set()

    def run(self) -> None:
        kernel = self._kernel
        require(kernel.name.isidentifier(), f"the name {kernel.name!r} is no identifier")
        for symbol in kernel.dims:
            self._bind(symbol)
        require(ir.TASK not in self._symbols, f"{ir.TASK!r} is no name for a dim")
        for buffer in kernel.buffers:
            self._buffer(buffer)
        self._dims(kernel.tasks, kernel.scratch)
        self._bind(Sym(ir.TASK))
        self._block(kernel.body)
        if any(buffer.over for buffer in kernel.buffers):
            self._over()

    def _over(self) -> None:
        known = overwritable(self._kernel)
        for buffer in self._kernel.buffers:
            wrong = sorted(set(buffer.over) - known.get(buffer.name, frozenset()))
            require(not wrong, f"buffer {buffer.name} cannot lie over {', '.join(wrong)}")

    def _buffer(self, buffer: ir.Buffer) -> None:
        name = buffer.name
        require(name not in self._buffers, f"two buffers are called {name!r}")
        require(name != ir.SCRATCH, f"{name!r} is no name for a buffer")
        require(buffer.access in _ACCESS, f"buffer {name}: access {buffer.access!r}")
        require(not buffer.dtype.is_opaque, f"buffer {name}: no kernel works on {buffer.dtype}")
        marked = buffer.nontemporal or buffer.over
        require(not marked or buffer.access == "out", f"buffer {name}: marks are for outputs")
        if name == ir.STATUS:
            require(buffer.dtype == I64, f"buffer {name} must be i64, not {buffer.dtype}")
        self._dims(buffer.elements)
        self._buffers[name] = buffer

    # ---- scopes -----------------------------------------------------------------------------

    @contextmanager
    def _scope(self) -> Generator[None]:
        visible, known = set(self._visible), set(self._symbols)
        yield
        self._visible, self._symbols = visible, known

    def _bind(self, symbol: Sym) -> None:
        require(symbol.name not in self._symbols, f"symbol {symbol} is bound twice")
        self._symbols.add(symbol.name)

    def _dims(self, *dims: Dim) -> None:
        for dim in dims:
            if isinstance(dim, int):
                continue
            unknown = symbols(dim).keys() - self._symbols
            if unknown:
                raise TypingError(f"symbol {', '.join(sorted(unknown))} of {dim} is not in scope")

    def _define(self, values: Iterable[ir.Value]) -> None:
        for value in values:
            if value in self._defined:
                raise TypingError(f"{value} is defined twice")
            if value.type.lanes < 1:
                raise TypingError(f"{value} has {value.type.lanes} lanes")
            if value.type.dtype.is_opaque:
                raise TypingError(f"{value}: no register holds {value.type}")
            if value.type.rows:
                _fits_unit(value)
            self._defined.add(value)
            self._visible.add(value)

    def _use(self, *operands: ir.Operand | None) -> None:
        for operand in operands:
            if isinstance(operand, ir.Value) and operand not in self._visible:
                known = "is not in scope here" if operand in self._defined else "is not defined"
                raise TypingError(f"{operand} {known}")

    # ---- statements -------------------------------------------------------------------------

    def _block(self, body: Sequence[ir.Stmt]) -> None:
        for statement in body:
            try:
                self._statement(statement)
            except TypingError as error:
                if error.args[0].startswith("in "):
                    raise
                raise TypingError(f"in `{print_statement(statement)}`: {error}") from None

    def _statement(self, statement: ir.Stmt) -> None:
        match statement:
            case ir.Instr():
                self._instr(statement)
            case ir.IndexValue(result, dim):
                self._dims(dim)
                require(result.type == ir.VType(I64), f"an index is i64, not {result.type}")
                self._define((result,))
            case ir.Load(result, buffer, index, mask, stride):
                self._no_tile(result)
                self._access(buffer, result.type.dtype, "in", index, stride)
                self._mask(mask, result.type.lanes)
                self._define((result,))
            case ir.Gather(result, buffer, base, offsets, mask):
                self._no_tile(result)
                self._access(buffer, result.type.dtype, "in", base)
                self._offsets(offsets, result.type.lanes)
                self._mask(mask, result.type.lanes)
                self._define((result,))
            case ir.Store(buffer, index, value, mask, stride):
                self._use(value)
                self._no_tile(value)
                self._access(buffer, value.type.dtype, "out", index, stride)
                self._mask(mask, value.type.lanes)
            case ir.Scatter(buffer, base, offsets, value, mask):
                self._use(value)
                self._no_tile(value)
                self._access(buffer, value.type.dtype, "out", base)
                lanes = offsets.type.lanes
                self._offsets(offsets, lanes)
                require(value.type.lanes in (1, lanes), f"{lanes} offsets for {value.type}")
                self._mask(mask, lanes)
            case ir.TileLoad(result, buffer, index, stride):
                require(result.type.rows > 0, f"{result} is no tile")
                self._access(buffer, result.type.dtype, "in", index, stride)
                self._define((result,))
            case ir.TileStore(buffer, index, value, stride):
                self._use(value)
                require(value.type.rows > 0, f"{value} is no tile")
                self._access(buffer, value.type.dtype, "out", index, stride)
            case ir.Prefetch(buffer, index):
                require(buffer in self._buffers, f"no buffer {buffer!r} to prefetch from")
                self._dims(index)
            case ir.Let(symbol, value):
                self._use(value)
                require(value.type == ir.VType(I64), f"{value} is {value.type}, not i64")
                self._bind(symbol)
            case ir.For():
                self._for(statement)
            case ir.Repeat():
                self._repeat(statement)
            case ir.If():
                self._if(statement)

    def _no_tile(self, value: ir.Value) -> None:
        if value.type.rows:
            raise TypingError(f"{value} is a tile: it takes tile_load and tile_store")

    def _instr(self, instr: ir.Instr) -> None:
        self._use(*instr.args)
        check_instr(instr)
        if instr.op == "check":
            status = self._buffers.get(ir.STATUS)
            writable = status is not None and status.access != "in"
            require(writable, f"check needs a buffer {ir.STATUS!r} to write to")
        self._define((instr.result,))

    def _access(self, name: str, dtype: DType, direction: str, index: Dim, stride: Dim = 1) -> None:
        self._dims(index, stride)
        require(stride != 0, "the stride is 0")
        if name == ir.SCRATCH:
            require(self._kernel.scratch != 0, "the kernel has no scratch memory")
            return
        buffer = self._buffers.get(name)
        if buffer is None:
            raise TypingError(f"there is no buffer {name!r}")
        verb = "read" if direction == "in" else "written"
        if buffer.access not in (direction, "inout"):
            raise TypingError(f"buffer {name} is declared {buffer.access!r} and is {verb}")
        if buffer.dtype != dtype:
            raise TypingError(f"buffer {name} holds {buffer.dtype}, not {dtype}")

    def _mask(self, mask: ir.Value | None, lanes: int) -> None:
        if mask is not None:
            self._use(mask)
            check_fits(mask, ir.VType(BOOL, lanes))

    def _offsets(self, offsets: ir.Value, lanes: int) -> None:
        self._use(offsets)
        self._no_tile(offsets)
        require(offsets.type.dtype in (I64, I32), f"offsets are i64 or i32, not {offsets.type}")
        require(offsets.type.lanes == lanes, f"{offsets.type.lanes} offsets for {lanes} lanes")

    def _for(self, loop: ir.For) -> None:
        self._dims(loop.start, loop.stop, loop.step)
        require(not isinstance(loop.step, int) or loop.step > 0, f"the step is {loop.step}")
        constant = all(isinstance(dim, int) for dim in (loop.start, loop.stop, loop.step))
        require(constant or not loop.unroll, "an unrolled loop has constant bounds")
        self._carries(loop)
        with self._scope():
            self._bind(loop.symbol)
            self._define(loop.carried)
            self._block(loop.body)
            self._yields(loop.yields, loop.carried)
        self._define(loop.results)

    def _repeat(self, loop: ir.Repeat) -> None:
        self._carries(loop)
        with self._scope():
            self._define(loop.carried)
            self._block(loop.body)
            self._yields(loop.yields, loop.carried)
            self._use(loop.condition)
        require(loop.condition.type == ir.VType(BOOL), f"{loop.condition} is no scalar bool")
        self._define(loop.results)

    def _carries(self, loop: ir.For | ir.Repeat) -> None:
        counts = {len(part) for part in (loop.carried, loop.initial, loop.results, loop.yields)}
        require(len(counts) == 1, f"{_COUNTS} differ in number")
        self._use(*loop.initial)
        for carried, initial, result in zip(loop.carried, loop.initial, loop.results, strict=True):
            check_fits(initial, carried.type)
            same = carried.type == result.type
            require(same, f"{carried} is {carried.type} and its result {result.type}")

    def _if(self, branch: ir.If) -> None:
        self._use(branch.condition)
        require(branch.condition.type == ir.VType(BOOL), f"{branch.condition} is no scalar bool")
        sides = ((branch.then, branch.then_yields), (branch.otherwise, branch.otherwise_yields))
        for body, yields in sides:
            counts = len(yields), len(branch.results)
            require(counts[0] == counts[1], f"a branch yields {counts[0]} values for {counts[1]}")
            with self._scope():
                self._block(body)
                self._yields(yields, branch.results)
        self._define(branch.results)

    def _yields(self, yields: Sequence[ir.Operand], targets: Sequence[ir.Value]) -> None:
        self._use(*yields)
        for operand, target in zip(yields, targets, strict=True):
            check_fits(operand, target.type)


def _fits_unit(tile: ir.Value) -> None:
    row = tile.type.lanes * tile.type.dtype.bytes
    fits = tile.type.rows <= TILE_ROWS and row <= TILE_ROW_BYTES and row % 4 == 0
    require(fits, f"{tile} is {tile.type}: {TILE_ROWS} rows of up to {TILE_ROW_BYTES // 4} words")


_COUNTS = "carried registers, initial values, results and yields"
