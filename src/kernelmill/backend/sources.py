"""Dynamo's sources as paths that another process can follow."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernelmill.artifact.paths import CONTEXT, Path
from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import UnsupportedError
from kernelmill.torch_internals.dynamo import is_stand_in, source_classes

_KEYS = (str, int, bool, type(None))

_STEPS: Mapping[str, Callable[[SourceReader, Any], Path]] = {
    "LocalSource": lambda reader, source: reader.local(source.local_name),
    "LocalCellSource": lambda reader, source: (("free", source.local_name),),
    "GlobalSource": lambda reader, source: reader.of_module(source.global_name),
    "NNModuleSource": lambda reader, source: (),
    "SkipGuardSource": lambda reader, source: (),
    "FloatTensorSource": lambda reader, source: (),
    "CellContentsSource": lambda reader, source: (("attribute", "cell_contents"),),
    "ClosureSource": lambda reader, source: (("attribute", "__closure__"),),
    "ImportSource": lambda reader, source: (("module", source.module_name),),
    "CodeSource": lambda reader, source: (("attribute", "__code__"),),
    "AttrSource": lambda reader, source: (("attribute", source.member),),
    "GenericAttrSource": lambda reader, source: (("attribute", source.member),),
    "DefaultsSource": lambda reader, source: (
        ("attribute", source.field), reader.item(source, source.idx_key),
    ),
    "GetItemSource": lambda reader, source: (reader.item(source, source.index),),
    "DictGetItemSource": lambda reader, source: (reader.item(source, source.index),),
    "DictSubclassGetItemSource": lambda reader, source: (reader.item(source, source.index),),
    "ConstDictKeySource": lambda reader, source: (("key", source.index),),
    "TypeSource": lambda reader, source: (("type",),),
    "TypeMROSource": lambda reader, source: (("attribute", "__mro__"),),
    "TypeDictSource": lambda reader, source: (("namespace",),),
    "ContextVarGetSource": lambda reader, source: (reader.held(source),),
}  # fmt: skip
"""The steps of kinds of sources from their base, or the root; a class comes before its bases."""


@dataclass(frozen=True)
class Wrapped:
    """Dynamo's call of torch's own code, as `nn.Sequential.forward`: by a function of its `args`
    and `kwargs` with the method in `fn`. `names` are those of the positional parameters, `method`
    that of the method."""

    names: Sequence[str]
    method: str

    @classmethod
    def by(cls, code: types.CodeType, names: Sequence[str], method: str) -> Wrapped | None:
        """Return the description of a wrapper with this code; None if it is no such function."""
        like = code.co_varnames[:2] == ("args", "kwargs") and code.co_freevars == ("fn",)
        return cls(names, method) if like and code.co_argcount == 0 else None

    def path(self, path: Path) -> Path:
        """Return the path of the same value from the method's own arguments and module."""
        (_, local), *steps = path
        match local, steps:
            case "args", [("item", number), *rest] if number < len(self.names):
                return (("argument", self.names[number]), *rest)
            case "kwargs", [("item", name), *rest]:
                return (("argument", name), *rest)
            case "fn", [("attribute", "__self__"), *rest]:
                return (("self",), *rest)
            case "fn", [("attribute", "__func__"), *rest]:
                return (("self",), ("type",), ("attribute", self.method), *rest)
            case _:
                return path


_CALL = "call"
"""The root of a wrapper's arguments, which is no path of an entry."""


class SourceReader:
    """A reader of the sources of one trace. `own` is the name of the module argument ("" without
    one), `parameters` the names of the function's others, `module` that of its globals, `imports`
    Dynamo's names for modules of inlined code, `installed` other objects that Dynamo put among the
    globals, under names that differ in each trace; `wrapped` describes a wrapper."""

    def __init__(
        self, own: str, parameters: frozenset[str], module: str, imports: Mapping[str, str],
        installed: Mapping[str, Any], wrapped: Wrapped | None = None,
    ) -> None:  # fmt: skip
        self._own, self._parameters = own, parameters
        self._module, self._imports, self._installed = module, imports, installed
        self._wrapped = wrapped
        kinds: Any = source_classes.require()
        known = [name for name in _STEPS if hasattr(kinds, name)]  # older ones have not all
        self._steps = [(getattr(kinds, name), _STEPS[name]) for name in known]
        self._key = kinds.ConstDictKeySource

    def is_of_call(self, source: Any) -> bool:
        """Return whether a source is the argument tuple or dict of Dynamo's wrapper itself: all
        calls of the method have the same form."""
        if self._wrapped is None:
            return False
        root, *steps = self.path(source)
        return root[0] == _CALL and not steps

    def path(self, source: Any) -> Path:
        """Return the path of a source. UnsupportedError for one that has none."""
        base = getattr(source, "base", None)
        before = () if base is None else self.path(base)
        for kind, steps in self._steps:
            if isinstance(source, kind):
                return self._found_elsewhere((*before, *steps(self, source)))
        kind = "" if base is None else f" ({type(source).__name__})"
        raise UnsupportedError(f"it reads {source.name}{kind}, which no other process can find")

    def _found_elsewhere(self, path: Path) -> Path:
        """Return the path by which other processes find the same value."""
        if self._wrapped is not None and path[0][0] == _CALL:
            return self._wrapped.path(path)
        if path == (*_OF_NAMED_TUPLES, ("item", _NEW)):
            return (*_OF_NAMED_TUPLES, ("item", "__new__"))
        return _past_stand_ins(path)

    def of_module(self, name: str) -> Path:
        """Return the root of a global."""
        if name in self._imports:
            return (("module", self._imports[name]),)
        if name.startswith("__builtins_dict__"):
            return (("module", "builtins"), ("namespace",))
        if name in self._installed:
            value = self._installed[name]
            if isinstance(value, types.ModuleType):
                return (("module", value.__name__),)
            if _is_of_named_tuple(value):
                return _OF_NAMED_TUPLES
            raise UnsupportedError(f"it reads {name}, which no other process can find")
        return (("global", self._module, name),)

    def local(self, name: str) -> Path:
        """Return the root of a local variable."""
        if self._wrapped is not None:
            return ((_CALL, name),)
        if name == self._own:
            return (("self",),)
        return (("argument" if name in self._parameters else "free", name),)

    def item(self, source: Any, key: Any) -> tuple[Any, ...]:
        """Return the step to the value under a key."""
        if getattr(source, "index_is_slice", False):
            part = source.unpack_slice()
            return ("slice", part.start, part.stop, part.step)
        if isinstance(key, self._key):
            return ("nth", key.index)
        if type(key) not in _KEYS:
            raise UnsupportedError(f"it reads {source.name}, whose key is no text or integer")
        return ("item", key)

    def held(self, source: Any) -> tuple[Any, ...]:
        """Return the step to the value of a ContextVar."""
        if not source.has_default:
            return (CONTEXT,)
        if type(source.default_value) not in _KEYS:
            raise UnsupportedError(f"it reads {source.name}, whose default no file holds")
        return (CONTEXT, source.default_value)


_OF_NAMED_TUPLES: Path = (("module", "builtins"), ("attribute", "tuple"), ("namespace",))
"""Stands for the globals of a named tuple's `__new__`, which has no module and reads one of them:
`tuple.__new__`."""

_NEW = "_tuple_new"
"""Name of `tuple.__new__` there."""


def _is_of_named_tuple(space: Any) -> bool:
    """Return whether a dict is the globals of code generated by collections.namedtuple."""
    if not isinstance(space, dict):
        return False
    own: dict[str, Any] = space
    return str(own.get("__name__")).startswith("namedtuple_") and own.get(_NEW) is tuple.__new__


def _past_stand_ins(path: Path) -> Path:
    """Return the path of a module among the globals of Dynamo's stand-ins under its own name:
    processes that do not trace have it too."""
    while isinstance(found := _global_of_stand_in(path), types.ModuleType):
        if sys.modules.get(found.__name__) is not found:
            break
        path = (("module", found.__name__), *path[2:])
    return path


def is_known_by_version(path: Path) -> bool:
    """Return whether a path is in one of Dynamo's stand-ins, to the module or a class, function or
    mark of its own: those are torch's, and change with its version only."""
    if len(path) == 1 and path[0][0] == "module":
        return is_stand_in(path[0][1])
    found = _global_of_stand_in(path)
    kinds = (type, types.FunctionType, types.BuiltinFunctionType)
    return isinstance(found, kinds) or type(found) is object


def _global_of_stand_in(path: Path) -> Any:
    """Return the first value of a path among the globals of Dynamo's stand-ins; None for others."""
    (kind, *names), *steps = path
    if kind != "module" or not steps or steps[0][0] != "attribute" or not is_stand_in(names[0]):
        return None
    return vars(sys.modules[names[0]]).get(steps[0][1])
