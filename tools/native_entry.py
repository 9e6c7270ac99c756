"""Makes src/kernelmill/runtime/executor.ll from the C in runtime/native: `python -m
tools.native_entry` writes it, `--check` says whether it is what would be written.

The compiler is clang as the package ziglang brings it, the same version on every machine. Users
need none: llvmlite assembles the text for the processor at hand. So what clang says of the machine
that it compiled for is taken out: the code itself is the same for all (tests/repo compares x86-64
and AArch64).
"""

from __future__ import annotations

import argparse
import ctypes
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path

import tvm_ffi

from kernelmill.runtime import layout

RUNTIME = Path(layout.__file__).parent
SOURCE, TEXT = RUNTIME / "native" / "executor.c", RUNTIME / "executor.ll"
TARGETS = ("x86_64-linux-gnu", "aarch64-linux-gnu")

FLAGS = (
    "-std=c11", "-O2", "-fPIC", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror",
    # Plain calls and loops, in which nothing is assumed of types or of overflow.
    "-fno-strict-aliasing", "-fwrapv", "-fno-vectorize", "-fno-slp-vectorize",
    "-fno-unroll-loops", "-fno-jump-tables", "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables", "-fomit-frame-pointer", "-g0",
)  # fmt: skip

_HEADING = "; Made by `python -m tools.native_entry` from native/executor.c: edit that.\n\n"
_OF_THE_MACHINE = re.compile(
    r"^(?:; ModuleID|source_filename|target (?:datalayout|triple)|!).*\n"
    r'|"(?:target-cpu|tune-cpu|target-features|frame-pointer|min-legal-vector-width|'
    r'stack-protector-buffer-size)"(?:="[^"]*")? ?'
    r"|, !\S+ !\d+| +; preds = .*|uwtable(?:\(\w+\))? ",
    re.MULTILINE,
)
_FIELD_TYPES: dict[object, str] = {
    ctypes.c_int64: "int64_t ",
    ctypes.c_int32: "int32_t ",
    ctypes.c_void_p: "void *",
}


def header() -> str:
    """layout.py in C: structures, of which every offset is asserted, and numbers."""
    return "\n".join(["#pragma once", *_declarations(), ""])


def _declarations() -> Iterator[str]:
    for name, kind in vars(layout).items():
        if not isinstance(kind, type) or kind.__module__ != layout.__name__:
            continue
        if issubclass(kind, IntEnum):
            prefix = re.findall("[A-Z][a-z]+", name)[0].upper()  # StepKind.TYPE is STEP_TYPE
            members = (f"{prefix}_{each.name} = {each.value}" for each in kind)
            yield f"enum {{ {', '.join(members)} }};"
        elif issubclass(kind, ctypes.Structure):
            fields = [(field[0], field[1]) for field in kind._fields_]
            text = " ".join(f"{_FIELD_TYPES[type_]}{field};" for field, type_ in fields)
            yield f"typedef struct {{ {text} }} {name};"
            yield f'_Static_assert(sizeof({name}) == {ctypes.sizeof(kind)}, "");'
            for field, _ in fields:
                offset = getattr(kind, field).offset
                yield f'_Static_assert(offsetof({name}, {field}) == {offset}, "{field}");'


SANITIZED = ("-fsanitize=undefined", "-fsanitize-trap=all", "-fno-wrapv")
"""Flags for a text that stops the process (SIGILL) where the C's behaviour is undefined."""


ADDRESSES = ("-fsanitize=address", "-mllvm", "-asan-globals=0", "-mllvm", "-asan-stack=0")
"""Flags for a text that asks the runtime of AddressSanitizer before each access to memory. Stacks
are left out: another thread's may be where a finished one's was."""


def compiled(target: str, *flags: str, source: Path = SOURCE) -> str:
    """The LLVM IR of the native entry, or of another file, as clang makes it for a target, without
    what names that. subprocess.CalledProcessError when the C is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "layout.h").write_text(header())
        made = Path(folder, "executor.ll")
        include = Path(tvm_ffi.__file__).parent / "include"
        command = [sys.executable, "-m", "ziglang", "cc", "-target", target, *FLAGS, *flags]
        command += ["-I", folder, "-isystem", str(include), "-S", "-emit-llvm"]
        environment = {"ZIG_GLOBAL_CACHE_DIR": folder, "ZIG_LOCAL_CACHE_DIR": folder}
        subprocess.run(
            [*command, "-o", str(made), str(source)], check=True, env=environment, cwd=folder
        )
        text = made.read_text()
    return _HEADING + _OF_THE_MACHINE.sub("", text).strip() + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.native_entry", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    text = compiled(TARGETS[0])
    if not parser.parse_args().check:
        TEXT.write_text(text)
        return 0
    if same := TEXT.read_text() == text:
        print(f"{TEXT.name} is what its C gives")
    else:
        print(f"{TEXT.name} is not what its C gives: run python -m tools.native_entry")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
