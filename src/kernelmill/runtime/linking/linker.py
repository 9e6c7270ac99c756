"""Linking of objects into this process, the same bytes only once: by the ELF loader
(elf_loader.py), or with one LLJIT for objects that it does not support. Assembly of the runtime's
own code.

An object may use the C library, libm and the exports of libtorch_cpu (SLEEF among them), all of
which torch has loaded already, and which are found through its handle.

Names of kernels for `perf`, written if KERNELMILL_PERF_MAP is set.

perf reads /tmp/perf-PID.map, a line "ADDRESS SIZE NAME" for each function, ADDRESS and SIZE in
hexadecimal (tools/perf/Documentation/jit-interface.txt of the Linux kernel). Other makers of code
in this process, such as Python with -X perf, append to the same file.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import stat
import weakref
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from kernelmill.core.after_fork import RenewedLock, after_fork
from kernelmill.core.elf import undefined_symbols
from kernelmill.core.errors import CodegenError, NoCodeError
from kernelmill.core.log import get_logger
from kernelmill.runtime.linking.elf_loader import ALLOW_CODE, place
from kernelmill.torch_internals.libraries import address_of
from kernelmill.torch_internals.llvm import inside_llvm


class LinkedObject:
    """Machine code in memory; it stays loaded as long as this object lives."""

    def __init__(self, addresses: Mapping[str, int], tracker: object) -> None:
        self._addresses = addresses
        self._tracker = tracker

    def __getitem__(self, symbol: str) -> int:
        """Return the address of an exported symbol. KeyError if it was not requested."""
        return self._addresses[symbol]


_linking = RenewedLock()
_linked: weakref.WeakValueDictionary[tuple[str, bytes], LinkedObject] = (
    weakref.WeakValueDictionary()
)
_library_numbers = itertools.count()


def link_once(symbol: str, image: bytes) -> LinkedObject:
    """Link a kernel's object unless the same bytes are linked already. CodegenError when `image` is
    no object, lacks `symbol` or needs a symbol that is not loaded."""
    key = symbol, hashlib.blake2b(image, digest_size=20).digest()
    with _linking.lock:
        found = _linked.get(key)
        if found is None:
            found = _linked[key] = _link([symbol], image, {})
        return found


def link(
    symbols: Sequence[str], image: bytes, provided: Mapping[str, int] | None = None
) -> LinkedObject:
    """Link an object that may use the `provided` addresses too. CodegenError as in `link_once`."""
    with _linking.lock:
        return _link(symbols, image, provided or {})


def _link(symbols: Sequence[str], image: bytes, provided: Mapping[str, int]) -> LinkedObject:
    try:
        needed = undefined_symbols(image)
    except ValueError as error:
        raise CodegenError(f"object of {symbols[0]}: {error}") from error
    found: dict[str, int] = {}
    for name in needed:
        address = provided[name] if name in provided else address_of(name)
        if address is None:
            raise CodegenError(f"object of {symbols[0]} needs {name!r}, which torch does not have")
        found[name] = address
    try:
        placed = place(image, symbols, found)
    except PermissionError as error:
        raise NoCodeError(
            f"the system does not let this process run code that it made ({error.strerror}): "
            f"{ALLOW_CODE}"
        ) from error
    except (OSError, ValueError) as error:
        raise CodegenError(f"object of {symbols[0]} {error}") from error
    if placed is not None:
        return LinkedObject(placed.addresses, placed)
    return _link_with_llvm(symbols, image, found)


def _link_with_llvm(
    symbols: Sequence[str], image: bytes, imports: Mapping[str, int]
) -> LinkedObject:
    # Imported here: hardly any object needs it, and it takes a while to load.
    import llvmlite.binding as llvm

    with inside_llvm():
        builder: Any = llvm.JITLibraryBuilder().add_object_img(image)
        for name, address in imports.items():
            builder.import_symbol(name, address)
        for symbol in symbols:
            builder.export_symbol(symbol)
        try:
            tracker: Any = builder.link(_jit(), f"object{next(_library_numbers)}")
        except RuntimeError as error:
            raise CodegenError(f"object of {symbols[0]} does not link: {error}") from error
        return LinkedObject({symbol: tracker[symbol] for symbol in symbols}, tracker)


def assembled(text: str, source: str, optimize: int, triple: str = "") -> bytes:
    """Return the object of LLVM IR from `source`, at this optimisation level, for this machine's
    family of processors or for another triple. CodegenError when LLVM refuses the text."""
    # Imported here: with a given object LLVM is not needed.
    import llvmlite.binding as llvm

    if triple:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    else:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    with inside_llvm():
        try:
            module = llvm.parse_assembly(text)
            module.verify()
        except RuntimeError as error:
            raise CodegenError(f"{source}: {error}") from error
        target: Any = llvm.Target
        kind = target.from_triple(triple) if triple else target.from_default_triple()
        machine = kind.create_target_machine(opt=optimize, reloc="pic", codemodel="small")
        return machine.emit_object(module)


@cache
def _jit() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    # JITLink places an object in one block, so that its sections are always in each other's reach.
    return llvm.create_lljit_compiler(use_jit_link=True)


_log = get_logger("runtime")
_lock = RenewedLock()
_named: dict[int, str] = {}


def path() -> str:
    """Return the path of this process's map."""
    return f"/tmp/perf-{os.getpid()}.map"


def name(address: int, size: int, title: str) -> None:
    """Add a function to the map. A file that cannot be written is a warning."""
    line = f"{address:x} {size:x} {title}\n"
    with _lock.lock:
        if _named.get(address) == line:
            return
        _named[address] = line
        _append(line)


@after_fork
def _after_fork() -> None:
    # A child has the same code at the same addresses, and a file of its own.
    if _named:
        _append("".join(_named.values()))


def _append(text: str) -> None:
    try:
        # Everybody can write to /tmp: no link is followed, and no file of another user is used.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(path(), flags, 0o600)
        try:
            about = os.fstat(file)
            if about.st_uid != os.geteuid() or not stat.S_ISREG(about.st_mode):
                raise PermissionError(f"{path()} is no file of this user")
            os.write(file, text.encode())
        finally:
            os.close(file)
    except OSError as error:
        _log.warning("perf does not get the names of kernels: %s", error)
