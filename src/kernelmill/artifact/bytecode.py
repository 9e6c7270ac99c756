"""Names and comparisons in bytecode, found without running it: a trace does not report all that its
code reads of objects, nor what it compares.

Where the answer is not exact, it has more names: an entry then depends on more than necessary.
"""

from __future__ import annotations

import dis
import os
import sys
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import torch

_TORCH = str(Path(torch.__file__).parent)
_OURS = str(Path(__file__).parent.parent)
_LIBRARY = str(Path(os.__file__).parent)
_PACKAGES = f"{os.sep}site-packages{os.sep}"
_TRACER = os.path.join(_TORCH, "_dynamo") + os.sep
_FROZEN = "<frozen "
"""Prefix of the file names of modules compiled into Python."""


def known_by_version(file: str) -> bool:
    """Return whether a file is Python's, torch's or ours, whose versions every entry keeps."""
    return is_torchs(file) or file.startswith((_OURS + os.sep, _FROZEN))


def is_compared(file: str) -> bool:
    """Return whether code of a file may be replaced at run time (torch's too) and so is compared.
    The tracer's is not, since a process that loads a program does not import it."""
    return not is_tracers(file) and not file.startswith((_OURS + os.sep, _FROZEN))


def is_torchs(file: str) -> bool:
    """Return whether a file is part of torch."""
    return file.startswith(_TORCH + os.sep)  # torchvision's folder begins as torch's does


def is_tracers(file: str) -> bool:
    """Return whether a file is part of torch's tracer, which replaces methods of torch's classes by
    equivalent ones."""
    return file.startswith(_TRACER)


def is_users(file: str) -> bool:
    """Return whether a file is neither of a library nor of an installed package."""
    return not is_library(file) and _PACKAGES not in file


def is_library(file: str) -> bool:
    """Return whether a file is torch's, kernelmill's or of Python's library, whose functions for
    other code test classes and identities."""
    python = file.startswith(_LIBRARY + os.sep) and _PACKAGES not in file
    return python or known_by_version(file)


def _all(codes: Iterable[types.CodeType]) -> Iterator[types.CodeType]:
    """Yield the given code and, recursively, the code of the functions defined inside."""
    for code in codes:
        yield code
        yield from _all(each for each in code.co_consts if isinstance(each, types.CodeType))


def _others(codes: Iterable[types.CodeType]) -> Iterator[types.CodeType]:
    """Return the codes of `_all` except libraries', whose reads change no result."""
    return (code for code in _all(codes) if not is_library(code.co_filename))


def names_in(codes: Iterable[types.CodeType]) -> frozenset[str]:
    """Return names of attributes and globals in code, and strings that may be such names."""
    found: set[str] = set()
    for code in _all(codes):
        found.update(code.co_names, _names_among(code.co_consts))
    return frozenset(found)


def globals_in(code: types.CodeType) -> frozenset[str]:
    """Return the names of possible globals; string constants only where code calls `globals`."""
    named = frozenset(name for each in _all([code]) for name in each.co_names)
    return names_in([code]) if "globals" in named else named


def _names_among(constants: Iterable[Any]) -> Iterator[str]:
    for constant in constants:
        if isinstance(constant, str) and constant.isidentifier():
            yield constant
        elif isinstance(constant, (tuple, frozenset)):
            yield from _names_among(cast("Iterable[Any]", constant))


def flags_asked(codes: Iterable[types.CodeType]) -> frozenset[str]:
    """Return the properties of tensors that the codes may read: "class", "requires_grad"."""
    words = names_in(_others(codes))
    asked = {"class": ("Parameter", "Buffer"), "requires_grad": ("requires_grad", "is_leaf")}
    return frozenset(flag for flag, names in asked.items() if not words.isdisjoint(names))


Compared = frozenset[tuple[str, ...]]
"""Comparisons by identity in code: for each the names of the compared attributes, none if it
compares variables."""

WITH_GLOBAL = ("", "")
"""Stands for a comparison with a global or its attribute, as functions and marks are."""


def compared_by_identity(codes: Iterable[types.CodeType]) -> Compared:
    """Return the comparisons of these codes, except those with constants."""
    found: set[tuple[str, ...]] = set()
    for code in _others(codes):
        steps = list(dis.get_instructions(code))
        for n, each in enumerate(steps):
            if each.argval in _FUNCTIONS or (each.opname == "LOAD_GLOBAL" and each.argval == "id"):
                found.add(())
            elif each.opname == "COMPARE_OP" and each.argval in ("==", "!="):
                # Objects whose class has no __eq__ are compared by identity.
                found.update(sides for sides in [_sides(steps[:n])] if all(sides) and sides[1:])
            elif each.opname != "IS_OP":
                continue
            elif each.is_jump_target:  # its right side is one of several
                found.add(())
            elif steps[n - 1].opname not in _CONSTANT:
                found.add(_sides(steps[:n]))
    return frozenset(found)


def _sides(before: list[dis.Instruction]) -> tuple[str, ...]:
    """Return the names of the attributes that a comparison after these instructions compares. None
    if its right side is not a variable or its attribute, since the left side is then unknown."""
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
    """Return the names that these may call: methods, attributes that may be bound methods, and
    strings, which getattr may look up. Not attributes of `self`: layers have settings with the
    names of tensors' methods."""
    found: set[str] = set()
    for code in _all(codes):
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
    return frozenset(found)


_ATTRIBUTE = ("LOAD_ATTR", "LOAD_METHOD")


def _is_method(instruction: dis.Instruction) -> bool:
    """Return whether it loads a method to call it; from Python 3.12 on that is a flag."""
    if sys.version_info < (3, 12):
        return instruction.opname == "LOAD_METHOD"
    return bool((instruction.arg or 0) & 1)
