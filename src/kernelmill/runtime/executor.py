"""The native entry of all programs: linked once in a process, and assembled if no image is given.

Its source is C (native/executor.c), compiled to executor.ll: LLVM IR, the same for all processors,
so that users need no compiler.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from kernelmill.core.dataclass import dataclass
from kernelmill.core.digest import digest_of
from kernelmill.core.target.isa import Isa
from kernelmill.runtime.layout import Changes, Flags, words
from kernelmill.runtime.linking import linker
from kernelmill.torch_internals import native

_WATCHERS = ("km_dict_changed", "km_type_changed")
_ENTRIES = tuple(
    (
        "km_validate km_launch km_repeat km_digest km_quick km_symbols km_objects km_guards_hold "
        "km_settings"
    ).split()
)


@dataclass(frozen=True)
class Executor:
    """The native entries, the first four as pairs: one keeps the GIL and one releases it. The
    others read Python objects, and keep it; without `has_quick` they must not be called. `watchers`
    are the addresses of callbacks for CPython when a dict or a class has changed, which they note
    in `changes`; 0 where CPython has no watchers.

    `threaded` is False when torch has no OpenMP runtime with the GNU interface: programs then run
    on the calling thread.
    """

    validate: tuple[Any, Any]
    launch: tuple[Any, Any]
    repeat: tuple[Any, Any]
    digest: tuple[Any, Any]
    quick: Any
    symbols: Any
    objects: Any
    guards_hold: Any
    settings: Any
    has_quick: bool
    threaded: bool
    watchers: tuple[int, int]
    changes: Changes


@cache
def executor() -> Executor:
    """Assemble and link the native entry. CodegenError when torch lacks a function that it needs,
    and UnsupportedError when tvm-ffi cannot call it."""
    changes = Changes()
    data = {"km_changes": ctypes.addressof(changes), "km_flags": ctypes.addressof(_flags.table)}
    given = {**native.provided(), **data}
    code = linker.link((*_ENTRIES, *_WATCHERS), _image(), given)
    callbacks = (code["km_dict_changed"], code["km_type_changed"])
    validate, launch, repeat, digest, *quickest = (_packed(code, name) for name in _ENTRIES)
    return Executor(
        validate, launch, repeat, digest, *(keeping for keeping, _ in quickest),
        has_quick=native.for_checks.works, threaded=native.openmp.works,
        watchers=callbacks if native.watchers.works else (0, 0), changes=changes,
    )  # fmt: skip


class _FlagTable:
    """The functions of torch's context that the entry calls; `keep` owns the array of addresses."""

    def __init__(self) -> None:
        self.table, self.keep = Flags(), words(())


_flags = _FlagTable()


def ask_for_flags(addresses: Sequence[int]) -> None:
    """Have these functions supply the bits FLAGS of the word of settings from now on."""
    _flags.keep = words(addresses)
    _flags.table.functions = ctypes.addressof(_flags.keep)
    _flags.table.count = len(addresses)


def _packed(code: linker.LinkedObject, name: str) -> tuple[Any, Any]:
    keeping = native.packed_function(code[name], code, release_gil=False)
    return keeping, native.packed_function(code[name], code, release_gil=True)


class _Given:
    """The object of the native entry that a loaded artifact has supplied, if any."""

    image: bytes | None = None


def give_executor(objects: Mapping[str, bytes]) -> None:
    """Use the executor's object from `objects`, if it is there under its name, in place of LLVM. It
    has an effect only before the first call of `executor`."""
    _Given.image = _Given.image or objects.get(executor_name())


def executor_object(isa: Isa | None = None) -> tuple[str, bytes]:
    """Return name and object of the executor, to be stored with programs: for this machine, or for
    any processor of an ISA's family."""
    if isa is None or isa.family == platform.machine():
        return executor_name(), _image()
    return executor_name(isa.family), _assembled(isa.triple)


@cache
def executor_name(family: str = "") -> str:
    """Return "executor", the processor family (by default this machine's), the source's digest."""
    return f"executor {family or platform.machine()} {digest_of(_source())}"


@cache
def _source() -> bytes:
    return Path(__file__).with_name("executor.ll").read_bytes()


@cache
def _image() -> bytes:
    return _Given.image or _assembled()


def _assembled(triple: str = "") -> bytes:
    """Return the executor's object for this machine, or for another triple."""
    # Optimising takes 40 ms and saves 3 ns a launch.
    return linker.assembled(_source().decode(), "runtime/executor.ll", 0, triple)
