"""Dynamo's sources as paths that another process can follow."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any

from kernelmill.artifact.paths import Path
from kernelmill.core.errors import UnsupportedError
from kernelmill.torch_internals.dynamo import source_classes

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
}  # fmt: skip
"""The steps of kinds of sources from what they are based on, or the root; a class stands before its
bases."""


class SourceReader:
    """Sources of one trace. `own` is the name of the module argument ("" without one), `parameters`
    the names of the function's others, `module` where its globals are, `imports` Dynamo's names for
    modules that inlined code comes from, `installed` what else Dynamo put among the globals, under
    names that are different in each trace."""

    def __init__(
        self,
        own: str,
        parameters: frozenset[str],
        module: str,
        imports: Mapping[str, str],
        installed: Mapping[str, Any],
    ) -> None:
        self._own, self._parameters = own, parameters
        self._module, self._imports, self._installed = module, imports, installed
        kinds: Any = source_classes.require()
        self._steps = [(getattr(kinds, name), steps) for name, steps in _STEPS.items()]
        self._key = kinds.ConstDictKeySource

    def path(self, source: Any) -> Path:
        """The path of a source. UnsupportedError for one that has none."""
        base = getattr(source, "base", None)
        before = () if base is None else self.path(base)
        for kind, steps in self._steps:
            if isinstance(source, kind):
                return (*before, *steps(self, source))
        kind = "" if base is None else f" ({type(source).__name__})"
        raise UnsupportedError(f"it reads {source.name}{kind}, which no other process can find")

    def of_module(self, name: str) -> Path:
        """The root of a global."""
        if name in self._imports:
            return (("module", self._imports[name]),)
        if name.startswith("__builtins_dict__"):
            return (("module", "builtins"), ("namespace",))
        if name in self._installed:
            value = self._installed[name]
            if not isinstance(value, types.ModuleType):
                raise UnsupportedError(f"it reads {name}, which no other process can find")
            return (("module", value.__name__),)
        return (("global", self._module, name),)

    def local(self, name: str) -> Path:
        """The root of a local variable."""
        if name == self._own:
            return (("self",),)
        return (("argument" if name in self._parameters else "free", name),)

    def item(self, source: Any, key: Any) -> tuple[Any, ...]:
        """The step to what is under a key."""
        if getattr(source, "index_is_slice", False):
            part = source.unpack_slice()
            return ("slice", part.start, part.stop, part.step)
        if isinstance(key, self._key):
            return ("nth", key.index)
        if type(key) not in _KEYS:
            raise UnsupportedError(f"it reads {source.name}, whose key is no text or integer")
        return ("item", key)
