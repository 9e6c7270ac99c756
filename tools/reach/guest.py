"""Runs kernels under the emulator, as its standard input asks.

A request is a line of JSON and the bytes it announces; so is the answer. What is loaded here is
loaded by the same modules as on any machine. Torch is not here.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, BinaryIO

import numpy as np

from kernelmill import codegen
from kernelmill.artifact.container import KMILL, read_artifact
from kernelmill.core.elf import undefined_symbols
from kernelmill.core.target.isa import parse_isa
from kernelmill.kernel.text import parse_kernel
from kernelmill.runtime.layout import Changes, Flags
from kernelmill.runtime.linking import elf_loader, linker
from kernelmill.store.sealed import SealedFile

_EDGE = 64
"""Bytes before and behind each piece of memory, which must stay as they are."""

_FILL = 0xFF
"""What those are filled with, and scratch memory: NaN as a number."""

_TO_ZERO = 0xC00000
"""FE_TOWARDZERO of fenv.h, for AArch64."""

_pointer, _number = ctypes.c_void_p, ctypes.c_int64
_Kernel = ctypes.CFUNCTYPE(None, _pointer, _pointer, _number, _number, _pointer)


class Memory:
    """Bytes of the host, with edges, as far from an aligned address as they are there."""

    def __init__(self, contents: bytes, misalignment: int) -> None:
        self._room = np.full(len(contents) + 3 * _EDGE + 64, _FILL, np.uint8)
        start = -self._room.ctypes.data % 64 + _EDGE + misalignment
        self.address = self._room.ctypes.data + start
        self._inside = slice(start, start + len(contents))
        self._room[self._inside] = np.frombuffer(contents, np.uint8)

    def contents(self) -> bytes:
        """What is there now. ValueError when something was written beside it."""
        beside = (self._room[: self._inside.start], self._room[self._inside.stop :])
        if any((part != _FILL).any() for part in beside):
            raise ValueError("the kernel wrote beside its buffers")
        return self._room[self._inside].tobytes()


class Guest:
    """Objects that are loaded, and what loaded them."""

    def __init__(self) -> None:
        self._images: dict[str, bytes] = {}
        self._loaded: dict[tuple[str, str], list[Any]] = {}
        self.counts = {"objects": 0, "placed": 0, "calls": 0, "compared": 0}

    def object(self, request: Mapping[str, Any], payload: bytes) -> tuple[object, bytes]:
        """Keeps an object under its digest."""
        self._images[request["digest"]] = payload
        return {}, b""

    def file(self, request: Mapping[str, Any], payload: bytes) -> tuple[object, bytes]:
        """Reads a compiled file, and keeps its objects under their digests: these by name, and the
        instruction set that they are for."""
        artifact = read_artifact(SealedFile(request["path"], KMILL))
        digests = {
            name: hashlib.blake2b(image, digest_size=16).hexdigest()
            for name, image in artifact.objects.items()
        }
        self._images.update((digests[name], image) for name, image in artifact.objects.items())
        return {"digests": digests, "isa": artifact.manifest.ingredients["kernel.isa"]}, b""

    def compile(self, request: Mapping[str, Any], payload: bytes) -> tuple[object, bytes]:
        """The object that is made here of a kernel's text, for any instruction set."""
        self.counts["calls"] += 1
        return {}, codegen.compile_kernel(parse_kernel(payload.decode()), parse_isa(request["isa"]))

    def count(self, request: Mapping[str, Any], payload: bytes) -> tuple[object, bytes]:
        """How many objects were loaded and how many of them without LLVM, and calls."""
        return self.counts, b""

    def call(self, request: Mapping[str, Any], payload: bytes) -> tuple[object, bytes]:
        """Ranges of a kernel's tasks on memory, which comes back. The first call of an object is
        made with each loader, and they have to agree."""
        self.counts["calls"] += 1
        key = (request["digest"], request["symbol"])
        first = key not in self._loaded
        if first:
            self._loaded[key] = self._load(*key)
        loaded = self._loaded[key]
        results = [self._called(code[key[1]], request, payload) for code in loaded]
        if first:
            self.counts["compared"] += len(results) > 1
            # Later calls are made as a machine of this kind makes them.
            del loaded[1:]
        if any(result != results[0] for result in results):
            raise ValueError(f"{key[1]} gives other results when LLVM has loaded it")
        return {}, results[0]

    def _load(self, digest: str, symbol: str) -> list[Any]:
        image = self._images[digest]
        imports = {name: _address(name) for name in undefined_symbols(image)}
        placed = elf_loader.place(image, [symbol], imports)
        self.counts["objects"] += 1
        self.counts["placed"] += placed is not None
        by_llvm = linker._link_with_llvm([symbol], image, imports)
        return [by_llvm] if placed is None else [linker.LinkedObject(placed.addresses, placed),
                                                 by_llvm]  # fmt: skip

    def _called(self, address: int, request: Mapping[str, Any], payload: bytes) -> bytes:
        memory, buffers = _memory(request, payload)
        pointers = (_pointer * len(buffers))(*buffers)
        dims = (_number * len(request["dims"]))(*request["dims"])
        scratch = Memory(bytes([_FILL]) * request["scratch"], 0)
        for begin, end in request["ranges"]:
            _Kernel(address)(pointers, dims, begin, end, scratch.address)
        scratch.contents()
        return b"".join(piece.contents() for piece in memory)

    def dims(self, request: Mapping[str, Any], payload: bytes) -> tuple[object, bytes]:
        """What a function of sizes gives for these: so many numbers."""
        self.counts["calls"] += 1
        symbol = request["symbol"]
        code = linker.link([symbol], self._images[request["digest"]], {})
        given = (_number * len(request["values"]))(*request["values"])
        found = (_number * request["count"])()
        ctypes.CFUNCTYPE(None, _pointer, _pointer)(code[symbol])(given, found)
        return {"dims": list(found)}, b""

    def team(self, request: Mapping[str, Any], payload: bytes) -> tuple[object, bytes]:
        """A super kernel's driver, run by so many threads. `kernels` are the digests of the
        sub-kernels' objects by name."""
        self.counts["calls"] += 1
        imports = {"memset": _address("memset"), "sched_yield": _address("sched_yield")}
        kernels = {
            name: linker.link([name], self._images[digest], imports)
            for name, digest in request["kernels"].items()
        }
        provided = {**imports, **{name: code[name] for name, code in kernels.items()}}
        driver = linker.link([request["symbol"]], self._images[request["digest"]], provided)
        memory, buffers = _memory(request, payload)
        threads = request["threads"]
        lines = Memory(bytes(64 * threads), 0)
        pointers = (_pointer * (1 + len(buffers)))(lines.address, *buffers)
        scratch = [Memory(bytes([_FILL]) * request["scratch"], 0) for _ in range(threads)]
        run = _Kernel(driver[request["symbol"]])
        team = [
            threading.Thread(target=run, args=(pointers, None, n, threads, scratch[n].address))
            for n in range(threads)
        ]
        for thread in team:
            thread.start()
        for thread in team:
            thread.join()
        return {}, b"".join(piece.contents() for piece in memory)

    def entry(self, request: Mapping[str, Any], payload: bytes) -> tuple[object, bytes]:
        """Loads the native entry without LLVM, tells it of a dict and a class that changed, and
        asks it for the settings while floats are rounded as usual and towards zero. For all of
        torch's functions there is one that gives 0."""
        self.counts["calls"] += 1
        unwatched: list[tuple[int, int]] = []
        note = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, _pointer)(
            lambda watcher, who: unwatched.append((watcher, who)) or 0
        )
        noted = (_number * 4)()
        changes = Changes(0, 1, 2, len(noted), ctypes.addressof(noted))
        image, symbols = self._images[request["digest"]], request["symbols"]
        nothing = ctypes.CFUNCTYPE(ctypes.c_int64)(lambda: 0)
        imports = dict.fromkeys(undefined_symbols(image), ctypes.cast(nothing, _pointer).value or 0)
        imports |= {name: _address(name) for name in ("fegetmode", "memset", "memcpy")}
        flags = Flags()
        imports["km_changes"] = ctypes.addressof(changes)
        imports["km_flags"] = ctypes.addressof(flags)
        address = ctypes.cast(note, _pointer).value or 0
        imports |= {"PyDict_Unwatch": address, "PyType_Unwatch": address}
        placed = elf_loader.place(image, symbols, imports)
        if placed is None:
            raise ValueError("the native entry was left to LLVM")
        of_dict = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, _pointer, _pointer, _pointer)
        of_type = ctypes.CFUNCTYPE(ctypes.c_int, _pointer)
        of_dict(placed.addresses["km_dict_changed"])(0, request["objects"][0], None, None)
        of_type(placed.addresses["km_type_changed"])(request["objects"][1])
        count = changes.count
        settings = [_settings(placed.addresses["km_settings"], mode) for mode in (0, _TO_ZERO)]
        return {"count": count, "noted": noted[:count], "unwatched": unwatched,
                "settings": settings}, b""  # fmt: skip


def _memory(request: Mapping[str, Any], payload: bytes) -> tuple[list[Memory], list[int]]:
    """The pieces of memory, and the addresses of the buffers in them."""
    pieces: list[Memory] = []
    at = 0
    for size, misalignment in request["memory"]:
        pieces.append(Memory(payload[at : at + size], misalignment))
        at += size
    return pieces, [pieces[piece].address + offset for piece, offset in request["buffers"]]


def _settings(address: int, rounding: int) -> int:
    """What `km_settings` gives while floats are rounded so."""
    function = ctypes.CFUNCTYPE(ctypes.c_int, _pointer, _pointer, ctypes.c_int32, _pointer)(address)
    result = (_number * 2)()  # TVMFFIAny: its type, its value
    set_rounding = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(_address("fesetround"))
    set_rounding(rounding)
    try:
        function(None, None, 0, result)
    finally:
        set_rounding(0)
    return result[1]


@cache
def _libraries() -> tuple[ctypes.CDLL, ...]:
    return tuple(ctypes.CDLL(name) for name in ("libm.so.6", "libc.so.6"))


def _address(name: str) -> int:
    for library in _libraries():
        if hasattr(library, name):
            return ctypes.cast(getattr(library, name), _pointer).value or 0
    raise LookupError(f"there is no function {name} here")


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer until there are no more requests."""
    guest = Guest()
    actions = {"object": guest.object, "file": guest.file, "compile": guest.compile,
               "count": guest.count, "call": guest.call, "dims": guest.dims,
               "team": guest.team, "entry": guest.entry}  # fmt: skip
    while line := requests.readline():
        request = json.loads(line)
        payload = requests.read(request["bytes"])
        try:
            answer, data = actions[request["action"]](request, payload)
        except Exception as error:
            answer, data = {"error": f"{type(error).__name__}: {error}"}, b""
        assert isinstance(answer, dict)
        answers.write(json.dumps({**answer, "bytes": len(data)}).encode() + b"\n" + data)
        answers.flush()


def main(arguments: Sequence[str]) -> None:
    """Serve; what others print goes to standard error."""
    assert not arguments
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main(sys.argv[1:])
