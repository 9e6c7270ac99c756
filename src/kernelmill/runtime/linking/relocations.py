"""Relocations and stubs of each processor whose objects are loaded without LLVM.

Sources: System V ABI, supplement for x86-64, section 4.4; "ELF for the Arm 64-bit Architecture",
section "Relocation"; for the instructions that are filled in, "Arm Architecture Reference Manual
for A-profile", chapter C6.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

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
