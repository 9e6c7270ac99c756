"""Dynamo's sources as paths that another process can follow."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any

from kernelmill.artifact.paths import Path
from kernelmill.core.errors import UnsupportedError
from kernelmill.torch_internals.dynamo import source_classes

_KEYS = (str, int, bool, type(None))

_STEPS: Mapping[str, Callable[[Any], tuple[tuple[Any, ...], ...]]] = {
    "NNModuleSource": lambda source: (),
    "SkipGuardSource": lambda source: (),
    "FloatTensorSource": lambda source: (),
    "CellContentsSource": lambda source: (("attribute", "cell_contents"),),
    "ClosureSource": lambda source: (("attribute", "__closure__"),),
    "CodeSource": lambda source: (("attribute", "__code__"),),
    "AttrSource": lambda source: (("attribute", source.member),),
    "GenericAttrSource": lambda source: (("attribute", source.member),),
    "ConstDictKeySource": lambda source: (("key", source.index),),
    "TypeSource": lambda source: (("type",),),
    "TypeMROSource": lambda source: (("attribute", "__mro__"),),
    "TypeDictSource": lambda source: (("namespace",),),
}
"""The steps of kinds of sources from what they are based on; a class stands before its bases."""


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
        self._kinds: Any = source_classes.require()

    def path(self, source: Any) -> Path:
        """The path of a source. UnsupportedError for one that has none."""
        kinds = self._kinds
        if isinstance(source, kinds.LocalSource):
            return (self._local(source.local_name),)
        if isinstance(source, kinds.LocalCellSource):
            return (("free", source.local_name),)
        if isinstance(source, kinds.GlobalSource):
            return self._global(source.global_name)
        base = getattr(source, "base", None)
        if base is None:
            raise UnsupportedError(f"it reads {source.name}, which no other process can find")
        return (*self.path(base), *self._steps(source))

    def _global(self, name: str) -> Path:
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

    def _local(self, name: str) -> tuple[str, ...]:
        if name == self._own:
            return ("self",)
        return ("argument" if name in self._parameters else "free", name)

    def _steps(self, source: Any) -> tuple[tuple[Any, ...], ...]:
        kinds = self._kinds
        for name, step in _STEPS.items():
            if isinstance(source, getattr(kinds, name)):
                return step(source)
        if isinstance(source, kinds.DefaultsSource):
            return (("attribute", source.field), self._item(source, source.idx_key))
        if isinstance(source, kinds.GetItemSource) and source.index_is_slice:
            part = source.unpack_slice()
            return (("slice", part.start, part.stop, part.step),)
        if isinstance(
            source,
            (kinds.GetItemSource, kinds.DictGetItemSource, kinds.DictSubclassGetItemSource),
        ):
            return (self._item(source, source.index),)
        raise UnsupportedError(
            f"it reads {source.name} ({type(source).__name__}), which no other process can find"
        )

    def _item(self, source: Any, key: Any) -> tuple[Any, ...]:
        if isinstance(key, self._kinds.ConstDictKeySource):
            return ("nth", key.index)
        if type(key) not in _KEYS:
            raise UnsupportedError(f"it reads {source.name}, whose key is no text or integer")
        return ("item", key)
