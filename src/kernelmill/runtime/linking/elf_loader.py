"""A loader of ELF objects, which links nearly all of them without LLVM.

LLVM's libraries take tens of milliseconds to load, and a kernel's object has little to link: code,
constants, distances between the two, calls of functions elsewhere and addresses of data there. For
each there is a slot with the address behind the sections, and a stub that jumps there. Objects that
ask for more are left to LLVM, and so are those for processors that are not listed below.

Format: ELF-64, little endian (System V ABI, "Object Files").

Relocations and stubs of each processor whose objects are loaded without LLVM.

Sources: System V ABI, supplement for x86-64, section 4.4; "ELF for the Arm 64-bit Architecture",
section "Relocation"; for the instructions that are filled in, "Arm Architecture Reference Manual
for A-profile", chapter C6.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from kernelmill.core.dataclass import dataclass

SLOT_AT = 8
"""Offset in a stub of the address that it jumps to."""

STUB_BYTES = 16


class UnsupportedRelocation(Exception):
    """A relocation or section that this loader does not support."""


@dataclass(frozen=True)
class Processor:
    """The relocations of a processor. `machine` is its ELF number, `jump` the code of a stub,
    before the address.

    calls   relocations that may lead to a stub
    slots   relocations that lead to the address in a stub
    fill    function that writes a target at an offset, for a kind of relocation; both count from a
            page's beginning. UnsupportedRelocation for any other kind.
    """

    machine: int
    jump: bytes
    calls: frozenset[int]
    slots: frozenset[int]
    fill: Callable[[bytearray, int, int, int], None]

    def stub(self, address: int) -> bytes:
        """Return a stub: code that jumps to an address, and the address."""
        return self.jump.ljust(SLOT_AT, b"\0") + struct.pack("<Q", address)


# ---- x86-64 ---------------------------------------------------------------------------------

_PC32, _PLT32 = 2, 4
_GOTPCREL = (9, 41, 42)
"""The distance to a word with an address: R_X86_64_GOTPCREL, GOTPCRELX and REX_GOTPCRELX."""


def _fill_x86(contents: bytearray, at: int, kind: int, target: int) -> None:
    if kind not in (_PC32, _PLT32, *_GOTPCREL):
        raise UnsupportedRelocation
    struct.pack_into("<i", contents, at, target - at)


# ---- AArch64 --------------------------------------------------------------------------------

_PREL64, _PREL32 = 260, 261
_ADR, _ADRP, _ADRP_UNCHECKED, _ADD_LOW = 274, 275, 276, 277
_JUMP26, _CALL26 = 282, 283
_GOT_PAGE, _GOT_LOW = 311, 312
_LOW_BITS = {_ADD_LOW: 0, 278: 0, 284: 1, 285: 2, 286: 3, 299: 4, _GOT_LOW: 3}
"""R_AARCH64_ADD_ABS_LO12_NC, LDST8 to LDST128 and LD64_GOT_LO12_NC, which take the lowest 12 bits
of an address; and how many of these an instruction leaves out, since they are zeros."""

_PAGE_BITS = 12
"""Bits of the pages of adrp, whatever pages the system has."""


def _fill_aarch64(contents: bytearray, at: int, kind: int, target: int) -> None:
    distance = target - at
    if kind == _PREL64:
        struct.pack_into("<q", contents, at, distance)
    elif kind == _PREL32:
        struct.pack_into("<i", contents, at, distance)
    elif kind in (_JUMP26, _CALL26):
        _set_bits(contents, at, 0, 26, _quotient(distance, 2, 26))
    elif kind in _LOW_BITS:
        low = target & ((1 << _PAGE_BITS) - 1)
        _set_bits(contents, at, 10, 12, _quotient(low, _LOW_BITS[kind], 13))
    elif kind == _ADR:
        _set_adr(contents, at, distance)
    elif kind in (_ADRP, _ADRP_UNCHECKED, _GOT_PAGE):
        _set_adr(contents, at, (target >> _PAGE_BITS) - (at >> _PAGE_BITS))
    else:
        raise UnsupportedRelocation


def _set_adr(contents: bytearray, at: int, number: int) -> None:
    number = _quotient(number, 0, 21)
    _set_bits(contents, at, 29, 2, number & 3)
    _set_bits(contents, at, 5, 19, number >> 2)


def _quotient(number: int, zeros: int, bits: int) -> int:
    """Return the number shifted right by `zeros` zeros, if it fits into `bits` signed bits."""
    found = number >> zeros
    if found << zeros != number or not -1 << (bits - 1) <= found < 1 << (bits - 1):
        raise UnsupportedRelocation
    return found


def _set_bits(contents: bytearray, at: int, first: int, count: int, number: int) -> None:
    """Write the lowest `count` bits of a number into an instruction, from bit `first` on."""
    mask = (1 << count) - 1
    (word,) = struct.unpack_from("<I", contents, at)
    word = word & ~(mask << first) | (number & mask) << first
    struct.pack_into("<I", contents, at, word)


PROCESSORS = {
    "x86_64": Processor(
        machine=62,
        # jmp *(rip + 2): the address is two bytes behind the six of the jump.
        jump=bytes.fromhex("ff2502000000"),
        calls=frozenset({_PLT32}),
        slots=frozenset(_GOTPCREL),
        fill=_fill_x86,
    ),
    "aarch64": Processor(
        machine=183,
        # ldr x16, pc + 8; br x16: a call may change x16 on its way ("Procedure Call Standard for
        # the Arm 64-bit Architecture", "General-purpose Registers").
        jump=struct.pack("<II", 0x58000050, 0xD61F0200),
        calls=frozenset({_JUMP26, _CALL26}),
        slots=frozenset({_GOT_PAGE, _GOT_LOW}),
        fill=_fill_aarch64,
    ),
}
"""Supported processors, by platform.machine()."""


_PROGBITS, _SYMTAB, _RELA, _NOBITS = 1, 2, 4, 8
_WRITE, _ALLOC, _THREAD_LOCAL = 0x1, 0x2, 0x400
_SECTION, _SYMBOL, _RELOCATION = "<IIQQQQIIQQ", "<IBBHQQ", "<QQq"

ALLOW_CODE = "allow executable memory (SELinux: execmem; systemd: MemoryDenyWriteExecute=no)"


class LoadedCode:
    """Code in memory, for as long as this object lives. `addresses` are those of the symbols."""

    def __init__(self, contents: bytearray, offsets: Mapping[str, int]) -> None:
        self._memory = mmap.mmap(-1, len(contents))
        self._memory.write(contents)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        if protect(start, len(contents), mmap.PROT_READ | mmap.PROT_EXEC):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        flush = _cache_flush()
        if flush is not None:
            flush(start, start + len(contents))
        self.addresses = {name: start + offset for name, offset in offsets.items()}


def why_no_code() -> str:
    """Return the system's reason for not letting this process run generated code; "" if it does."""
    try:
        LoadedCode(bytearray(mmap.PAGESIZE), {})
    except OSError as error:
        return error.strerror or str(error)
    return ""


def place(image: bytes, symbols: Sequence[str], imports: Mapping[str, int]) -> LoadedCode | None:
    """Return an object loaded into memory; `imports` are the addresses of its undefined symbols.

    None when it has to be linked by LLVM. ValueError names the fault of an object: it is damaged,
    or lacks a symbol. OSError when no memory is left for code.
    """
    processor = _processor()
    if processor is None or struct.unpack_from("<H", image, 0x12) != (processor.machine,):
        return None
    try:
        contents, offsets = laid_out(image, symbols, imports, processor)
    except UnsupportedRelocation:
        return None
    return LoadedCode(contents, offsets)


def laid_out(
    image: bytes, symbols: Sequence[str], imports: Mapping[str, int], processor: Processor
) -> tuple[bytearray, dict[str, int]]:
    """Return the linked bytes, to be put at a page's start, and the offsets of these symbols.
    ValueError as `place`; UnsupportedRelocation if LLVM has to link the object."""
    try:
        return _Object(image, imports, processor).laid_out(symbols)
    except (struct.error, IndexError) as error:
        raise ValueError(f"is damaged: {error}") from error


@cache
def _processor() -> Processor | None:
    """Return this machine's processor; None if LLVM has to link its objects."""
    if os.name != "posix" or (_needs_flush() and _cache_flush() is None):
        return None
    return PROCESSORS.get(platform.machine())


def _needs_flush() -> bool:
    """Return whether new code needs an explicit cache flush: Arm Architecture Reference Manual for
    A-profile, section B2.7.4."""
    return platform.machine() == "aarch64"


@cache
def _cache_flush() -> Callable[[int, int], None] | None:
    """Return a function that flushes the instruction cache between two addresses: `__clear_cache`
    of GCC's library, which every C++ program has loaded. None if not needed or not available."""
    if not _needs_flush():
        return None
    try:
        flush = ctypes.CDLL("libgcc_s.so.1")["__clear_cache"]
    except (OSError, AttributeError):
        return None
    flush.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    flush.restype = None
    return flush


class _Object:
    def __init__(self, image: bytes, imports: Mapping[str, int], processor: Processor) -> None:
        self._image, self._imports, self._processor = image, imports, processor
        (headers,) = struct.unpack_from("<Q", image, 0x28)
        entry_bytes, count = struct.unpack_from("<HH", image, 0x3A)
        self._sections = [
            struct.unpack_from(_SECTION, image, headers + entry_bytes * i) for i in range(count)
        ]
        self._contents = bytearray()
        self._bases: dict[int, int] = {}
        self._slots: dict[str, int] = {}
        self._symbols: list[tuple[str, int, int]] = []  # name, section, value

    def laid_out(self, symbols: Sequence[str]) -> tuple[bytearray, dict[str, int]]:
        for number, section in enumerate(self._sections):
            if section[2] & _ALLOC and section[1] in (_PROGBITS, _NOBITS):
                self._lay(number, section)
        for section in self._sections:
            if section[1] == _SYMTAB:
                self._read_symbols(section)
        self._add_slots()
        for section in self._sections:
            if section[1] == _RELA and section[7] in self._bases:
                self._relocate(section)
        found = {name: self._at(place, value) for name, place, value in self._symbols if place}
        missing = [name for name in symbols if name not in found]
        if missing:
            raise ValueError(f"does not link: it has no {missing[0]}")
        return self._contents, {name: found[name] for name in symbols}

    def _lay(self, number: int, section: tuple[int, ...]) -> None:
        _, kind, flags, _, offset, size, _, _, alignment, _ = section
        if flags & (_WRITE | _THREAD_LOCAL) or alignment > mmap.PAGESIZE:
            raise UnsupportedRelocation
        self._contents += bytes(-len(self._contents) % max(alignment, 1))
        self._bases[number] = len(self._contents)
        data = bytes(size) if kind == _NOBITS else self._image[offset : offset + size]
        if len(data) != size:
            raise IndexError(f"a section ends behind the file, at {offset + size}")
        self._contents += data

    def _read_symbols(self, section: tuple[int, ...]) -> None:
        names = self._sections[section[6]][4]
        for at in range(section[4], section[4] + section[5], struct.calcsize(_SYMBOL)):
            name, _, _, place, value, _ = struct.unpack_from(_SYMBOL, self._image, at)
            start = names + name
            text = self._image[start : self._image.index(b"\0", start)].decode()
            self._symbols.append((text, place, value))

    def _add_slots(self) -> None:
        self._contents += bytes(-len(self._contents) % STUB_BYTES)
        for name, address in self._imports.items():
            self._slots[name] = len(self._contents)
            self._contents += self._processor.stub(address)

    def _at(self, section: int, value: int) -> int:
        base = self._bases.get(section)
        return -1 if base is None else base + value

    def _relocate(self, section: tuple[int, ...]) -> None:
        base = self._bases[section[7]]
        for at in range(section[4], section[4] + section[5], struct.calcsize(_RELOCATION)):
            offset, info, addend = struct.unpack_from(_RELOCATION, self._image, at)
            kind, (name, place, value) = info & 0xFFFFFFFF, self._symbols[info >> 32]
            target = self._at(place, value)
            if kind in self._processor.slots:
                target = -1 if place else self._slots[name] + SLOT_AT
            elif not place and kind in self._processor.calls:
                target = self._slots[name]
            if target < 0:
                raise UnsupportedRelocation
            self._processor.fill(self._contents, base + offset, kind, target + addend)
