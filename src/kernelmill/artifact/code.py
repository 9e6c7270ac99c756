"""Comparison of the code that was traced, found again by name in another process.

A function is found by its module and qualified name, or by its name in its module or class
(lambdas, methods of dataclasses). The code of an outer function covers the functions defined in it.
If a function cannot be found by name (its decorator hides it), the text of its file is compared.

AOTAutograd runs decompositions, and the functions that Dynamo's graph calls, unseen by Dynamo. All
functions reachable by their names count, called or not: an entry is then recompiled too often, but
is never stale.
"""

from __future__ import annotations

import pathlib
import sys
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any

import torch

from kernelmill.artifact.bytecode import (
    globals_in,
    is_compared,
    is_library,
    is_torchs,
    known_by_version,
    names_in,
)
from kernelmill.artifact.fingerprint import (
    cells_of,
    code_digest,
    finds_attributes,
    fingerprint,
    is_atom,
    is_data,
    is_own,
)
from kernelmill.artifact.manifest import CodeUse
from kernelmill.artifact.paths import Path
from kernelmill.core.dataclass import dataclass
from kernelmill.core.digest import digest_of
from kernelmill.core.errors import UnsupportedError
from kernelmill.torch_internals.tracing import all_nodes


def changed_code(use: CodeUse) -> str:
    """Describe how code differs from a recorded use; "" when it does not."""
    module = sys.modules.get(use.module)
    if module is None:
        # Code of a module that is not imported is not replaced; torch's is known by its version.
        torchs = use.module.partition(".")[0] == "torch"
        return "" if torchs else f"module {use.module} is not imported"
    try:
        now = _use(module, use.name, use.globals) if use.name else _use_of_file(module)
    except UnsupportedError as error:
        return str(error)
    if now is None:
        return f"there is no {use.module}.{use.name}"
    if now.digest != use.digest:
        return f"the code of {use.module}.{use.name}" if use.name else f"the file {module.__file__}"
    changed = [name for name, value in use.globals.items() if now.globals[name] != value]
    return f"the global {use.module}.{changed[0]}" if changed else ""


def uses_of(
    codes: Iterable[types.CodeType], reached: Collection[types.CodeType] = ()
) -> tuple[CodeUse, ...]:
    """Return the digests to record of traced code and of code `reached` without a trace; for the
    latter also those of the functions of modules that it names.

    UnsupportedError for code that no file holds, and a file that cannot be read.
    """
    files, inner = _modules_by_file(), frozenset(reached)
    own = [code for code in dict.fromkeys((*codes, *reached)) if is_compared(code.co_filename)]
    modules = {m.__name__: m for code in own if (m := files.get(code.co_filename)) is not None}
    found: dict[tuple[str, str], CodeUse] = {}
    for code in own:
        use = _use_of(code, files.get(code.co_filename), modules, code in inner)
        known = found.get((use.module, use.name))
        if known is not None:
            use = CodeUse(use.module, use.name, use.digest, {**known.globals, **use.globals})
        found[use.module, use.name] = use
    return tuple(found.values())


def modules_of(codes: Iterable[types.CodeType]) -> list[types.ModuleType]:
    """Return the modules that traced code lies in, without torch's own."""
    files = _modules_by_file()
    names = {code.co_filename for code in codes if not known_by_version(code.co_filename)}
    return [files[name] for name in sorted(names) if name in files]


def _modules_by_file() -> dict[str, types.ModuleType]:
    return {
        file: module
        for module in list(sys.modules.values())
        if (file := getattr(module, "__file__", None))
    }


def _use_of(
    code: types.CodeType,
    module: types.ModuleType | None,
    modules: Mapping[str, types.ModuleType],
    reached: bool,
) -> CodeUse:
    names = globals_in(code)
    own = [] if module is None else [(module, _outer_name(code))]
    for holder, name in chain(own, _holders(code, modules)):
        function = function_of(holder, name)
        # Another may have taken its name since, as in `g = f` before a second `def f`.
        if function is not None and _is_in(code, function.__code__):
            globals = {*names, *(_of_modules(holder, names) if reached else ())}
            return _use_of_function(holder, name, function, sorted(globals))
    if module is None:
        raise UnsupportedError(
            f"{code.co_qualname} comes from {code.co_filename}, which is no module's file"
        )
    return _use_of_file(module)


def _of_modules(module: types.ModuleType, names: Collection[str]) -> Iterator[str]:
    """Yield a module's globals that are functions of modules, as "module.function"; also those that
    a module of a class of its own finds elsewhere, as `torch._VF` does."""
    for name in names:
        inner = vars(module).get(name)
        if isinstance(inner, types.ModuleType):
            own = type(inner) is not types.ModuleType
            found = (n for n in names if n in vars(inner) or (own and hasattr(inner, n)))
            yield from (f"{name}.{n}" for n in found if callable(getattr(inner, n)))


def place_of_global(module: types.ModuleType, name: str) -> tuple[dict[str, Any], str]:
    """Return dict and key of a module's global, or of a global of a module among its globals."""
    before, _, last = name.rpartition(".")
    inner = vars(module).get(before) if before else module
    return (vars(inner) if isinstance(inner, types.ModuleType) else {}), last


def _global_text(module: types.ModuleType, name: str) -> str:
    space, key = place_of_global(module, name)
    if key not in space:
        return "absent"
    value = space[key]
    replaced = isinstance(value, types.FunctionType) and not is_own(value)
    return fingerprint(value, 2 if replaced else 0)


def _is_in(code: types.CodeType, outer: types.CodeType) -> bool:
    """Return whether code is `outer` or the code of a function defined inside of `outer`."""
    inner = (const for const in outer.co_consts if isinstance(const, types.CodeType))
    return code == outer or any(_is_in(code, each) for each in inner)


def _holders(
    code: types.CodeType, modules: Mapping[str, types.ModuleType]
) -> Iterator[tuple[types.ModuleType, str]]:
    """Yield module and name of functions with this code: a lambda, or one that a decorator made."""
    for module in modules.values():
        for name, value in list(vars(module).items()):
            if getattr(value, "__code__", None) is code:
                yield module, name
            elif isinstance(value, type):
                home = sys.modules.get(value.__module__)
                for inner, function in list(vars(value).items()):
                    if home is not None and getattr(_plain(function), "__code__", None) is code:
                        yield home, f"{value.__qualname__}.{inner}"


def _use_of_file(module: types.ModuleType) -> CodeUse:
    try:
        text = pathlib.Path(str(module.__file__)).read_bytes()
    except OSError as error:
        raise UnsupportedError(f"the file {module.__file__}: {error.strerror}") from None
    return CodeUse(module.__name__, "", digest_of(text), {})


def _use(module: types.ModuleType, name: str, globals: Iterable[str]) -> CodeUse | None:
    function = function_of(module, name)
    return None if function is None else _use_of_function(module, name, function, globals)


def _use_of_function(
    module: types.ModuleType, name: str, function: types.FunctionType, globals: Iterable[str]
) -> CodeUse:
    defaults = fingerprint((function.__defaults__, function.__kwdefaults__))
    digest = f"{code_digest(function.__code__)} {defaults}"
    read = {name: _global_text(module, name) for name in globals}
    return CodeUse(module.__name__, name, digest, read)


def _outer_name(code: types.CodeType) -> str:
    """Return the qualified name of the outermost function that code is defined in."""
    return code.co_qualname.partition(".<locals>")[0]


def function_of(module: types.ModuleType, name: str) -> types.FunctionType | None:
    """Return the function of this qualified name, behind wrappers too; else a plain one there."""
    value: Any = module
    for part in name.split("."):
        space = getattr(value, "__dict__", {})
        if part not in space:
            return None
        value = space[part]
    for candidate in _behind(value, 5):
        if _outer_name(candidate.__code__) == name:
            return candidate
    value = _plain(value)
    plain = isinstance(value, types.FunctionType) and not hasattr(value, "__wrapped__")
    return value if plain else None


def _plain(function: Any) -> Any:
    """Return the function inside of a static method, as `__new__` of a named tuple."""
    return function.__func__ if isinstance(function, staticmethod) else function


def _behind(value: Any, deep: int) -> Iterator[types.FunctionType]:
    inner = [getattr(value, name, None) for name in ("__wrapped__", "__func__", "fget", "func")]
    if isinstance(value, types.FunctionType):
        yield value
        inner += cells_of(value).values()
    if not deep:
        return
    for part in inner:
        if part is not None and (callable(part) or isinstance(part, (property, staticmethod))):
            yield from _behind(part, deep - 1)


@dataclass(frozen=True)
class Reached:
    """The code, and the paths of the containers of data among the globals that it names; numbers
    and texts are compared with the code."""

    codes: tuple[types.CodeType, ...]
    data: tuple[Path, ...]


def reached_by_calls(gm: torch.fx.GraphModule, names: frozenset[str]) -> Reached:
    """Return the code run by the functions that a graph of Dynamo's calls, torch's code too, and by
    the methods of tensors that this code or the traced one, with these names, may call."""
    called = [node.target for node in all_nodes(gm) if callable(node.target)]
    found = reached_from(called, _is_replaced)
    names |= names_in(found.codes)
    methods = [
        value
        for name, value in vars(torch.Tensor).items()
        if name in names or (finds_attributes(name) and not _is_torchs(value))
    ]
    return reached_from((*called, *methods), _is_replaced)


def _is_torchs(value: Any) -> bool:
    code = getattr(value, "__code__", None)
    return code is None or known_by_version(code.co_filename)


def _is_replaced(file: str) -> bool:
    """Return whether code of a file is to be compared: not in Python's library."""
    return is_compared(file) and (is_torchs(file) or not is_library(file))


def _is_others(file: str) -> bool:
    return not known_by_version(file)


def reached_from(functions: Iterable[Any], compared: Callable[[str], bool] = _is_others) -> Reached:
    """Return the code that these functions may run, as far as code of their files is `compared`."""
    codes: dict[types.CodeType, None] = {}
    data: dict[Path, None] = {}
    waiting: list[Any] = [*functions]
    known: dict[int, Any] = {}  # held, so that no other object gets the same number
    while waiting:
        value = waiting.pop()
        if id(value) in known:
            continue
        known[id(value)] = value
        if not isinstance(value, types.FunctionType):
            waiting += _functions_in(value)
            continue
        code = value.__code__
        if code in codes or not compared(code.co_filename):
            continue
        codes[code] = None
        waiting += cells_of(value).values()
        for path, found in _named(value, compared):
            waiting.append(found)
            if not is_atom(found) and isinstance(found, _CONTAINERS) and is_data(found):
                data[path] = None
    return Reached(tuple(codes), tuple(data))


_CONTAINERS = (dict, list, tuple, set, frozenset)


def _named(
    function: types.FunctionType, compared: Callable[[str], bool]
) -> Iterator[tuple[Path, Any]]:
    """Yield the globals that a function's code names, and such members of modules among them."""
    space, names = function.__globals__, sorted(globals_in(function.__code__))
    for name in names:
        value = space.get(name)
        yield (("global", space.get("__name__"), name),), value
        file = getattr(value, "__file__", None)
        if isinstance(value, types.ModuleType) and file is not None and compared(file):
            for inner in names:
                yield (("global", value.__name__, inner),), vars(value).get(inner)


def _functions_in(value: Any) -> list[Any]:
    """Return the Python functions that a call of a value may run."""
    if isinstance(value, (types.MethodType, staticmethod, classmethod)):
        return [value.__func__]
    if isinstance(value, partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, property):
        return [value.fget]
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, (list, tuple)):
        return [*value]
    kind = value if isinstance(value, type) else type(value)
    if kind.__module__.partition(".")[0] in ("builtins", "torch"):
        return []
    inner = [] if kind is value else [getattr(value, "__wrapped__", None)]
    members = (each for part in kind.__mro__ for each in vars(part).values())
    return inner + [each for each in members if isinstance(each, _MEMBERS)]


_MEMBERS = (types.FunctionType, staticmethod, classmethod, property)
