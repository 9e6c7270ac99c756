"""Writes the loads of load_runs.py.

The addresses of a loop's runs go from one to the next, and round the loop. LLVM does not see that,
or it would find each from the first again, by an instruction of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernelmill.codegen.code import Code, Reg
from kernelmill.codegen.index import Indices
from kernelmill.codegen.load_runs import Chain, Run, chains_of, is_product, load_runs
from kernelmill.codegen.targets import answers
from kernelmill.core.dim import Dim, substitute
from kernelmill.core.dtype import I64
from kernelmill.kernel.ir import For, Instr, Load, Stmt, Value, VType

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
