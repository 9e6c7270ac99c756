"""The quick way into a bound program (runtime/quick.py): its tables, kept in step with what is so.

The tables are made from a call that went through in full. A later call that they do not fit is
made in full again, and they are made anew if that is worth while.
"""

from __future__ import annotations

import ctypes
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from kernelmill.core.dim import of_atom
from kernelmill.plan.ir import SymbolInput, TensorInput
from kernelmill.runtime import quick
from kernelmill.runtime.layout import StepRecord, words
from kernelmill.runtime.program import Program
from kernelmill.runtime.quick import QuickCall, Row
from kernelmill.saved.fingerprint import is_atom
from kernelmill.saved.manifest import path_of
from kernelmill.saved.paths import Tree
from kernelmill.saved.reads import Read

_MOST_STRUCTURES = 8
"""How often the tables are made anew for values that are built otherwise."""

_LASTING = (type, types.FunctionType, types.BuiltinFunctionType)
_UNPACKING: dict[type, int] = {tuple: quick.TUPLE, list: quick.LIST, dict: quick.DICT}

Values = tuple[Any, ...]


class Layout(Protocol):
    """What is asked of a manifest: where a program finds its arguments, and what is compared; see
    saved/manifest.py."""

    @property
    def parameters(self) -> tuple[str, ...]: ...
    @property
    def inputs(self) -> tuple[Any, ...]: ...
    @property
    def input_places(self) -> tuple[int, ...]: ...
    @property
    def reads(self) -> tuple[Read, ...]: ...
    @property
    def tree(self) -> Tree: ...


def shortcut_of(
    manifest: Layout, program: Program | None, build: Callable[[list[Any]], Any]
) -> Shortcut | None:
    """The shortcut into a program, if it can have one."""
    if program is None or not quick.suits(program):
        return None
    integers = _integers(manifest, program)
    return None if integers is None else Shortcut(manifest, program, integers, build)


def _integers(manifest: Layout, program: Program) -> Mapping[int, int] | None:
    """The integer arguments that have to be looked at, with the number of the dim that each is.

    One that is the size of a tensor argument is seen when that is checked. None when there is one
    that cannot be looked at.
    """
    engine = program.engine
    checked = engine.tables.tensor_arguments
    tensors = {manifest.inputs[i]: engine.plan.inputs[i] for i in checked}
    dims = {symbol.name: of_atom(symbol) for symbol in engine.plan.symbols}
    found: dict[int, int] = {}
    for n, argument in enumerate(engine.plan.inputs):
        entry = manifest.inputs[n]
        if not isinstance(argument, SymbolInput):
            continue
        if entry[0] == "size":
            tensor = tensors.get(path_of(entry))
            name = str(tensor.shape[entry[2]]) if isinstance(tensor, TensorInput) else ""
            if name != argument.symbol:
                return None
        elif entry[0][0] != "argument" or not engine.dims.knows(dims[argument.symbol]):
            return None
        else:
            found[n] = engine.dims.number(dims[argument.symbol])
    return found


class Shortcut:
    """`call` takes the tuple of a call's values; see QuickCall."""

    def __init__(
        self,
        manifest: Layout,
        program: Program,
        integers: Mapping[int, int],
        build: Callable[[list[Any]], Any],
    ) -> None:
        self._manifest, self._program, self._integers = manifest, program, integers
        self._quick = QuickCall(program)
        self._structures = 0
        self._ready = False
        self._rows: Sequence[Row] | None = None
        self._own = {n for n, e in enumerate(manifest.inputs) if path_of(e)[0][0] == "argument"}
        self.generation = 0
        self.call = self._quick.caller(build)

    def watch(self, rows: Sequence[Row] | None) -> None:
        """Watch these, and refuse all calls until one has gone through in full. Without any, for
        good."""
        self._quick.close()
        self.generation += 1
        self._rows = rows
        if rows is not None:
            self._quick.set_watch(rows)

    def unmoved(self) -> bool:
        """Whether nothing of what is watched has moved; False in doubt."""
        return self._rows is not None and quick.unmoved(self._quick.address)

    @property
    def rows(self) -> Sequence[Row]:
        """What is watched."""
        return self._rows or ()

    def learn(self, values: Values, arguments: Sequence[Any], generation: int) -> None:
        """A call with these values has gone through in full, and these were the program's; the
        generation is that of before they were looked for."""
        if self._rows is None or generation != self.generation:
            return
        if self._quick.refusal == quick.STRUCTURE:
            self._quick.refusal = 0
            self._take_apart(values, arguments)
        if not self._ready:
            return
        parameters, binding = self._program.engine.parameters, None
        if parameters is not None:
            binding = parameters.bindings.get(id(arguments[parameters.key_argument]))
            if binding is None:  # good for one call only
                return
        if self._quick.closed or binding is not self._quick.binding:
            kept = (None if n in self._own else value for n, value in enumerate(arguments))
            self._quick.open(tuple(kept), binding)

    def _take_apart(self, values: Values, arguments: Sequence[Any]) -> None:
        self._quick.close()
        self._structures += 1
        self._ready = False
        if self._structures > _MOST_STRUCTURES:
            return
        structure = _Structure(self._manifest, values, len(arguments), self._integers)
        sources = structure.sources(self._program.engine.tables.tensor_arguments)
        if sources is not None:
            self._quick.set_steps(structure.steps, structure.registers, sources, structure.keep)
            self._ready = True


class _Structure:
    """How the values of a call are taken apart, worked out on one that is right."""

    def __init__(
        self, manifest: Layout, values: Values, count: int, integers: Mapping[int, int]
    ) -> None:
        self._manifest = manifest
        self._objects: list[Any] = [values, None]
        self.steps: list[StepRecord] = []
        self.keep: list[Any] = []
        self._unpacked: dict[int, int] = {}
        first = self._take(quick.TUPLE, quick.GIVEN, None, values)
        self._outside = self._take(quick.TUPLE, quick.ARGUMENTS, None, [None] * count)
        self._registers = {name: first + number for number, name in enumerate(manifest.parameters)}
        self._places: dict[int, int] = {}
        self.right = all(map(self._place, range(len(manifest.tree.rows)))) and all(
            self._check(number) for number in range(len(manifest.reads))
        )
        for n, dim in integers.items() if self.right else ():
            register = self._places[manifest.input_places[n]]
            self._expect(quick.TYPE, register, int)
            self.steps.append(StepRecord(quick.INTEGER, register, None, dim, 0))

    @property
    def registers(self) -> int:
        """How many there are."""
        return len(self._objects)

    def sources(self, arguments: Sequence[int]) -> list[int] | None:
        """The register of each of these arguments; None when the values cannot be taken apart."""
        if not self.right:
            return None
        found: list[int] = []
        for n in arguments:
            own = path_of(self._manifest.inputs[n])[0][0] == "argument"
            place = self._manifest.input_places[n]
            found.append(self._places[place] if own else self._outside + n)
        return found

    def _take(self, operation: int, source: int, keys: Any, items: Sequence[Any]) -> int:
        target = len(self._objects)
        self._objects += items
        self.steps.append(StepRecord(operation, source, keys, len(items), target))
        return target

    def _expect(self, operation: int, register: int, value: object) -> None:
        self.keep.append(value)
        self.steps.append(StepRecord(operation, register, id(value), 0, 0))

    def _place(self, number: int) -> bool:
        """Find the register of a place of the tree; True for those outside of arguments too."""
        before, (kind, *names) = self._manifest.tree.rows[number]
        if before < 0:
            if kind == "argument":
                self._places[number] = self._registers[names[0]]
            return True
        if before not in self._places:
            return True
        owner = self._objects[self._places[before]]
        if kind != "item" or type(owner) not in _UNPACKING:
            return False
        first = self._unpack(self._places[before])
        self._places[number] = first + (
            list(owner).index(names[0]) if type(owner) is dict else names[0] % len(owner)
        )
        return True

    def _unpack(self, register: int) -> int:
        """The first register of a container's elements."""
        if register in self._unpacked:
            return self._unpacked[register]
        owner = self._objects[register]
        self._expect(quick.TYPE, register, type(owner))
        keys, items = None, owner
        if type(owner) is dict:
            named: dict[Any, Any] = owner
            table = words([id(key) for key in named])
            self.keep += [table, *named]
            keys, items = ctypes.addressof(table), list(named.values())
        first = self._take(_UNPACKING[type(owner)], register, keys, items)
        self._unpacked[register] = first
        return first

    def _check(self, number: int) -> bool:
        """Add what a read of an argument asks for; False when no step can."""
        read = self._manifest.reads[number]
        if not read.of_argument:
            return not read.other or read.other[0][0] != "argument"
        register = self._places[read.place]
        value = self._objects[register]
        if read.kind == "value" and (is_atom(value) or isinstance(value, _LASTING)):
            self._expect(quick.IDENTITY, register, value)
        elif read.kind == "class":
            self._expect(quick.TYPE, register, type(value))
        elif read.kind in ("shape", "contains") and type(value) in _UNPACKING:
            self._unpack(register)
        else:
            return False
        return True
