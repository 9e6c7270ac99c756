"""Runs a kernel statement by statement on numpy arrays: the reference meaning of the IR."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Union

import numpy as np

from kernelmill.core.dim import Dim, evaluate
from kernelmill.core.dtype import DType
from kernelmill.core.errors import VerificationError
from kernelmill.kernel import ir
from kernelmill.kernel.ir import Kernel
from kernelmill.kernel.numeric import Array, apply, literal, literal_dtype, numpy_dtype
from kernelmill.kernel.text import print_statement

_NOBODY, _SEVERAL = -1, -2


class SharedMemory:
    """The tasks that have read and written each element that two buffers may share."""

    def __init__(self, kernel: Kernel, memory: Mapping[str, Array]) -> None:
        self._pairs = [(buffer.name, name) for buffer in kernel.buffers for name in buffer.over]
        names = {name for pair in self._pairs for name in pair}
        self._tasks = {name: np.full(len(memory[name]), _NOBODY) for name in names}

    def watches(self, buffer: str) -> bool:
        """Return whether another buffer may share its memory."""
        return buffer in self._tasks

    def accessed(self, buffer: str, places: Array, task: int) -> str:
        """Note a task's reads or writes; return why they are wrong, or "".

        An element of the input is read by the task that writes it, before that. What that task
        has written itself it may write again.
        """
        if not self.watches(buffer):
            return ""
        for output, source in self._pairs:
            if buffer == source:
                written = _of(self._tasks[output], places)
                if (written != _NOBODY).any():
                    return f"{output}, which may lie over {source}, has been written there"
            elif buffer == output:
                readers = _of(self._tasks[source], places)
                if ((readers != _NOBODY) & (readers != task)).any():
                    return f"another task has read {source} there, over which {output} may lie"
        tasks, before = self._tasks[buffer], self._tasks[buffer][places]
        tasks[places] = np.where((before == _NOBODY) | (before == task), task, _SEVERAL)
        return ""


def _of(tasks: Array, places: Array) -> Array:
    return tasks[places[places < len(tasks)]]


Access = Union[ir.Load, ir.Gather, ir.TileLoad, ir.Store, ir.Scatter, ir.TileStore]

_UNSET = 0xA5
"""Byte that fills scratch memory before each task: reading it unset is a bug that shows."""


def run_kernel(
    kernel: ir.Kernel,
    buffers: Mapping[str, Array],
    dims: Mapping[str, int] | None = None,
    tasks: range | None = None,
) -> None:
    """Run `tasks` (all by default) of a verified kernel, in order, on `buffers` in place.

    `buffers` has a 1-d array for each of the kernel's, of its dtype (bf16: its bits as uint16) and
    at least as long as it says; `dims` has the values of the kernel's dims by name. Raises
    ValueError for arrays that do not fit, IndexError for an access outside of a buffer, and
    VerificationError for one that does not allow an output to lie over an input as the kernel says.
    """
    values = dict(dims or {})
    missing = [symbol.name for symbol in kernel.dims if symbol.name not in values]
    if missing:
        raise ValueError(f"kernel {kernel.name}: no value for the dims {', '.join(missing)}")
    memory = {
        buffer.name: _memory(kernel, buffer.name, buffers, values) for buffer in kernel.buffers
    }
    shared = SharedMemory(kernel, memory)
    with np.errstate(all="ignore"):
        for task in tasks if tasks is not None else range(evaluate(kernel.tasks, values)):
            _TaskRun(kernel, memory, shared, {**values, ir.TASK: task}).run()


def _memory(
    kernel: ir.Kernel, name: str, buffers: Mapping[str, Array], values: Mapping[str, int]
) -> Array:
    buffer = next(entry for entry in kernel.buffers if entry.name == name)
    array, elements = buffers.get(name), evaluate(buffer.elements, values)
    want = f"kernel {kernel.name}: buffer {name} is a 1-d array of {elements} {buffer.dtype}"
    if array is None or array.ndim != 1 or array.dtype != numpy_dtype(buffer.dtype):
        raise ValueError(want)
    if len(array) < elements:
        raise ValueError(f"{want}, not of {len(array)}")
    return array[:elements]


class _TaskRun:
    def __init__(
        self,
        kernel: ir.Kernel,
        memory: dict[str, Array],
        shared: SharedMemory,
        symbols: dict[str, int],
    ) -> None:
        self._kernel, self._memory, self._shared = kernel, memory, shared
        self._symbols = symbols
        self._registers: dict[ir.Value, Array] = {}
        size = evaluate(kernel.scratch, symbols)
        self._scratch = np.full(size, _UNSET, np.uint8)

    def run(self) -> None:
        self._block(self._kernel.body)

    # ---- operands ---------------------------------------------------------------------------

    def _dim(self, dim: Dim) -> int:
        return evaluate(dim, self._symbols)

    def _operand(self, operand: ir.Operand, type: ir.VType) -> Array:
        """Return the lanes of a register or literal that stands for `type`."""
        if isinstance(operand, ir.Value):
            value = self._registers[operand]
            same = type.rows or len(value) == type.lanes
            return value if same else np.broadcast_to(value, (type.lanes,))
        return np.broadcast_to(literal(operand, type.dtype), (type.lanes,))

    def _operands(self, operands: Sequence[ir.Operand], targets: Sequence[ir.Value]) -> list[Array]:
        pairs = zip(operands, targets, strict=True)
        return [self._operand(operand, target.type) for operand, target in pairs]

    def _assign(self, targets: Sequence[ir.Value], values: Sequence[Array]) -> None:
        self._registers.update(zip(targets, values, strict=True))

    # ---- memory -----------------------------------------------------------------------------

    def _buffer(self, name: str, dtype: DType) -> Array:
        if name != ir.SCRATCH:
            return self._memory[name]
        whole = len(self._scratch) // dtype.bytes * dtype.bytes
        return self._scratch[:whole].view(numpy_dtype(dtype))

    def _active(
        self, statement: Access, memory: Array, places: Array, mask: ir.Value | None
    ) -> Array:
        """Return a mask of the lanes that take part. Raises IndexError when one is outside of
        `memory`, and VerificationError when it is shared and may not be accessed now."""
        active = np.ones(len(places), np.bool_)
        if mask is not None:
            active = np.broadcast_to(self._registers[mask], (len(places),))
        outside = places[active & ((places < 0) | (places >= len(memory)))]
        where = f"kernel {self._kernel.name}, task {self._symbols[ir.TASK]}"
        if len(outside):
            access = f"`{print_statement(statement)}` at element {outside[0]} of {len(memory)}"
            raise IndexError(f"{where}: {access}")
        wrong = self._shared.accessed(statement.buffer, places[active], self._symbols[ir.TASK])
        if wrong:
            raise VerificationError(f"{where}: `{print_statement(statement)}`: {wrong}")
        return active

    def _read(
        self, statement: ir.Load | ir.Gather, buffer: str, places: Array, mask: ir.Value | None
    ) -> None:
        result = statement.result
        memory = self._buffer(buffer, result.type.dtype)
        active = self._active(statement, memory, places, mask)
        lanes = np.zeros(result.type.lanes, memory.dtype)
        lanes[active] = memory[places[active]]
        self._registers[result] = lanes

    def _write(
        self, statement: ir.Store | ir.Scatter, buffer: str, places: Array, mask: ir.Value | None
    ) -> None:
        value = statement.value
        memory = self._buffer(buffer, value.type.dtype)
        active = self._active(statement, memory, places, mask)
        lanes = np.broadcast_to(self._registers[value], places.shape)
        # Of lanes with the same address the last one stays, as numpy has it too.
        memory[places[active]] = lanes[active]

    def _neighbours(self, statement: ir.Load | ir.Store, type: ir.VType) -> Array | None:
        """Return a slice of the memory that is accessed, where that is all lanes side by side."""
        if statement.mask is not None or statement.stride != 1:
            return None
        if self._shared.watches(statement.buffer):
            return None
        memory, first = self._buffer(statement.buffer, type.dtype), self._dim(statement.index)
        if not 0 <= first <= len(memory) - type.lanes:
            return None
        return memory[first : first + type.lanes]

    def _rows(self, statement: ir.TileLoad | ir.TileStore, type: ir.VType) -> tuple[Array, Array]:
        """Return the memory that a tile is in, and the places of its rows there."""
        memory = self._buffer(statement.buffer, type.dtype)
        starts = self._strided(statement.index, type.rows, statement.stride)
        places = starts[:, None] + np.arange(type.lanes)
        self._active(statement, memory, places.reshape(-1), None)
        return memory, places

    def _strided(self, index: Dim, lanes: int, stride: Dim) -> Array:
        return self._dim(index) + np.arange(lanes) * self._dim(stride)

    # ---- statements -------------------------------------------------------------------------

    def _block(self, body: Sequence[ir.Stmt]) -> None:
        for statement in body:
            self._statement(statement)

    def _statement(self, statement: ir.Stmt) -> None:
        match statement:
            case ir.Instr():
                self._instr(statement)
            case ir.IndexValue(result, dim):
                self._registers[result] = np.array([self._dim(dim)], np.int64)
            case ir.Load(result, buffer, index, mask, stride):
                memory = self._neighbours(statement, result.type)
                if memory is not None:
                    self._registers[result] = memory.copy()
                    return
                places = self._strided(index, result.type.lanes, stride)
                self._read(statement, buffer, places, mask)
            case ir.Gather(_, buffer, base, offsets, mask):
                places = self._dim(base) + self._registers[offsets].astype(np.int64)
                self._read(statement, buffer, places, mask)
            case ir.Store(buffer, index, value, mask, stride):
                memory = self._neighbours(statement, value.type)
                if memory is not None:
                    memory[:] = self._registers[value]
                    return
                places = self._strided(index, value.type.lanes, stride)
                self._write(statement, buffer, places, mask)
            case ir.Scatter(buffer, base, offsets, _, mask):
                places = self._dim(base) + self._registers[offsets].astype(np.int64)
                self._write(statement, buffer, places, mask)
            case ir.TileLoad(result):
                memory, places = self._rows(statement, result.type)
                self._registers[result] = memory[places]
            case ir.TileStore(_, _, value):
                memory, places = self._rows(statement, value.type)
                memory[places] = self._registers[value]
            case ir.Prefetch():
                pass
            case ir.Let(symbol, value):
                self._symbols[symbol.name] = int(self._registers[value][0])
            case ir.For():
                self._for(statement)
            case ir.Repeat():
                self._repeat(statement)
            case ir.If():
                self._if(statement)

    def _instr(self, instr: ir.Instr) -> None:
        registers = [arg.type.dtype for arg in instr.args if isinstance(arg, ir.Value)]
        args: list[Array] = []
        types: list[DType] = []
        for position, arg in enumerate(instr.args):
            if isinstance(arg, ir.Value):
                args.append(self._registers[arg])
                types.append(arg.type.dtype)
            else:
                types.append(literal_dtype(instr, position, registers))
                args.append(literal(arg, types[-1]))
        result = apply(instr, args, types)
        self._registers[instr.result] = result
        if instr.op == "check" and not result.all():
            self._memory[ir.STATUS][0] = instr.attrs.get("code", 1)

    def _for(self, loop: ir.For) -> None:
        state = self._operands(loop.initial, loop.carried)
        for index in range(self._dim(loop.start), self._dim(loop.stop), self._dim(loop.step)):
            self._symbols[loop.symbol.name] = index
            self._assign(loop.carried, state)
            self._block(loop.body)
            state = self._operands(loop.yields, loop.carried)
        self._assign(loop.results, state)

    def _repeat(self, loop: ir.Repeat) -> None:
        state = self._operands(loop.initial, loop.carried)
        again = True
        while again:
            self._assign(loop.carried, state)
            self._block(loop.body)
            state = self._operands(loop.yields, loop.carried)
            again = bool(self._registers[loop.condition][0])
        self._assign(loop.results, state)

    def _if(self, branch: ir.If) -> None:
        holds = bool(self._registers[branch.condition][0])
        self._block(branch.then if holds else branch.otherwise)
        yields = branch.then_yields if holds else branch.otherwise_yields
        self._assign(branch.results, self._operands(yields, branch.results))
