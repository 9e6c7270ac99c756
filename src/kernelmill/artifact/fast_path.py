"""The fast path into a bound program (runtime/quick.py), with tables kept up to date.

The tables are made from a full call. A later call that does not fit them is a full call again, and
they are rebuilt if that pays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelmill.artifact.effects import Effects
from kernelmill.artifact.guards import ArgumentCode
from kernelmill.artifact.manifest import Manifest
from kernelmill.artifact.sizes import asked_symbols
from kernelmill.artifact.target import Values
from kernelmill.artifact.unpacker import ArgumentUnpacker
from kernelmill.core.dim import of_atom
from kernelmill.core.scalar import roots
from kernelmill.plan.ir import SymbolInput, TensorInput
from kernelmill.runtime import quick
from kernelmill.runtime.layout import Refusal
from kernelmill.runtime.memory.dims import plan_dims
from kernelmill.runtime.program import Program
from kernelmill.runtime.quick import QuickCall, Row

_MOST_STRUCTURES = 8
"""Limit on rebuilding the tables for arguments of another structure."""


def fast_path_of(
    manifest: Manifest, program: Program | None, effects: Effects | None, code: ArgumentCode
) -> FastPath | None:
    """Return the fast path into a program, or None if it cannot have one."""
    if program is None or not quick.suits(program):
        return None
    integers = _integers(manifest, program)
    return None if integers is None else FastPath(manifest, program, integers, effects, code)


def _integers(manifest: Manifest, program: Program) -> Mapping[int, int] | None:
    """Return the integer arguments to read at each call, with the number of the dim of each.

    The size of a tensor argument is checked with the tensor; strides and offsets are not, or not
    all. None when one cannot be read.
    """
    engine = program.engine
    checked = engine.tables.tensor_arguments
    inputs = manifest.spec.inputs
    tensors = {inputs[i].path: engine.plan.inputs[i] for i in checked}
    dims = {symbol.name: of_atom(symbol) for symbol in engine.plan.symbols}
    read = roots(plan_dims(engine.plan))
    asked = read | asked_symbols(manifest.spec, engine.plan)
    found: dict[int, int] = {}
    for n, argument in enumerate(engine.plan.inputs):
        source = inputs[n]
        if not isinstance(argument, SymbolInput):
            continue
        if source.part != "size" and argument.symbol not in asked:
            continue
        if source.axis >= 0 and source.part == "size":
            tensor = tensors.get(source.path)
            if not isinstance(tensor, TensorInput):
                return None
            # One that nothing reads is equal to another size, by which the tensor is checked.
            if argument.symbol in read and str(tensor.shape[source.axis]) != argument.symbol:
                return None
        elif not source.own:
            return None
        else:
            found[n] = engine.dims.number(dims[argument.symbol])
    return found


class FastPath(QuickCall):
    """The fast path of a bound program; its `caller` takes the tuple of a call's values."""

    def __init__(
        self,
        manifest: Manifest,
        program: Program,
        integers: Mapping[int, int],
        effects: Effects | None,
        code: ArgumentCode,
    ) -> None:
        self._manifest, self._integers, self._effects = manifest, integers, effects
        self._code = code
        self._own_inputs = {n for n, source in enumerate(manifest.spec.inputs) if source.own}
        self._tensors = program.engine.tables.tensor_arguments
        own = [n in self._own_inputs for n in self._tensors]
        super().__init__(program, own)
        self._structures = 0
        self._structure: ArgumentUnpacker | None = None
        self._ready = False
        self.generation = 0

    def watch(self, rows: Sequence[Row] | None) -> None:
        """Watch these rows, refusing calls until a full one. Without rows, refuse for good."""
        self.close()
        self.generation += 1
        super().watch(rows)

    def learn(self, values: Values, arguments: Sequence[Any], generation: int) -> None:
        """A call with these values has gone through in full, and these were the program's; the
        generation is that of before they were looked for."""
        if not self._watching or generation != self.generation:
            return
        known = self._structure is None or self._structure.holds()
        if self.refusal == Refusal.STRUCTURE or not known:
            self.refusal = 0
            self._take_apart(values, arguments)
        if not self._ready:
            return
        parameters, binding = self._program.engine.parameters, None
        if parameters is not None:
            binding = parameters.bindings.get(id(arguments[parameters.key_argument]))
            if binding is None:  # good for one call only
                return
        if self.closed or binding is not self.binding:
            kept = (None if n in self._own_inputs else value for n, value in enumerate(arguments))
            self.open(tuple(kept), binding)

    def _take_apart(self, values: Values, arguments: Sequence[Any]) -> None:
        self.close()
        self._structures += 1
        self._ready = False
        if self._structures > _MOST_STRUCTURES:
            return
        count = len(arguments)
        structure = ArgumentUnpacker(self._manifest, values, count, self._integers, self._code)
        self._structure = structure
        symbols = self._program.engine.sources
        unpacking = structure.unpacking(self._tensors, symbols, self._effects)
        if unpacking is not None:
            self.set_steps(unpacking)
            self._ready = True
