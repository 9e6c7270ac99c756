"""The state that a program depends on outside of its arguments, as text.

`Survey` visits the objects reachable from its roots, and writes one line for each: its class, and
the values of its attributes, keys and indices. An object that is found again is written as its
number, so lines also say which places hold the same object. Attributes are written if the traced
code has their name. The contents of tensors are not written.
"""

from __future__ import annotations

import sys
import types
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter, eq
from typing import Any, cast

import torch

from kernelmill.artifact.bytecode import is_users
from kernelmill.artifact.fingerprint import (
    TOLD_OTHERWISE,
    cells_of,
    code_digest,
    fingerprint,
    is_constant,
    is_immutable,
    is_known_module,
    is_named,
    members_text,
    metaclass_text,
    name_of,
)
from kernelmill.artifact.guard_kinds import layout_of, layout_text
from kernelmill.artifact.guard_records import (
    CELL,
    CLASS,
    ELEMENTS,
    KEYS,
    SIZE,
    SPACE,
    Watch,
    found_by,
    held_in_context,
)
from kernelmill.artifact.manifest import Root
from kernelmill.artifact.paths import CONTEXT, MISSING, Path, Tree, as_bytes, step_into, text_of
from kernelmill.core.dataclass import dataclass
from kernelmill.torch_internals.modules import tables_of
from kernelmill.torch_internals.objects import dict_of

_HOOKS = {
    "_forward_hooks": ("_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
    "_forward_pre_hooks": ("_forward_pre_hooks_with_kwargs",),
}
"""Hooks that a forward pass without gradients calls, and the dicts that say how to call them. Keys
are numbers that differ between processes."""
_OF_MODULES = frozenset(("_parameters", "_buffers", "_modules", *_HOOKS))
"""Attributes of every module that its forward pass depends on."""
_OF_SAVING = frozenset(vars(torch.nn.Module())) - _OF_MODULES - {"training"}
"""Attributes of every module that its forward pass does not depend on."""
_TEXTS = (
    types.ModuleType, types.BuiltinFunctionType, types.MethodDescriptorType,
    types.WrapperDescriptorType, types.MethodWrapperType, types.CodeType,
)  # fmt: skip
"""Objects that `fingerprint` distinguishes."""
_MEMBERS = (types.FunctionType, classmethod, staticmethod, property)
_FOUND_ELSEWHERE = (types.MemberDescriptorType, types.GetSetDescriptorType, *_TEXTS)
"""Members of classes that `members_text` covers; it covers all members of torch's classes."""
_OF_FUNCTIONS = (
    types.FunctionType, types.MethodType, types.CellType, types.CodeType, property, staticmethod,
    classmethod, partial,
)  # fmt: skip
_SPACES, _TO_SPACES = (types.ModuleType, dict), ("module", "namespace")
"""Namespaces of globals, and the steps to them. They are not visited: what code takes out is."""
_DEEP = 100
"""Limit on the nesting of a tuple of constants that is written out."""
_PLAIN = (bool, int, float, str, type(None))


@dataclass(frozen=True)
class _Found:
    """An object, and the `step` from the object number `before` that led to it first. With -1 it is
    the root number `step`."""

    value: Any
    before: int
    step: Any


class Survey:
    """A walk over the objects that roots lead to.

    lines     the result, one for each root and object
    records   state to watch, so that a change of the lines is noticed
    inputs    tensors that the program checks itself: their sizes are in no line. None for all, and
              for no more of modules than their class
    whole     cover all attributes of objects of a user's classes
    """

    def __init__(
        self,
        names: frozenset[str],
        inputs: Iterable[Any] | None,
        whole: bool = False,
    ) -> None:
        self.lines: list[str] = []
        self.roots: list[Root] = []
        self._names, self._whole = names, whole
        self._of_modules = (names - _OF_SAVING) | _OF_MODULES
        self._found: list[_Found] = []
        self._numbers: dict[int, int] = {}
        self._pending: list[int] = []
        self._tables, self._opaque = set[int](), set[int]()
        ids = {id(value) for value in inputs or ()}
        self._of_modules_too = inputs is not None
        self._is_input = (lambda number: True) if inputs is None else ids.__contains__
        self.records = Watch(names, self._is_input, self._numbers)

    # ---- roots ------------------------------------------------------------------------------

    def add_root(self, root: Root, value: Any, before: Any = None) -> None:
        """Visit the `value` of a root, MISSING for none; `before` is the owner in its last step."""
        path, number, first = root.path, len(self.roots), len(self.lines)
        self.roots.append(root)
        self._watch_root(root, before)
        self.lines.append("")
        self._found.append(_Found(None, -1, number))
        if value is MISSING:
            text = "nothing"
        elif root.what == "presence":
            text = "something"
        elif isinstance(value, dict) and root.what in ("class", "keys"):
            keys = self.records.add_property(value, KEYS) if root.what == "keys" else []
            texts = [self._key(key, first) for key in keys]
            text = "; ".join([name_of(type(value)), *texts, *self._attributes(value, first)])
        else:
            text = self._text(value, -1, number)
        if isinstance(value, torch.Tensor) and root.what == "layout":
            text += f"; {layout_text(value, '')}"
        if isinstance(value, torch.Tensor) and root.what == "attributes":
            text = "; ".join([text, *self._own(value, first, self._names)])
        self.lines[first] = f"{text_of(path)}: {text}"
        while self._pending:
            self._describe(self._pending.pop())

    def _watch_root(self, root: Root, before: Any) -> None:
        step = root.path[-1]
        kind, *names = step
        owner, key = before, names[-1] if names else None
        if kind == "bytes":
            kind, key = "item", as_bytes(names[0])
        if kind == "global":
            owner = vars(sys.modules[names[0]])
        elif isinstance(before, types.ModuleType):
            owner = vars(before)
        if root.what == "layout":
            take = partial(_taken, step) if owner is before else partial(_taken, ("item", key))
            self.records.add_property(owner, found_by(lambda o: layout_of(take(o)), eq))
        elif isinstance(owner, dict) and kind in ("global", "attribute", "item"):
            if owner is not before:  # others write to globals all the time
                self.records.often.add(id(cast("Any", owner)))
            self.records.look_up(owner, key)
        elif kind == "free" and isinstance(before, types.CellType):
            self.records.add_property(before, CELL)
        elif kind == CONTEXT:
            self.records.add_property(before, held_in_context(*names))
        elif len(root.path) > 1:
            self.records.add_property(before, found_by(partial(_taken, step)))

    # ---- objects ----------------------------------------------------------------------------

    def _text(self, value: Any, before: int, step: Any) -> str:
        """Return a constant as text, or the number of any other object."""
        kind = type(value)
        if kind in _PLAIN:
            return f"{kind.__name__} {value!r}"
        number = self._numbers.get(id(value))
        if number is not None:
            self.records.replaceable.discard(id(value))
            return f"#{number}"
        if isinstance(value, types.MethodType):  # made anew by each look
            function = self._text(value.__func__, before, step)
            return f"method {function} of {self._text(value.__self__, before, step)}"
        if is_constant(value) or isinstance(value, _TEXTS) or is_named(value):
            return fingerprint(value, _DEEP)
        number = len(self.lines)
        self._numbers[id(value)] = number
        self._found.append(_Found(value, before, step))
        self.lines.append("")
        self._pending.append(number)
        if self._is_input(id(value)):
            self.records.replaceable.add(id(value))
        return f"#{number}"

    def _describe(self, number: int) -> None:
        value = self._found[number].value
        self.lines[number] = "; ".join(self._parts(value, number))

    def _parts(self, value: Any, number: int) -> Iterable[str]:
        if isinstance(value, torch.nn.Module):
            return self._module(value, number)
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, type):
            return self._class(value, number)
        if isinstance(value, types.FunctionType):
            return self._function(value, number)
        inside = self._inside(value, number)
        if inside is None:
            self._opaque.add(id(value))
            return [fingerprint(value)]
        return [name_of(type(value)), *inside, *self._attributes(value, number)]

    def _tensor(self, value: torch.Tensor) -> list[str]:
        own = self._is_input(id(value))
        return [f"input {name_of(type(value))}" if own else layout_text(value, "")]

    def _module(self, value: torch.nn.Module, number: int) -> list[str]:
        return [
            f"{name_of(type(value))} {self._text(type(value), number, ('type',))}",
            *(self._own(value, number, self._of_modules) if self._of_modules_too else ()),
        ]

    def _own(self, value: Any, number: int, names: frozenset[str]) -> list[str]:
        """Describe the __dict__ of an object."""
        self.records.add_property(value, CLASS)
        space: dict[str, Any] = self.records.add_property(value, SPACE)
        whole = self._is_whole(type(value))
        taken = self.records.add_attributes(space, None if whole else names)
        parts: list[str] = []
        tables = tables_of.get() or () if isinstance(value, torch.nn.Module) else ()
        for name in sorted(taken):
            inner = taken[name]
            if _calls_own_method(value, name, inner):
                continue  # as after `m.forward = kernelmill.compile(m.forward)`
            if name in tables or name in _HOOKS:
                self._tables.add(id(inner))
            if name in tables:
                for key, each in self.records.add_contents(inner):
                    step = ("attribute", key)
                    parts.append(f"{name}.{key}: {self._text(each, number, step)}")
            elif name in _HOOKS and isinstance(inner, dict):
                for key, each in self.records.add_contents(cast("dict[Any, Any]", inner)):
                    ways = [way for way in _HOOKS[name] if key in space.get(way, ())]
                    text = self._text(each, number, ("attribute", name))
                    parts.append(f"{name}: {text} {ways}")
            else:
                parts.append(f"{name}: {self._text(inner, number, ('attribute', name))}")
        return parts

    def _attributes(self, value: Any, number: int) -> list[str]:
        """Describe the class of an object, its __dict__ and its slots."""
        kind = type(value)
        parts = [] if is_immutable(kind) else [self._text(kind, number, ("type",))]
        if isinstance(getattr(value, "__dict__", None), dict):
            parts += self._own(value, number, self._names)
        slots = [
            name
            for part in kind.__mro__
            for name in _slots(part)
            if name in self._names or self._is_whole(kind)
        ]
        for name in slots:
            step = ("attribute", name)
            found = self.records.add_property(value, found_by(attrgetter(name)))
            parts.append(f"{name}: {self._text(found, number, step)}")
        return parts

    def _inside(self, value: Any, number: int) -> list[str] | None:
        """Describe the contents of a container; None for an opaque object."""
        if isinstance(value, types.MappingProxyType):
            value = dict_of(cast("types.MappingProxyType[Any, Any]", value)) or {}
        if isinstance(value, dict):
            named = cast("dict[Any, Any]", value)
            return [
                f"{self._key(key, number)}: {self._text(each, number, ('item', key))}"
                for key, each in self.records.add_contents(named)
            ]
        if isinstance(value, (list, tuple, deque)):
            listed = list(cast("Iterable[Any]", value))
            if isinstance(value, list):
                self.records.add_property(value, SIZE)
                for n, each in enumerate(listed):
                    self.records.add_item(value, n, each)
            elif isinstance(value, deque):
                self.records.add_property(value, ELEMENTS)
            return [self._text(each, number, ("item", n)) for n, each in enumerate(listed)]
        if isinstance(value, (set, frozenset)):
            self.records.add_property(value, ELEMENTS)
            return [fingerprint(cast("Any", value))]
        if isinstance(value, partial):
            made = cast("partial[Any]", value)
            return [self._text(p, number, ("attribute", n)) for n, p in _parts_of(made)]
        if isinstance(value, types.CellType):
            found = self.records.add_property(value, CELL)
            return [self._text(found, number, ("attribute", "cell_contents"))]
        if isinstance(value, (property, staticmethod, classmethod)):
            return [self._text(p, number, ("attribute", n)) for n, p in _parts_of(value)]
        return None if _is_opaque(type(value)) else []

    def _key(self, key: Any, number: int) -> str:
        return repr(key) if type(key) is str else self._text(key, number, ("key",))

    def _is_whole(self, kind: type) -> bool:
        """Return whether all attributes of objects of a class are covered."""
        file = getattr(sys.modules.get(kind.__module__), "__file__", None) if self._whole else None
        return file is not None and is_users(file)

    def _class(self, kind: type, number: int) -> list[str]:
        self.records.add_class(kind)
        parts = [f"class {name_of(kind)}{members_text(kind, self._names)}"]
        parts += [self._text(part, number, ("type",)) for part in kind.__mro__[1:]]
        parts.append(metaclass_text(type(kind)))
        if is_immutable(kind):
            return parts
        space, is_torchs = dict(vars(kind)), is_known_module(kind.__module__)
        for name in sorted(n for n in self._names & space.keys() if n not in TOLD_OTHERWISE):
            value = space[name]
            told = is_torchs and isinstance(value, _MEMBERS)
            if not told and not isinstance(value, _FOUND_ELSEWHERE):
                parts.append(f"{name}: {self._text(value, number, ('attribute', name))}")
        return parts

    def _function(self, value: types.FunctionType, number: int) -> list[str]:
        self.records.add_function(value)
        for cell in value.__closure__ or ():
            self.records.add_property(cell, CELL)
        held = {"__defaults__": value.__defaults__, "__kwdefaults__": value.__kwdefaults__}
        parts = [f"function {name_of(value)} {code_digest(value.__code__)}"]
        parts += [
            f"{name}: {self._text(each, number, ('attribute', name))}"
            for name, each in held.items()
            if each is not None
        ]
        parts += [
            f"{name}: {self._text(each, number, ('attribute', '__closure__'))}"
            for name, each in cells_of(value).items()
        ]
        named = self._names & vars(value).keys()
        return [*parts, *(self._own(value, number, self._names) if named else ())]

    # ---- results ----------------------------------------------------------------------------

    def follow(
        self,
        tree: Tree,
        values: Sequence[Any],
        counted: Mapping[Path, str],
        cells: Mapping[str, Any],
    ) -> None:
        """Add a root for each place of a tree that no line covers yet. `values` are those of the
        tree, `counted` the extents of guards by path, `cells` the function's closure."""
        for (before, step), path, value in zip(tree.rows, tree.paths(), values, strict=True):
            owner = values[before] if before >= 0 else cells.get(step[-1])
            if owner is MISSING or (isinstance(value, _SPACES) and step[0] in _TO_SPACES):
                continue
            if before < 0 or not self._covers(owner, step, value):
                what = counted.get(path, "class")
                if not isinstance(value, dict) and what != "presence":
                    what = "all"
                self.add_root(Root(path, what), value, owner)

    def _covers(self, owner: Any, step: Sequence[Any], value: Any) -> bool:
        """Say whether the line of `owner` covers the value of a step from it."""
        kind, *names = step
        if kind in ("type", "namespace"):
            return True
        if kind in ("item", "bytes", "key", "nth", "slice"):
            known = isinstance(owner, (tuple, types.MappingProxyType))
            kinds = (dict, list, set, frozenset, deque)
            listed = isinstance(owner, kinds) and self._is_described(cast("Any", owner))
            return known or listed or id(cast("Any", owner)) in self._tables
        if kind not in ("attribute", "field") or isinstance(owner, torch.Tensor):
            return False
        (name,) = names
        if isinstance(owner, type):
            return self._is_described(owner) or is_immutable(owner)
        if isinstance(owner, _OF_FUNCTIONS):
            return self._is_described(owner) or not isinstance(owner, types.FunctionType)
        if not self._is_described(owner):
            return False
        if name in ("__class__", "__dict__") or name in getattr(owner, "__dict__", ()):
            return True
        if isinstance(owner, torch.nn.Module):
            tables = [vars(owner)[table] for table in tables_of.get() or ()]
            if any(name in table for table in tables):
                return True
        found = next((vars(k)[name] for k in type(owner).__mro__ if name in vars(k)), MISSING)
        if found is MISSING:
            return value is MISSING  # else it is made by a __getattr__
        own = isinstance(found, (types.MemberDescriptorType, *_MEMBERS[:-1]))
        return own or not hasattr(type(found), "__get__")

    def _is_described(self, value: Any) -> bool:
        """Say whether a line describes the contents of an object."""
        return id(value) in self._numbers and id(value) not in self._opaque

    def ids(self) -> frozenset[int]:
        """Give the ids of all visited objects. They stay alive as long as this does."""
        return frozenset(self._numbers)

    def path(self, number: int) -> Path:
        """Return the path by which an object was found first."""
        found: list[tuple[Any, ...]] = []
        while True:
            owner = self._found[number]
            if owner.before < 0:
                return (*self.roots[owner.step].path, *reversed(found))
            found.append(owner.step)
            number = owner.before

    def difference(self, lines: Sequence[str]) -> str:
        """Describe the first difference from these lines; "" for none."""
        if self.lines == [*lines]:
            return ""
        pairs = enumerate(zip(lines, self.lines, strict=False))
        number, was, now = next(
            ((n, was, now) for n, (was, now) in pairs if was != now), (0, "", "")
        )
        before, after = was.split("; "), now.split("; ")
        old = next((part for part in before if part not in after), "less")
        new = next((part for part in after if part not in before), "less")
        return f"{text_of(self.path(number))}: was {old}, is {new}"


def _calls_own_method(owner: Any, name: str, value: Any) -> bool:
    """Return whether a value is the compiled form of the class's method of this name."""
    ours = type(value).__module__.startswith("kernelmill.")
    method = getattr(value, "original", None) if ours else None
    if not isinstance(method, types.MethodType) or method.__self__ is not owner:
        return False
    return getattr(type(owner), name, None) is method.__func__


def _parts_of(value: Any) -> list[tuple[str, Any]]:
    names = ("func", "args", "keywords", "__func__", "fget", "fset", "fdel")
    parts = [(name, getattr(value, name, None)) for name in names]
    return [(name, part) for name, part in parts if part is not None]


def _slots(kind: type) -> list[str]:
    """Give the names of a class's own slots."""
    members = [] if is_immutable(kind) else list(vars(kind).items())
    return [name for name, each in members if isinstance(each, types.MemberDescriptorType)]


def _taken(step: Sequence[Any], owner: Any) -> Any:
    """Return the value at a step; for a free variable, the contents of its cell."""
    return owner.cell_contents if step[0] == "free" else step_into(owner, step)


def _is_opaque(kind: type) -> bool:
    """Say whether objects of a class are described by their class alone: classes of C and of
    Python's library."""
    top = kind.__module__.partition(".")[0]
    if kind.__module__ in ("types", "collections", "dataclasses"):
        return is_immutable(kind) and kind is not types.SimpleNamespace
    return is_immutable(kind) or (top in sys.stdlib_module_names and top != "__main__")
