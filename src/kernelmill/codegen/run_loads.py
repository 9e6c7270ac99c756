"""Neighbouring vectors that one instruction reads, in loops of products.

The addresses of a loop's runs go from one to the next, and round the loop. LLVM does not see that,
or it would find each from the first again, by an instruction of its own.

There every load is one instruction more for each few multiply-adds. Such an instruction takes its
address from a register alone, and can leave the address of what follows in it, so that runs of one
operand follow one another: each finds its address from the one before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from kernelmill.codegen.code import Code, Reg
from kernelmill.codegen.index import Indices
from kernelmill.codegen.targets import answers
from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, Expr, of_atom, substitute, symbols
from kernelmill.core.dtype import BOOL, I64
from kernelmill.kernel import ir
from kernelmill.kernel.ir import For, Instr, Load, Stmt, Value, VType

_PRODUCTS = ("fma", "dot")
_WITHOUT_EFFECT = (ir.Instr, ir.IndexValue, ir.Let, ir.Load, ir.Prefetch)

_LOADS = 2
"""A loop is one of products where each load is for so many of them at least."""

_NEARBY = 1008
"""Bytes that instructions for two vectors reach from an address."""


@dataclass(frozen=True, eq=False)
class Run:
    """Loads of neighbouring vectors: the first one's place reads all of them.

    after  the run whose address this one's follows, by `step` elements
    """

    loads: tuple[ir.Load, ...]
    after: Run | None = None
    step: Dim = 0

    @property
    def first(self) -> ir.Load:
        """Load with the lowest address."""
        return self.loads[0]

    @property
    def elements(self) -> int:
        """Number of elements that all of them read."""
        return len(self.loads) * self.first.result.type.lanes


def load_runs(body: Sequence[ir.Stmt], most: int, vector_bytes: int) -> dict[int, Run]:
    """By the identity of a load of this block the run that it belongs to: of up to `most` whole
    vectors, with no product and no write between them. None where products are few."""
    loads = sum(isinstance(statement, ir.Load) for statement in body)
    if not loads or sum(map(is_product, body)) < _LOADS * loads:
        return {}
    runs: list[Run] = []
    for neighbours in _neighbours(body, vector_bytes):
        for part in _parts(neighbours, most):
            runs.append(_following(part, runs))
    pairs = _pairs_nearby(runs)
    return {id(load): run for run in runs if run not in pairs for load in run.loads}


def is_product(statement: ir.Stmt) -> bool:
    """Return whether a statement multiplies and adds to its third operand."""
    return isinstance(statement, ir.Instr) and statement.op in _PRODUCTS


def _neighbours(body: Sequence[ir.Stmt], vector_bytes: int) -> Iterator[list[ir.Load]]:
    """Yield lists of at least two loads, each of which reads behind the one before."""
    found: list[ir.Load] = []
    for statement in body:
        if isinstance(statement, ir.Load):
            if found and _follows(found[-1], statement):
                found.append(statement)
                continue
            ends, begun = True, [statement] if _is_vector(statement, vector_bytes) else []
        else:
            ends = is_product(statement) or not isinstance(statement, _WITHOUT_EFFECT)
            begun = []
        if ends:
            if len(found) > 1:
                yield found
            found = begun
    if len(found) > 1:
        yield found


def _pairs_nearby(runs: list[Run]) -> set[Run]:
    """Return runs of two vectors that other instructions read too, from one address for all."""
    heads: dict[Run, Run] = {}
    far: set[Run] = set()
    for run in runs:
        head = heads[run] = heads[run.after] if run.after else run
        distance = run.first.index - head.first.index
        bytes = run.first.result.type.dtype.bytes
        if len(run.loads) > 2 or not isinstance(distance, int) or abs(distance) * bytes > _NEARBY:
            far.add(head)
    return {run for run, head in heads.items() if head not in far}


def _is_vector(load: ir.Load, vector_bytes: int) -> bool:
    type = load.result.type
    plain = load.mask is None and load.stride == 1 and type.dtype != BOOL
    return plain and type.lanes * type.dtype.bytes == vector_bytes


def _follows(load: ir.Load, other: ir.Load) -> bool:
    type = load.result.type
    alike = (load.buffer, type, load.mask, load.stride) == (
        other.buffer, other.result.type, other.mask, other.stride
    )  # fmt: skip
    return alike and other.index - load.index == type.lanes


def _parts(loads: list[ir.Load], most: int) -> Iterator[tuple[ir.Load, ...]]:
    """Split the loads into as few parts as can be, of about equal size."""
    count = -(-len(loads) // most)
    cuts = [len(loads) * n // count for n in range(count + 1)]
    return (tuple(loads[begin:end]) for begin, end in pairwise(cuts))


def _following(loads: tuple[ir.Load, ...], runs: list[Run]) -> Run:
    """Return the run of these loads. It follows a run that ends where it begins, or the nearest one
    of as many vectors, if any."""
    first = loads[0]
    same = [run for run in runs if run.first.buffer == first.buffer]
    for run in reversed(same):
        if first.index - run.first.index == run.elements:
            return Run(loads, run, run.elements)
    alike = [run for run in reversed(same) if len(run.loads) == len(loads)]
    steps = [(run, first.index - run.first.index) for run in alike]
    known = [(abs(step), run) for run, step in steps if isinstance(step, int)]
    if known:
        near = min(known, key=lambda one: one[0])[1]
        return Run(loads, near, first.index - near.first.index)
    if steps and first.buffer != ir.SCRATCH:
        return Run(loads, *steps[0])
    return Run(loads)


@dataclass(frozen=True, eq=False)
class Chain:
    """Runs of a loop's body that follow one another, from `head` to `tail`, and in its next pass
    again, `step` elements from the tail. `address` stands for the head's."""

    symbol: str
    head: Run
    tail: Run
    step: Dim
    address: ir.Value


def chains_of(runs: dict[int, Run], loop: ir.For) -> list[Chain]:
    """Those of the loop's body where each run has one that follows at most, and the way from pass
    to pass is the same for all."""
    every = list(dict.fromkeys(runs.values()))
    inside = {statement.symbol.name for statement in loop.body if isinstance(statement, ir.Let)}
    counter = of_atom(loop.symbol)
    found: list[Chain] = []
    for head in (run for run in every if run.after is None):
        tail, index = _tail(head, every), head.first.index
        if tail is None or not isinstance(index, Expr) or inside & symbols(index).keys():
            continue
        following = substitute(index, {loop.symbol.name: counter + loop.step})
        step = following - tail.first.index
        if isinstance(step, int) or loop.symbol.name not in symbols(step):
            address = ir.Value(f"{head.first.result.name}.address", ir.VType(I64))
            found.append(Chain(loop.symbol.name, head, tail, step, address))
    return found


def _tail(head: Run, runs: list[Run]) -> Run | None:
    """Return the last run of those that follow `head`; None where two follow one."""
    while True:
        after = [run for run in runs if run.after is head]
        if len(after) != 1:
            return None if after else head
        (head,) = after


_ADDRESS = VType(I64)


class RunLoads:
    """Those of one kernel, where its target has such instructions; `values` are its registers."""

    def __init__(
        self, code: Code, indices: Indices, pointers: dict[str, str], values: dict[Value, Reg]
    ) -> None:
        self._code, self._indices, self._pointers, self._values = code, indices, pointers, values
        self._target = answers(code.isa)
        self._blocks: dict[int, dict[int, Run]] = {}
        self._heads: dict[Run, Value] = {}
        self._runs: dict[int, Run] = {}
        self._addresses: dict[Run, str] = {}
        self._late: dict[Value, None] = {}

    def enter(self, body: Sequence[Stmt]) -> None:
        """Enter a block, whose statements come next."""
        self._late = {}
        self._runs |= self._found(body)

    def leave(self) -> None:
        """Leave the block, whose registers are not known after it."""
        self._late = {}

    def _found(self, body: Sequence[Stmt]) -> dict[int, Run]:
        if self._target.vectors_together == 1:
            return {}
        if id(body) not in self._blocks:
            bytes = self._code.isa.vector_bytes
            self._blocks[id(body)] = load_runs(body, self._target.vectors_together, bytes)
        return self._blocks[id(body)]

    def load(self, statement: Load) -> bool:
        """Return whether the load is one of a run, all of which its first load reads."""
        run = self._runs.get(id(statement))
        if run is None:
            return False
        if run.first is statement:
            type = statement.result.type
            address = self._addresses[run] = self._address(run)
            found = self._target.load_vectors(self._code, type, address, len(run.loads))
            self._values |= zip((load.result for load in run.loads), found, strict=True)
        return True

    def computed(self, statement: Instr) -> None:
        """Note a product. Registers just suffice for a tile's sums and operands, so a later load
        must come behind the products whose operands it replaces, before which LLVM would put it."""
        if not is_product(statement):
            return
        added = statement.args[2]
        if isinstance(added, Value):
            self._late.pop(added, None)
        type = statement.result.type
        if type.lanes * type.dtype.bytes == self._code.isa.vector_bytes:
            self._late[statement.result] = None

    # ---- addresses --------------------------------------------------------------------------

    def _address(self, run: Run) -> str:
        if run.after is not None:
            return self._behind(run.after, run.step)
        if run in self._heads:
            return self._values[self._heads[run]].text
        first = run.first
        base = self._pointers[first.buffer]
        return self._indices.pointer(base, first.result.type.dtype, first.index)

    def _behind(self, run: Run, step: Dim) -> str:
        """Return the address that many elements behind that of a run."""
        code, type = self._code, run.first.result.type
        bytes = self._indices.resolve(step * type.dtype.bytes)
        if isinstance(bytes, int) and step != run.elements:
            text = code.opaque(f"i64 {bytes}", 0)
        else:
            text = self._indices.value(bytes)
        moved = code.hoisted(f"getelementptr i8, ptr {self._addresses[run]}, i64 {text}", -1)
        # LLVM ends the process where there are no registers for all of them at once.
        most = code.isa.vector_registers - self._target.vectors_together
        if 0 < len(self._late) <= most:
            return self._behind_products(moved)
        return code.opaque(f"ptr {moved}")

    def _behind_products(self, address: str) -> str:
        """Return the address, known only when these products are."""
        code, late = self._code, [self._values[value] for value in self._late]
        kinds = ["ptr", *(value.llvm for value in late)]
        places = ["=r", *["=w"] * len(late), *map(str, range(len(kinds)))]
        given = ", ".join([f"ptr {address}", *(value.typed for value in late)])
        all = f"{{ {', '.join(kinds)} }}"
        text = code.hoisted(f'call {all} asm "", "{",".join(places)}"({given})', -1)
        for number, (value, was) in enumerate(zip(self._late, late, strict=True), 1):
            self._values[value] = code.result(f"extractvalue {all} {text}, {number}", was.type)
        self._late = {}
        return code.hoisted(f"extractvalue {all} {text}, 0", -1)

    # ---- loops ------------------------------------------------------------------------------

    def chains(self, loop: For) -> list[Chain]:
        """Return runs of a loop's body whose address goes round it."""
        found = chains_of(self._found(loop.body), loop)
        self._heads |= {chain.head: chain.address for chain in found}
        return found

    def beginning(self, chain: Chain, start: Dim) -> Reg:
        """Return the address that the first pass reads."""
        first = chain.head.first
        index = substitute(first.index, {chain.symbol: start})
        base = self._pointers[first.buffer]
        text = self._indices.pointer(base, first.result.type.dtype, index)
        return Reg(self._code, text, _ADDRESS, "ptr")

    def following(self, chain: Chain) -> Reg:
        """Return the address that the next pass reads, once the body is written."""
        self._late = {}
        del self._heads[chain.head]
        return Reg(self._code, self._behind(chain.tail, chain.step), _ADDRESS, "ptr")
