"""The code that a trace went through: found again by name in another process, and compared.

A function is found by its module and qualified name, or by the name that its module or class has
for it (lambdas, methods of dataclasses). One that is defined inside another is covered by the code
of the outer one, which holds it. What cannot be found by name (a function that its decorator hides)
is covered by the text of its file.
"""

from __future__ import annotations

import dis
import os
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, cast

import torch

from kernelmill.artifact.fingerprint import cells_of, code_digest, fingerprint
from kernelmill.artifact.manifest import CodeUse
from kernelmill.core.digest import digest_of
from kernelmill.core.errors import UnsupportedError

_TORCH = str(Path(torch.__file__).parent)
_OURS = str(Path(__file__).parent.parent)
_LIBRARY = str(Path(os.__file__).parent)
_PACKAGES = f"{os.sep}site-packages{os.sep}"
_FROZEN = "<frozen "
"""How the names of files begin that are compiled into Python."""


def changed_code(use: CodeUse) -> str:
    """What is different now, in words; empty when nothing is."""
    module = sys.modules.get(use.module)
    if module is None:
        return f"module {use.module} is not imported"
    now = _use(module, use.name, use.globals) if use.name else _use_of_file(module)
    if now is None:
        return f"there is no {use.module}.{use.name}"
    if now.digest != use.digest:
        return f"the code of {use.module}.{use.name}" if use.name else f"the file {module.__file__}"
    changed = [name for name, value in use.globals.items() if now.globals[name] != value]
    return f"the global {use.module}.{changed[0]}" if changed else ""


def uses_of(codes: Iterable[types.CodeType]) -> tuple[CodeUse, ...]:
    """What there is to remember of traced code. Torch's own is known by its version.

    UnsupportedError for code that no file holds.
    """
    files = _modules_by_file()
    own = [code for code in codes if not known_by_version(code.co_filename)]
    modules = {m.__name__: m for code in own if (m := files.get(code.co_filename)) is not None}
    found: dict[tuple[str, str], CodeUse] = {}
    for code in own:
        use = _use_of(code, files.get(code.co_filename), modules)
        known = found.get((use.module, use.name))
        if known is not None:
            use = CodeUse(use.module, use.name, use.digest, {**known.globals, **use.globals})
        found[use.module, use.name] = use
    return tuple(found.values())


def modules_of(codes: Iterable[types.CodeType]) -> list[types.ModuleType]:
    """The modules that traced code lies in, without torch's own."""
    files = _modules_by_file()
    names = {code.co_filename for code in codes if not known_by_version(code.co_filename)}
    return [files[name] for name in sorted(names) if name in files]


def _modules_by_file() -> dict[str, types.ModuleType]:
    return {
        file: module
        for module in list(sys.modules.values())
        if (file := getattr(module, "__file__", None))
    }


def known_by_version(file: str) -> bool:
    """Whether a file is Python's, torch's or ours, whose versions every entry depends on."""
    inside = (_TORCH + os.sep, _OURS + os.sep)  # torchvision's folder begins as torch's does
    return file.startswith((*inside, _FROZEN))


def _is_library(file: str) -> bool:
    """Whether a file is torch's, ours or of Python's library, whose functions for other code ask
    for classes and compare by identity."""
    python = file.startswith(_LIBRARY + os.sep) and _PACKAGES not in file
    return python or known_by_version(file)


def _use_of(
    code: types.CodeType, module: types.ModuleType | None, modules: Mapping[str, types.ModuleType]
) -> CodeUse:
    globals = sorted(names_in([code]))
    own = [] if module is None else [(module, _outer_name(code))]
    for holder, name in chain(own, _holders(code, modules)):
        function = function_of(holder, name)
        # Another may have taken its name since, as in `g = f` before a second `def f`.
        if function is not None and _is_in(code, function.__code__):
            return _use_of_function(holder, name, function, globals)
    if module is None:
        raise UnsupportedError(
            f"{code.co_qualname} comes from {code.co_filename}, which is no module's file"
        )
    return _use_of_file(module)


def _is_in(code: types.CodeType, outer: types.CodeType) -> bool:
    """Whether it is this code, or that of a function defined inside."""
    inner = (const for const in outer.co_consts if isinstance(const, types.CodeType))
    return code == outer or any(_is_in(code, each) for each in inner)


def _holders(
    code: types.CodeType, modules: Mapping[str, types.ModuleType]
) -> Iterator[tuple[types.ModuleType, str]]:
    """Where modules hold a function with this code: a lambda, or what a decorator generated."""
    for module in modules.values():
        for name, value in list(vars(module).items()):
            if getattr(value, "__code__", None) is code:
                yield module, name
            elif isinstance(value, type):
                home = sys.modules.get(value.__module__)
                for inner, function in list(vars(value).items()):
                    if home is not None and getattr(_plain(function), "__code__", None) is code:
                        yield home, f"{value.__qualname__}.{inner}"


def names_in(codes: Iterable[types.CodeType]) -> frozenset[str]:
    """All names of attributes and globals in these, and texts that may be such names."""
    found: set[str] = set()
    for code in codes:
        inside = names_in(c for c in code.co_consts if isinstance(c, types.CodeType))
        found.update(code.co_names, inside, _names_among(code.co_consts))
    return frozenset(found)


def _names_among(constants: Iterable[Any]) -> Iterator[str]:
    for constant in constants:
        if isinstance(constant, str) and constant.isidentifier():
            yield constant
        elif isinstance(constant, (tuple, frozenset)):
            yield from _names_among(cast("Iterable[Any]", constant))


_ABOUT_GRADIENTS = frozenset(("requires_grad", "is_leaf"))


def flags_asked(codes: Iterable[types.CodeType]) -> frozenset[str]:
    """What these may ask of tensors: "class", "requires_grad". What torch's own code does with that
    changes no result while gradients are off."""
    found: set[str] = set()
    for code in codes:
        if not _is_library(code.co_filename):
            words = {*code.co_names, *(const for const in code.co_consts if isinstance(const, str))}
            if not words.isdisjoint(("Parameter", "Buffer")):
                found.add("class")
            if words & _ABOUT_GRADIENTS:
                found.add("requires_grad")
        found |= flags_asked(c for c in code.co_consts if isinstance(c, types.CodeType))
    return frozenset(found)


Compared = frozenset[tuple[str, ...]]
"""What code compares by identity: for each comparison the names of the attributes that it compares,
none where it compares variables."""

WITH_GLOBAL = ("", "")
"""Stands for a comparison with a global or its attribute, as functions and marks are."""


def compared_by_identity(codes: Iterable[types.CodeType]) -> Compared:
    """What these compare besides constants. In torch's own code none of that changes a result."""
    found: set[tuple[str, ...]] = set()
    for code in codes:
        own = not _is_library(code.co_filename)
        steps = list(dis.get_instructions(code)) if own else []
        for n, each in enumerate(steps):
            if each.argval in _FUNCTIONS or (each.opname == "LOAD_GLOBAL" and each.argval == "id"):
                found.add(())
            elif each.opname != "IS_OP":
                continue
            elif each.is_jump_target:  # its right side is one of several
                found.add(())
            elif steps[n - 1].opname not in _CONSTANT:
                found.add(_sides(steps[:n]))
        found |= compared_by_identity(c for c in code.co_consts if isinstance(c, types.CodeType))
    return frozenset(found)


def compared_attributes(codes: Iterable[types.CodeType]) -> Compared:
    """The names of two attributes each of which one is compared with the other, by identity or
    equality: objects without an `__eq__` are equal where they are one."""
    found: set[tuple[str, ...]] = set()
    for code in codes:
        steps = [] if _is_library(code.co_filename) else list(dis.get_instructions(code))
        for n, each in enumerate(steps):
            if each.opname == "IS_OP" or (each.opname == "COMPARE_OP" and "=" in str(each.argval)):
                found.add(_sides(steps[:n]))
        found |= compared_attributes(c for c in code.co_consts if isinstance(c, types.CodeType))
    return frozenset(sides for sides in found if len(sides) == 2)


def _sides(before: list[dis.Instruction]) -> tuple[str, ...]:
    """The names of the attributes that a comparison after these compares. None where its right side
    is not a variable or its attribute: what comes before that is then not known."""
    root = len(before) - 1
    while root > 0 and before[root].opname in _ATTRIBUTE:
        root -= 1
    right, kind = before[-1], before[root].opname
    if any(each.is_jump_target for each in before[root + 1 :]):
        return ()  # an attribute of one of several
    if kind == "LOAD_GLOBAL":
        return WITH_GLOBAL
    # The first of two variables is the left side, and where code jumps to, that is one of several.
    if kind in _TWO_VARIABLES or (kind in _VARIABLE and before[root].is_jump_target):
        ends = (right,)
    elif kind in _VARIABLE:
        ends = right, before[root - 1]
    else:
        return ()
    return tuple(str(each.argval) for each in ends if each.opname in _ATTRIBUTE)


_FUNCTIONS = ("is_", "is_not")  # of operator
_VARIABLE = ("LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK", "LOAD_DEREF", "LOAD_CLOSURE")
_TWO_VARIABLES = ("LOAD_FAST_LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW")
_CONSTANT = ("LOAD_CONST", "LOAD_COMMON_CONSTANT", "LOAD_SMALL_INT")
"""The second is what Python 3.14 loads to see whether `all` and `any` are its own."""


def methods_in(codes: Iterable[types.CodeType]) -> frozenset[str]:
    """What these may call by name: methods, attributes that may be bound methods, and what strings
    say, which getattr may look for. Not attributes of `self`: layers name settings of theirs as
    tensors name methods."""
    found: set[str] = set()
    for code in codes:
        found.update(const for const in code.co_consts if isinstance(const, str))
        root = None
        for instruction in dis.get_instructions(code):
            if instruction.opname not in _ATTRIBUTE:
                both, root = instruction.opname in _TWO_VARIABLES, instruction.argval
                root = root[-1] if both else root
                continue
            if root != "self" or _is_method(instruction):
                found.add(instruction.argval)
            root = None
        found |= methods_in(c for c in code.co_consts if isinstance(c, types.CodeType))
    return frozenset(found)


_ATTRIBUTE = ("LOAD_ATTR", "LOAD_METHOD")


def _is_method(instruction: dis.Instruction) -> bool:
    """Whether it loads a method to call it; from Python 3.12 on that is a flag."""
    if sys.version_info < (3, 12):
        return instruction.opname == "LOAD_METHOD"
    return bool((instruction.arg or 0) & 1)


def _use_of_file(module: types.ModuleType) -> CodeUse:
    return CodeUse(module.__name__, "", digest_of(Path(str(module.__file__)).read_bytes()), {})


def _use(module: types.ModuleType, name: str, globals: Iterable[str]) -> CodeUse | None:
    function = function_of(module, name)
    return None if function is None else _use_of_function(module, name, function, globals)


def _use_of_function(
    module: types.ModuleType, name: str, function: types.FunctionType, globals: Iterable[str]
) -> CodeUse:
    defaults = fingerprint((function.__defaults__, function.__kwdefaults__))
    digest = f"{code_digest([function.__code__])} {defaults}"
    space = vars(module)
    read = {n: fingerprint(space[n], 0) if n in space else "absent" for n in globals}
    return CodeUse(module.__name__, name, digest, read)


def _outer_name(code: types.CodeType) -> str:
    """The qualified name of the function that is not defined inside of another."""
    return code.co_qualname.partition(".<locals>")[0]


def function_of(module: types.ModuleType, name: str) -> types.FunctionType | None:
    """The function of this qualified name, behind wrappers too; else what is there."""
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
    """The function that a static method is, as `__new__` of a named tuple."""
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
