"""Builds kernels: nested blocks as `with`, registers named and typed as they are made."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager

from kernelmill.core.dim import Dim, Expr, Sym, of_atom
from kernelmill.core.dtype import BOOL, I64, DType
from kernelmill.core.target.dot_units import DotUnit
from kernelmill.kernel import ir
from kernelmill.kernel.ir import COMPARE, REDUCE

Carried = ir.Value | tuple[ir.VType, ir.Operand]
"""The initial value of a loop: a register, or a type and an operand of it."""


def _types_and_values(
    carry: Sequence[Carried],
) -> tuple[tuple[ir.VType, ...], tuple[ir.Operand, ...]]:
    pairs = [(one.type, one) if isinstance(one, ir.Value) else one for one in carry]
    return tuple(kind for kind, _ in pairs), tuple(value for _, value in pairs)


class _Carrying:
    """A loop that is being built: `carried` inside, `results` afterwards."""

    def __init__(self, statement: ir.For | ir.Repeat) -> None:
        self._statement = statement
        self.carried, self.results = statement.carried, statement.results

    def carry(self, *values: ir.Operand) -> None:
        """Set the carried registers' values for the next pass."""
        if len(values) != len(self.carried):
            raise ValueError(f"loop carries {len(self.carried)} values, not {len(values)}")
        self._statement.yields = values


class Loop(_Carrying):
    """A counted loop that is being built, with its `index`."""

    def __init__(self, statement: ir.For) -> None:
        super().__init__(statement)
        self.index: Expr = of_atom(statement.symbol)


class Repetition(_Carrying):
    """A loop without a count that is being built."""

    def __init__(self, statement: ir.Repeat) -> None:
        super().__init__(statement)
        self._repeat = statement

    def again(self, condition: ir.Value, *values: ir.Operand) -> None:
        """Set the condition for another pass, and the carried registers' values for it."""
        self.carry(*values)
        self._repeat.condition = condition


class KernelBuilder:
    """Appends statements to the innermost open block of one kernel.

    `outside`: what casts make of floats that an integer type does not hold; see ir.py.
    """

    def __init__(self, name: str, type: str, tasks: Dim = 1, outside: str = "lowest") -> None:
        self.kernel = ir.Kernel(name, type, [], [], tasks, 0, [])
        self.task: Expr = of_atom(Sym(ir.TASK, 0, tasks - 1))
        self._blocks: list[list[ir.Stmt]] = [self.kernel.body]
        self._narrow: dict[ir.Value, ir.Value] = {}
        self._count = 0
        self._outside = outside

    def set_tasks(self, tasks: Dim) -> None:
        """Set the number of tasks; `task` is known to be below that from now on."""
        self.kernel.tasks = tasks
        self.task = of_atom(Sym(ir.TASK, 0, tasks - 1))

    def buffer(self, name: str, dtype: DType, elements: Dim, access: str) -> str:
        """Declare a parameter and return its name."""
        self.kernel.buffers.append(ir.Buffer(name, dtype, elements, access))
        return name

    def fresh(self, dtype: DType, lanes: int = 1) -> ir.Value:
        """Return a new register, not yet assigned."""
        return self.fresh_of(ir.VType(dtype, lanes))

    def fresh_of(self, type: ir.VType) -> ir.Value:
        """Return a new register or tile of this type."""
        self._count += 1
        return ir.Value(str(self._count - 1), type)

    def fresh_symbol(self, prefix: str, low: int = 0, high: Dim | None = None) -> Sym:
        """Return a new index symbol with a range; its name has a _, unlike dims of a graph."""
        self._count += 1
        return Sym(f"{prefix}_{self._count - 1}", low, high)

    def append(self, statement: ir.Stmt) -> None:
        self._blocks[-1].append(statement)

    def op(
        self, op: str, *args: ir.Operand, dtype: DType | None = None, lanes: int | None = None,
        **attrs: int | str,
    ) -> ir.Value:  # fmt: skip
        """Append `op`. Lanes and dtype default to those of the widest register among `args`.

        A half type that was widened is not rounded again but taken as it was.
        """
        registers = [arg for arg in args if isinstance(arg, ir.Value)]
        if op == "cast" and registers[0] in self._narrow:
            narrow = self._narrow[registers[0]]
            if narrow.type.dtype == dtype and lanes in (None, narrow.type.lanes):
                return narrow
        if lanes is None:
            widths = [register.type.lanes for register in registers]
            lanes = sum(widths) if op == "concat2" else max(widths, default=1)
            lanes = 1 if op in REDUCE or op == "extract" else lanes
        if dtype is None:
            if op in COMPARE or op == "lane_mask":
                dtype = BOOL
            else:
                typed = registers[1:] if op == "select" and len(registers) > 1 else registers
                dtype = typed[0].type.dtype
        if op == "cast" and registers[0].type.dtype.is_float and dtype.is_integer:
            attrs.setdefault("outside", self._outside)
        result = self.fresh(dtype, lanes)
        self.append(ir.Instr(result, op, args, attrs))
        if op == "cast" and registers[0].type.dtype.compute == dtype != registers[0].type.dtype:
            self._narrow[result] = registers[0]
        return result

    def cast(self, value: ir.Value, dtype: DType) -> ir.Value:
        """Return a register in that dtype: itself where it has it."""
        return value if value.type.dtype == dtype else self.op("cast", value, dtype=dtype)

    def index(self, dim: Dim) -> ir.Value:
        """Return the value of a dim expression as a scalar i64 register."""
        result = self.fresh(I64)
        self.append(ir.IndexValue(result, dim))
        return result

    def let(self, value: ir.Value, low: int = 0, high: Dim | None = None) -> Expr:
        """Return a scalar i64 register as an index expression whose range the caller promises."""
        symbol = self.fresh_symbol("n", low, high)
        self.append(ir.Let(symbol, value))
        return of_atom(symbol)

    def load(
        self, buffer: str, index: Dim, dtype: DType, lanes: int = 1, mask: ir.Value | None = None,
        stride: Dim = 1,
    ) -> ir.Value:  # fmt: skip
        result = self.fresh(dtype, lanes)
        self.append(ir.Load(result, buffer, index, mask, stride))
        return result

    def gather(
        self, buffer: str, base: Dim, offsets: ir.Value, dtype: DType, mask: ir.Value | None = None
    ) -> ir.Value:
        result = self.fresh(dtype, offsets.type.lanes)
        self.append(ir.Gather(result, buffer, base, offsets, mask))
        return result

    def store(
        self,
        buffer: str,
        index: Dim,
        value: ir.Value,
        mask: ir.Value | None = None,
        stride: Dim = 1,
    ) -> None:
        self.append(ir.Store(buffer, index, value, mask, stride))

    def prefetch(self, buffer: str, index: Dim) -> None:
        """Append a prefetch of a cache line of a buffer that will be read soon."""
        self.append(ir.Prefetch(buffer, index))

    def scatter(
        self,
        buffer: str,
        base: Dim,
        offsets: ir.Value,
        value: ir.Value,
        mask: ir.Value | None = None,
    ) -> None:
        self.append(ir.Scatter(buffer, base, offsets, value, mask))

    def dot(self, unit: DotUnit, a: ir.Operand, b: ir.Operand, sum: ir.Value) -> ir.Value:
        """Append `sum` plus products of packed words, or of tiles, by the type of the sum."""
        result = self.fresh_of(sum.type)
        op = "tile_dot" if sum.type.rows else "dot"
        self.append(ir.Instr(result, op, (a, b, sum), {"unit": unit.name}))
        return result

    def tile_zero(self, type: ir.VType) -> ir.Value:
        """Append a tile of zeros."""
        result = self.fresh_of(type)
        self.append(ir.Instr(result, "tile_zero", ()))
        return result

    def tile_load(self, buffer: str, index: Dim, type: ir.VType, stride: Dim) -> ir.Value:
        """Append the load of a tile whose rows are `stride` elements apart."""
        result = self.fresh_of(type)
        self.append(ir.TileLoad(result, buffer, index, stride))
        return result

    def tile_store(self, buffer: str, index: Dim, value: ir.Value, stride: Dim) -> None:
        self.append(ir.TileStore(buffer, index, value, stride))

    @contextmanager
    def loop(
        self, start: Dim, stop: Dim, step: Dim = 1,
        carry: Sequence[Carried] = (), prefix: str = "i",
        unroll: bool = False, high: Dim | None = None,
    ) -> Generator[Loop]:  # fmt: skip
        """Open a loop over [start, stop); close it by leaving the `with`.

        `high` is the largest index, by the caller's promise, where that says more than `stop - 1`.
        """
        symbol = ir.loop_symbol(self.fresh_symbol(prefix).name, start, stop)
        if high is not None:
            symbol = Sym(symbol.name, symbol.lo, high)
        kinds, initial = _types_and_values(carry)
        carried, results = tuple(map(self.fresh_of, kinds)), tuple(map(self.fresh_of, kinds))
        statement = ir.For(symbol, start, stop, step, carried, initial, results, unroll=unroll)
        self.append(statement)
        with self.reopen(statement.body):
            yield Loop(statement)

    @contextmanager
    def repeat(self, carry: Sequence[Carried] = ()) -> Generator[Repetition]:
        """Open a loop that runs as long as its body says with `again`, and at least once."""
        kinds, initial = _types_and_values(carry)
        carried, results = tuple(map(self.fresh_of, kinds)), tuple(map(self.fresh_of, kinds))
        # Until `again` says what: a register that is nowhere defined, which no verifier lets pass.
        statement = ir.Repeat(carried, initial, results, self.fresh(BOOL))
        self.append(statement)
        with self.reopen(statement.body):
            yield Repetition(statement)

    @contextmanager
    def when(self, condition: ir.Value) -> Generator[ir.If]:
        """Open the block that runs when `condition` holds."""
        statement = ir.If(condition)
        self.append(statement)
        with self.reopen(statement.then):
            yield statement

    @contextmanager
    def reopen(self, block: list[ir.Stmt]) -> Generator[None]:
        """Append to the end of a block that was left."""
        self._blocks.append(block)
        try:
            yield
        finally:
            self._blocks.pop()

    def otherwise(self, statement: ir.If) -> AbstractContextManager[None]:
        """Open the other block of an `if` that was built with `when`."""
        return self.reopen(statement.otherwise)
