"""What stands for the tile unit under `pytest --trap-tiles`: it knows every way of writing an
instruction, keeps what a processor keeps, and stops the process where one would."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import subprocess
import sys
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest

from kernelmill.codegen import compile
from kernelmill.core.target import isa
from tests.machine_code import link
from tests.tile_trap import trap
from tests.tile_unit import AMX, REAL

pytestmark = pytest.mark.skipif(not trap.is_on(), reason="no --trap-tiles")


def assembled(lines: str, *memory: np.ndarray) -> None:
    """Run this code with the addresses of arrays in %rdi, %rsi, %rdx and %rcx."""
    isa.refusal()
    text = "".join(f'module asm "{line.strip()}"\n' for line in lines.split(";"))
    llvm.initialize_native_asmparser()
    module = f'target triple = "{AMX.triple}"\n{text}'
    tracker, address = link(compile.emit(module, AMX), "code")
    call = ctypes.CFUNCTYPE(None, *(ctypes.c_void_p,) * len(memory))(address)
    call(*(array.ctypes.data for array in memory))
    del tracker


def code(lines: str) -> str:
    return f".globl code; code: {lines}; retq"


def configuration(*sizes: tuple[int, int], palette: int = 1) -> np.ndarray:
    """Of tiles of so many rows and bytes a row."""
    found = np.zeros(64, np.uint8)
    found[0] = palette
    for tile, (rows, bytes) in enumerate(sizes):
        found[48 + tile] = rows
        found[16 + 2 * tile : 18 + 2 * tile] = np.frombuffer(np.uint16(bytes).tobytes(), np.uint8)
    return found


ADDRESSES = {
    "(%rsi,%r9)": "",
    "64(%rsi,%r9)": "",
    "-64(%rsi,%r9,1)": "",
    "4096(%rsi,%r9,2)": "",
    "(%r12,%r9)": "mov %rsi, %r12",
    "8(%r13,%r14,4)": "mov %rsi, %r13; mov $16, %r14",
    "(%r13,%r15)": "mov %rsi, %r13; mov $128, %r15",
    "(%rax,%r12,8)": "mov %rsi, %rax; mov $8, %r12",
    "64(%rbp,%r9)": "mov %rsi, %rbp",
}
"""How rows are addressed, and what sets the registers; %r9 has 64."""


@pytest.mark.parametrize("address", ADDRESSES)
def test_rows_are_found_however_they_are_addressed(address: str) -> None:
    whole = np.arange(20000, dtype=np.uint8)
    got = np.zeros((16, 64), np.uint8)
    saved = "push %rbp; push %r12; push %r13; push %r14; push %r15; mov $64, %r9"
    restored = "pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp"
    middle = whole[8000:]
    assembled(
        code(
            f"{saved}; ldtilecfg (%rdi); {ADDRESSES[address]}; tileloadd {address}, %tmm5;"
            f"tilestored %tmm5, (%rdx,%r9); tilerelease; {restored}"
        ),
        configuration(*[(9, 24)] * 8), middle, got,
    )  # fmt: skip
    first, _, rest = address.partition("(")
    index, _, scale = rest.strip(")").partition(",")[2].partition(",")
    step = int(scale or 1) * {"%r9": 64, "%r14": 16, "%r15": 128, "%r12": 8}[index]
    start = 8000 + int(first or 0)
    expected = np.zeros_like(got)
    for row in range(9):
        expected[row, :24] = whole[start + row * step :][:24]
    np.testing.assert_array_equal(got, expected)


def test_a_configuration_is_read_relative_to_the_code_and_stored_again() -> None:
    got, given = np.ones(64, np.uint8), configuration((16, 64), (3, 20))
    table = ",".join(map(str, given))
    assembled(
        f".p2align 6; table: .byte {table};"
        + code("ldtilecfg table(%rip); sttilecfg (%rdi); tilerelease; sttilecfg 64(%rdi)"),
        whole := np.concatenate([got, got]),
    )
    np.testing.assert_array_equal(whole, np.concatenate([given, np.zeros(64, np.uint8)]))


def test_what_is_behind_a_tile_is_cleared() -> None:
    """By loads and by products: a larger configuration never sees it."""
    ones, got = np.ones((16, 64), np.uint8), np.full((16, 64), 7, np.uint8)
    assembled(
        code(
            "mov $64, %r9; ldtilecfg (%rdi); tileloadd (%rsi,%r9), %tmm1;"
            "tileloadd (%rsi,%r9), %tmm2; tileloadd (%rsi,%r9), %tmm0;"
            "tdpbuud %tmm2, %tmm1, %tmm0; tilestored %tmm0, (%rdx,%r9); tilerelease"
        ),
        configuration((2, 12), (2, 8), (2, 12)), ones, got,
    )  # fmt: skip
    sums = got[:2, :12].copy().view(np.uint32)
    np.testing.assert_array_equal(sums, np.full((2, 3), 0x01010101 + 8))
    assert (got[2:] == 7).all() and (got[:2, 12:] == 7).all()


USES = "ldtilecfg (%rdi); mov $64, %r9"
FAULTS = {
    "tilezero: a tile that is not configured": ("tilezero %tmm0", configuration((0, 0))),
    "product: sizes that do not fit": (
        f"{USES}; tdpbf16ps %tmm2, %tmm1, %tmm0", configuration((16, 64), (16, 64), (15, 64)),
    ),
    "product: a tile twice": (
        f"{USES}; .byte 0xC4, 0xE2, 0x73, 0x5E, 0xC1", configuration((16, 64), (16, 64)),
    ),
    "product: a tile that is not configured": (
        f"{USES}; tdpbssd %tmm2, %tmm1, %tmm0", configuration((16, 64), (16, 64)),
    ),
    "tileload or tilestore: a tile that is not configured": (
        f"{USES}; tileloadd (%rdi,%r9), %tmm3", configuration((16, 64)),
    ),
    "ldtilecfg: no such palette": (USES, configuration((16, 64), palette=2)),
    "ldtilecfg: a large tile": (USES, configuration((17, 64))),
    "ldtilecfg: a tile of half a size": (USES, configuration((0, 64))),
    "ldtilecfg: a ninth tile": (USES, configuration(*[(1, 4)] * 9)),
}  # fmt: skip


def ended(lines: str, memory: np.ndarray, output: Path) -> str:
    """What a forked child said before a SIGILL ended it."""
    child = os.fork()
    if not child:
        file = os.open(output, os.O_CREAT | os.O_WRONLY)
        os.dup2(file, 2)
        faulthandler.disable()
        assembled(code(lines), memory)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGILL
    return output.read_text()


@pytest.mark.parametrize("reason", FAULTS)
def test_where_a_processor_would_stop_it_does(reason: str, tmp_path: Path) -> None:
    assert ended(*FAULTS[reason], tmp_path / "output") == f"tile trap: {reason}\n"


def test_other_instructions_are_none_of_its(tmp_path: Path) -> None:
    assert ended("ud2", configuration(), tmp_path / "output") == ""
    absent = ".byte 0xC4, 0xE2, 0x79, 0x4B, 0xC1"  # a load of a tile from a register
    assert ended(absent, configuration(), tmp_path / "other") == ""


def test_a_program_may_have_its_own_action() -> None:
    """It gets every other SIGILL."""
    seen: list[int] = []
    before = signal.signal(signal.SIGILL, lambda number, frame: seen.append(number))
    try:
        assembled(code("ldtilecfg (%rdi); tilerelease"), configuration((16, 64)))
        assert seen == []
        os.kill(os.getpid(), signal.SIGILL)
        assert seen == [signal.SIGILL]
    finally:
        signal.signal(signal.SIGILL, before)


@REAL
def test_what_was_trapped_is_counted() -> None:
    before = trap.counted()
    assembled(code("ldtilecfg (%rdi); tilezero %tmm0; tilerelease"), configuration((16, 64)))
    after = trap.counted()
    for name in ("ldtilecfg", "tilezero", "tilerelease"):
        assert after[name] > before[name]


NOT_ASKED = """
import ctypes, mmap
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(bytes.fromhex("c4e27849c0 c3"))  # tilerelease, ret
ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
"""


def test_a_process_that_has_no_permission_has_no_tiles() -> None:
    done = subprocess.run([sys.executable, "-c", NOT_ASKED], capture_output=True, text=True)
    assert done.returncode == -signal.SIGILL
    assert done.stderr == "tile trap: the system was not asked for the permission\n"
