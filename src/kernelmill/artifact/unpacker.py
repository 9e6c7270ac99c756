"""Native unpacking of a call's arguments: the steps that find tensors in containers and objects,
and compare the other values that the trace read.

The steps are made from the values of a valid call, and hold for all calls whose values have the
same structure. Of a caller's objects they keep only data and classes.
"""

from __future__ import annotations

import ctypes
import types
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from kernelmill.artifact.guard_kinds import is_about_layout, is_lasting
from kernelmill.artifact.guards import ArgumentCode
from kernelmill.artifact.manifest import Guard, Manifest
from kernelmill.artifact.paths import MISSING
from kernelmill.artifact.results import Effects
from kernelmill.runtime import quick
from kernelmill.runtime.layout import StepKind, StepRecord, SymbolRecord, words
from kernelmill.runtime.memory.dims import SizeSource
from kernelmill.torch_internals import objects

_UNPACKING: dict[type, int] = {tuple: StepKind.TUPLE, list: StepKind.LIST, dict: StepKind.DICT}
_PARTS = {"size": StepKind.SIZE, "stride": StepKind.STRIDE, "offset": StepKind.OFFSET}
_WHOLE_WORD = -1

MOST_REGISTERS = 8192
"""Limit on the registers of a call. They are on the stack, which is small in some threads; larger
structures are unpacked in Python."""

_LARGEST_INTEGER = 2**63 - 1


class ArgumentUnpacker:
    """The steps for values like `values`, of a program with `count` arguments. `integers` are the
    integer arguments to read, strides and offsets of tensors among them, with the number of the dim
    of each; `code` describes the classes and functions."""

    def __init__(
        self, manifest: Manifest, values: tuple[Any, ...], count: int, integers: Mapping[int, int],
        code: ArgumentCode,
    ) -> None:  # fmt: skip
        self._tree, self._inputs = manifest.tree, manifest.spec.inputs
        self._objects: list[Any] = [values, None]
        self.steps: list[StepRecord] = []
        self.keep: list[Any] = []
        self._unpacked: dict[int, int] = {}
        self._typed: set[int] = set()
        self._code = code
        first = self._take(StepKind.TUPLE, quick.GIVEN, None, values)
        self._outside = self._take(StepKind.TUPLE, quick.ARGUMENTS, None, [None] * count)
        self._registers = {name: first + number for number, name in enumerate(manifest.spec.names)}
        self._places: dict[int, int] = {}
        self._settled: set[int] = set()
        self._kept: list[Any] = []
        self.right = (
            self.registers <= MOST_REGISTERS
            and all(map(self._place, range(len(self._tree.rows))))
            and all(map(self._check, manifest.spec.checks))
            and self.holds()
        )
        for n, dim in integers.items() if self.right else ():
            register = self._places[self._inputs[n].place]
            source = self._inputs[n]
            if source.axis < 0:
                self._expect(StepKind.TYPE, register, int)
            part = StepKind.INTEGER if source.axis < 0 else _PARTS[source.part]
            self.steps.append(StepRecord(part, register, None, dim, source.axis))

    @property
    def registers(self) -> int:
        """Number of registers."""
        return len(self._objects)

    def holds(self) -> bool:
        """Return whether the classes and functions are still watched."""
        return all(map(self._code.is_watched, self._kept))

    def unpacking(
        self, arguments: Sequence[int], symbols: Sequence[SizeSource], effects: Effects | None
    ) -> quick.Unpacking | None:
        """Return the steps and the registers of these arguments, symbols and objects changed by
        effects; None when the values cannot be unpacked."""
        sources = [
            (self._places.get(self._inputs[n].place) if self._inputs[n].own else self._outside + n)
            for n in arguments
        ]
        changed = [] if effects is None else list(map(self._places.get, effects.changed))
        if not self.right or None in sources or None in changed:
            return None
        # A place without a register is a class, or in one: effects change none of these.
        others = [] if effects is None else [self._places.get(place) for place in effects.others]
        return quick.Unpacking(
            self.steps, self.registers, _numbers(sources), self._symbols(symbols),
            _numbers(changed), _numbers(others), self.keep,
        )  # fmt: skip

    def _symbols(self, sources: Sequence[SizeSource]) -> list[SymbolRecord]:
        """Return the sources of the values of symbols; [] unless a call brings them all."""
        found: list[SymbolRecord] = []
        for source in sources:
            given = self._inputs[source.argument]
            if not given.own or given.place not in self._places:
                return []
            axis = source.axis if given.axis < 0 else given.axis
            register = self._places[given.place]
            part = StepKind.INTEGER if axis < 0 else _PARTS[given.part]
            found.append(SymbolRecord(register, part, axis, given.times, given.plus))
        return found

    def _take(self, operation: int, source: int, keys: Any, items: Sequence[Any]) -> int:
        target = len(self._objects)
        self._objects += items
        self.steps.append(StepRecord(operation, source, keys, len(items), target))
        return target

    def _expect(self, operation: int, register: int, value: object) -> None:
        self.keep.append(value)
        self.steps.append(StepRecord(operation, register, id(value), 0, 0))

    def _expect_type(self, register: int) -> type:
        """Return the class of the value in a register, and have each call check it."""
        kind = type(self._objects[register])
        if register not in self._typed:
            self._typed.add(register)
            self._expect(StepKind.TYPE, register, kind)
            self._kept.append(kind)
        return kind

    # ---- places -----------------------------------------------------------------------------

    def _place(self, number: int) -> bool:
        """Find the register of a place of the tree; True for those outside of arguments too."""
        before, step = self._tree.rows[number]
        kind, *names = step
        if before < 0:
            if kind == "argument":
                self._places[number] = self._registers[names[0]]
            return True
        if before not in self._places:
            return True
        register = self._places[before]
        owner = self._objects[register]
        if kind == "type":  # which is watched
            self._expect_type(register)
            return True
        if kind == "attribute" and type(owner) is torch.device:  # which never changes
            self._expect_value(register, owner)
            self._settled.add(number)
            return True
        if kind in ("attribute", "field"):
            found = self._attribute(register, names[0])
            self._places[number] = found
            return found > 0
        first = self._unpack(register) if kind == "item" else 0
        if not first:
            return False
        self._places[number] = first + (
            list(owner).index(names[0]) if type(owner) is dict else names[0] % len(owner)
        )
        return True

    def _unpack(self, register: int) -> int:
        """Return the first register of a container's elements; 0 when they are too many, or it
        cannot be unpacked."""
        if register in self._unpacked:
            return self._unpacked[register]
        owner = self._objects[register]
        if type(owner) not in _UNPACKING or self.registers + len(owner) > MOST_REGISTERS:
            return 0
        self._expect_type(register)
        keys, items = None, owner
        if type(owner) is dict:
            named: dict[Any, Any] = owner
            table = words([id(key) for key in named])
            self.keep += [table, *named]
            keys, items = ctypes.addressof(table), list(named.values())
        first = self._take(_UNPACKING[type(owner)], register, keys, items)
        self._unpacked[register] = first
        return first

    def _attribute(self, register: int, name: str) -> int:
        """Return the register of an attribute in an object's own __dict__; 0 if it has none there,
        or if its class may override it."""
        owner, kind = self._objects[register], self._expect_type(register)
        if not self._are_plain(kind) or name not in vars(owner):
            return 0
        if _overrides(self._in_class(kind, name)):
            return 0
        self.keep.append(name)
        target = len(self._objects)
        self._objects.append(vars(owner)[name])
        self.steps.append(StepRecord(StepKind.ATTRIBUTE, register, id(name), hash(name), target))
        return target

    # ---- guards -----------------------------------------------------------------------------

    def _check(self, guard: Guard) -> bool:
        """Add the check of a guard of an argument; False if no step can make it."""
        if is_about_layout(guard):  # `layout_check` looks at these before quick calls
            return True
        register = self._places.get(guard.place)
        if register is None:
            return guard.place in self._settled and guard.kind == "value"
        match guard.kind:
            case "value":
                value = self._objects[register]
                if is_lasting(value):
                    self._kept.append(value)
                    self._expect_value(register, value)
                return is_lasting(value)
            case "class" | "type":
                self._expect_type(register)
                return True
            case "shape" | "keys" | "contains":
                return self._unpack(register) > 0
            case "absent":
                return self._expect_absent(register, guard)
            case "same":
                other = self._places.get(guard.other_place)
                if other is not None:
                    same = self._objects[register] is self._objects[other]
                    self.steps.append(StepRecord(StepKind.SAME, register, None, same, other))
                return other is not None
            case "has":
                return self._expect_has(register, guard.name)
            case _:
                return False

    def _expect_absent(self, register: int, guard: Guard) -> bool:
        if guard.found != "True":
            return self._attribute(register, guard.name) > 0
        kind = self._expect_type(register)
        if not kind.__dictoffset__:
            return True
        return self._are_plain(kind) and self._expect_nothing(register, guard.name)

    def _expect_has(self, register: int, name: str) -> bool:
        """Expect the attribute where it was found: in the class, in the object's own __dict__, or
        nowhere."""
        owner, kind = self._objects[register], self._expect_type(register)
        if not self._are_plain(kind):
            return False
        found = self._in_class(kind, name)
        if found is not MISSING:
            # A property's code was traced, and what it read is compared: it gives the same again.
            sure = isinstance(found, (property, types.FunctionType, classmethod, staticmethod))
            return sure or not hasattr(type(found), "__get__")
        if name in vars(owner):
            return self._attribute(register, name) > 0
        if self._in_class(kind, "__getattr__") is not MISSING:
            return False
        return self._expect_nothing(register, name)

    def _expect_value(self, register: int, value: Any) -> None:
        """Compare data by its value where that is a word, everything else by identity."""
        kind, step = type(value), None
        if kind is int and abs(value) <= _LARGEST_INTEGER:
            step = StepRecord(StepKind.EQUAL, register, None, 0, value)
        elif kind is float and objects.plain_fields.works:
            field = objects.field_of(value)
            step = StepRecord(StepKind.FIELD, register, _WHOLE_WORD, 0, field)
        elif kind is torch.device and objects.plain_fields.works:
            field = objects.field_of(value) & objects.DEVICE
            step = StepRecord(StepKind.FIELD, register, objects.DEVICE, 0, field)
        if step is None:
            self._expect(StepKind.IDENTITY, register, value)
            return
        self._expect_type(register)
        self.steps.append(step)

    def _expect_nothing(self, register: int, name: str) -> bool:
        """Expect that an object of a plain class has no attribute of this name in its own
        __dict__."""
        self.keep.append(name)
        self.steps.append(StepRecord(StepKind.ABSENT, register, id(name), hash(name), 0))
        return True

    # ---- classes, which are watched ---------------------------------------------------------

    def _in_class(self, kind: type, name: str) -> Any:
        """Return the value of a name in a class or the first base that has it, or MISSING."""
        return next((vars(part)[name] for part in kind.__mro__ if name in vars(part)), MISSING)

    def _are_plain(self, kind: type) -> bool:
        """Return whether a class's objects have their attributes in a __dict__, found as usual."""
        return (
            objects.resolution_at.works
            and kind.__dictoffset__ != 0
            and self._in_class(kind, "__getattribute__") is object.__getattribute__
        )


def _overrides(found: object) -> bool:
    """Return whether an attribute of a class precedes those of its objects (a data descriptor)."""
    return hasattr(type(found), "__set__") or hasattr(type(found), "__delete__")


def _numbers(registers: Sequence[int | None]) -> list[int]:
    return [register for register in registers if register is not None]
