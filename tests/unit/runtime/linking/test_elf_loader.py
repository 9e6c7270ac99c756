"""Objects placed without LLVM: the same results, and what asks for more is left to LLVM."""

import ctypes
import math
import struct
from itertools import pairwise

import pytest

from kernelmill import codegen
from kernelmill.core.errors import CodegenError
from kernelmill.core.target.isa import NAMED, host_isa
from kernelmill.runtime.linking import elf_loader, linker
from kernelmill.runtime.linking.elf_loader import PROCESSORS, UnsupportedRelocation, laid_out, place
from kernelmill.torch_internals.libraries import address_of
from tests.unit.runtime.kernels import compile_text

CALLS = """
@table = private constant [4 x double] [double 1.5, double 2.5, double 3.5, double 4.5]
declare double @cos(double)
define internal double @pick(i64 %n) noinline {
  %at = getelementptr [4 x double], ptr @table, i64 0, i64 %n
  %value = load double, ptr %at
  ret double %value
}
define double @first(i64 %n) {
  %value = call double @pick(i64 %n)
  %found = call double @cos(double %value)
  ret double %found
}
define double @second(i64 %n) {
  %value = call double @first(i64 %n)
  %more = fadd double %value, 100.0
  ret double %more
}
"""
COUNTER = """
@count = internal global i64 0
define i64 @next() {
  %old = load i64, ptr @count
  %new = add i64 %old, 1
  store i64 %new, ptr @count
  ret i64 %new
}
"""


def call(address: int, number: int) -> float:
    return ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int64)(address)(number)


def test_code_constants_and_calls_elsewhere() -> None:
    cos = address_of("cos")
    assert cos is not None
    placed = place(compile_text(CALLS), ["first", "second"], {"cos": cos})
    assert placed is not None
    for number in range(4):
        expected = math.cos(number + 1.5)
        assert call(placed.addresses["first"], number) == expected
        assert call(placed.addresses["second"], number) == expected + 100


OUTSIDE = """
@there = external global i64
define i64 @next(i64 %by) {
  %old = load i64, ptr @there
  %new = add i64 %old, %by
  store i64 %new, ptr @there
  ret i64 %new
}
"""


def test_data_elsewhere() -> None:
    there = ctypes.c_int64(40)
    placed = place(compile_text(OUTSIDE), ["next"], {"there": ctypes.addressof(there)})
    assert placed is not None
    add = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(placed.addresses["next"])
    assert (add(2), there.value) == (42, 42)


def test_what_it_cannot_place_is_linked_by_llvm() -> None:
    image = compile_text(COUNTER)
    assert place(image, ["next"], {}) is None
    linked = linker.link(["next"], image)
    following = ctypes.CFUNCTYPE(ctypes.c_int64)(linked["next"])
    assert [following(), following()] == [1, 2]


def test_a_missing_symbol_and_damage_are_named() -> None:
    image = compile_text(CALLS)
    with pytest.raises(CodegenError, match="does not link: it has no third"):
        linker.link(["third"], image)
    # The table of sections says where the sections are; the code's now ends behind the file.
    headers = int.from_bytes(image[0x28:0x30], "little")
    broken = bytearray(image)
    broken[headers + 64 * 2 + 0x20 : headers + 64 * 2 + 0x28] = (1 << 40).to_bytes(8, "little")
    with pytest.raises(CodegenError, match="object of first"):
        linker.link(["first"], bytes(broken))


def test_caches_are_told_of_what_was_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they have to be: on this machine nothing would notice if they were not."""
    told: list[bytes] = []

    def flush(start: int, stop: int) -> None:
        told.append(ctypes.string_at(start, stop - start))

    monkeypatch.setattr(elf_loader, "_cache_flush", lambda: flush)
    image = codegen.emit(CALLS, host_isa())
    processor = PROCESSORS[host_isa().family]
    placed = elf_loader.LoadedCode(*laid_out(image, ["first"], {"cos": 4096}, processor))
    (code,) = told
    assert placed.addresses["first"] and processor.stub(4096) in code


# ---- objects for AArch64, looked at where they cannot run -----------------------------------


def test_code_for_aarch64_points_at_its_constants_and_stubs() -> None:
    processor = PROCESSORS["aarch64"]
    image = codegen.emit(CALLS, NAMED["aarch64-neon"])
    contents, places = laid_out(image, ["first"], {"cos": 0x1122334455667788}, processor)
    stub = contents.index(processor.stub(0x1122334455667788))
    constants = contents.index(struct.pack("<4d", 1.5, 2.5, 3.5, 4.5))
    words = struct.unpack_from(f"<{stub // 4}I", contents)
    # b and bl; adrp and the add of the same register behind it.
    calls = {4 * n + 4 * _signed(word, 26) for n, word in enumerate(words) if word >> 26 & 31 == 5}
    pages = {
        ((4 * n >> 12) + _signed(word >> 5 << 2 | word >> 29 & 3, 21) << 12) + (low >> 10 & 0xFFF)
        for n, (word, low) in enumerate(pairwise(words))
        if word & 0x9F000000 == 0x90000000 and low & 0xFFC00000 == 0x91000000
    }
    assert stub in calls and places["first"] in calls
    assert pages == {constants}


def _signed(word: int, bits: int) -> int:
    number = word & (1 << bits) - 1
    return number - (number >> (bits - 1) << bits)


@pytest.mark.parametrize(("kind", "target"), [(283, 1 << 28), (283, 6), (286, 12), (1, 0)])
def test_what_does_not_fit_an_instruction_is_left_to_llvm(kind: int, target: int) -> None:
    # A call too far, a call between two instructions, a word that lies askew, an unknown kind.
    with pytest.raises(UnsupportedRelocation):
        PROCESSORS["aarch64"].fill(bytearray(4), 0, kind, target)
