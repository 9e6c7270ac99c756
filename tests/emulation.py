"""Tests whose compiled code is for a processor that this machine does not have.

`pytest --emulate ISA` compiles for the instruction set, and runs kernels under an emulator: one
process of it for all tests of a worker (tools/reach). The tests and the references are the same.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import struct
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from kernelmill.core.target import isa
from kernelmill.kernel.ir import Kernel
from kernelmill.kernel.text import print_kernel
from tools.reach.environment import Emulated, emulated

Memory = np.ndarray | Tensor
_AARCH64 = 183
"""In an ELF object: what it is for."""


@dataclass
class _Running:
    emulator: Emulator | None = None


_running = _Running()


def begin(name: str) -> None:
    """Compile for the ISA of that name (or text: `core.isa`), and run it under the emulator.

    tools.reach.environment.Unavailable says why this is not possible here.
    """
    chosen = isa.NAMED.get(name) or isa.parse_isa(name)
    _running.emulator = Emulator(emulated())
    os.environ["KERNELMILL_TARGET"] = name
    # Whatever asks for this machine's instruction set gets that of the emulated one.
    isa._forced = lambda _: chosen


def end() -> None:
    """Let go of the emulator."""
    if _running.emulator is not None:
        _running.emulator.close()


def summary() -> str:
    """What the emulator of this process has done, in words."""
    running = _running.emulator
    if running is None or not running.started:
        return ""
    counts = running.counts()
    return (
        f"{counts['calls']} calls of {counts['objects']} objects under the emulator; "
        f"{counts['placed']} of these were placed without LLVM, and gave the same placed by LLVM"
    )


def emulator() -> Emulator | None:
    """The emulator that runs kernels; None where the processor does."""
    return _running.emulator


class Emulator:
    """A process under the emulator, and what has been sent to it. It is started when needed, and
    again after a kernel has ended it."""

    def __init__(self, python: Emulated) -> None:
        self._python = python
        self._process: subprocess.Popen[bytes] | None = None
        self._sent: set[str] = set()

    @property
    def started(self) -> bool:
        """Whether there is a process."""
        return self._process is not None

    def run(
        self,
        image: bytes,
        symbol: str,
        memory: Sequence[Memory],
        dims: Sequence[int],
        ranges: Sequence[tuple[int, int]],
        scratch: int,
    ) -> None:
        """Ranges of a kernel's tasks on the buffers. AssertionError says what went wrong there."""
        request = {"action": "call", "digest": self._send(image), "symbol": symbol,
                   "dims": list(dims), "ranges": list(ranges), "scratch": scratch}  # fmt: skip
        self._on(memory, request)

    def dims(self, image: bytes, symbol: str, values: Sequence[int], count: int) -> list[int]:
        """What a function of sizes gives for these: so many numbers."""
        request = {"action": "dims", "digest": self._send(image), "symbol": symbol,
                   "values": list(values), "count": count}  # fmt: skip
        return self._ask(request, b"")[0]["dims"]

    def run_team(
        self,
        driver: tuple[str, bytes],
        kernels: Mapping[str, bytes],
        memory: Sequence[Memory],
        threads: int,
        scratch: int,
    ) -> None:
        """A super kernel's driver on its sub-kernels' buffers."""
        digests = {name: self._send(image) for name, image in kernels.items()}
        request = {"action": "team", "digest": self._send(driver[1]), "symbol": driver[0],
                   "kernels": digests, "threads": threads, "scratch": scratch}  # fmt: skip
        self._on(memory, request)

    def file(self, path: str) -> dict[str, str]:
        """Have a compiled file read there: the digests of its objects by name. Their later calls
        are of what was read."""
        answer, _ = self._ask({"action": "file", "path": path}, b"")
        assert answer["isa"] == str(isa.host_isa())
        self._sent.update(answer["digests"].values())
        return answer["digests"]

    def compile(self, kernel: Kernel, target: isa.Isa) -> bytes:
        """The object that is made there of a kernel, for any instruction set."""
        request = {"action": "compile", "isa": str(target)}
        return self._ask(request, print_kernel(kernel).encode())[1]

    def entry(self, image: bytes, symbols: Sequence[str], *objects: int) -> dict[str, Any]:
        """Load the native entry, tell it that a dict and a class have changed, and give what it
        noted, whom it asked not to watch them, and its settings with two ways of rounding."""
        request = {"action": "entry", "digest": self._send(image), "symbols": list(symbols),
                   "objects": objects}  # fmt: skip
        return self._ask(request, b"")[0]

    def counts(self) -> dict[str, Any]:
        """Of this process: objects loaded, those placed without LLVM, those compared, calls."""
        answer, _ = self._ask({"action": "count"}, b"")
        return answer

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()
            self._process = None

    def _on(self, memory: Sequence[Memory], request: dict[str, object]) -> None:
        spans = [_span(piece) for piece in memory]
        pieces = _merged(spans)
        request["memory"] = [(end - start, start % 64) for start, end in pieces]
        request["buffers"] = [
            next((n, at - s) for n, (s, e) in enumerate(pieces) if s <= at < e or at == s)
            for at in map(_address, memory)
        ]
        payload = b"".join(ctypes.string_at(start, end - start) for start, end in pieces)
        _, changed = self._ask(request, payload)
        at = 0
        for start, end in pieces:
            ctypes.memmove(start, changed[at : at + end - start], end - start)
            at += end - start

    def _send(self, image: bytes) -> str:
        if struct.unpack_from("<H", image, 0x12) != (_AARCH64,):
            pytest.skip("this is code for another processor than the emulated one")
        digest = hashlib.blake2b(image, digest_size=16).hexdigest()
        if self._process is None or digest not in self._sent:
            self._ask({"action": "object", "digest": digest}, image)
            self._sent.add(digest)
        return digest

    def _ask(self, request: Mapping[str, object], payload: bytes) -> tuple[dict[str, Any], bytes]:
        process = self._started()
        assert process.stdin is not None and process.stdout is not None
        line = json.dumps({**request, "bytes": len(payload)}).encode() + b"\n"
        try:
            process.stdin.write(line + payload)
            process.stdin.flush()
        except BrokenPipeError:
            pass  # its answer is missing as well
        answer = process.stdout.readline()
        if not answer:
            self._process = None
            raise AssertionError(f"the emulator ended with {process.wait()} in {request}")
        found = json.loads(answer)
        data = process.stdout.read(found.pop("bytes"))
        if "error" in found:
            raise AssertionError(f"in the emulator: {found['error']}")
        return found, data

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._sent.clear()
            self._process = subprocess.Popen(
                [*self._python.command, "-m", "tools.reach.guest"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                env={"PATH": os.environ["PATH"], **self._python.environment},
            )  # fmt: skip
        return self._process


def _address(memory: Memory) -> int:
    """0 for memory without elements, wherever it is said to be."""
    if 0 in memory.shape:
        return 0
    return memory.data_ptr() if isinstance(memory, Tensor) else memory.ctypes.data


def _span(memory: Memory) -> tuple[int, int]:
    """Where the memory begins and ends that a view is of."""
    if 0 in memory.shape:
        return 0, 0
    if isinstance(memory, Tensor):
        storage = memory.untyped_storage()
        return storage.data_ptr(), storage.data_ptr() + storage.nbytes()
    root = memory
    while isinstance(root.base, np.ndarray):
        root = root.base
    return root.ctypes.data, root.ctypes.data + root.nbytes


def _merged(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The pieces that these spans cover together; those that overlap are one."""
    pieces: list[tuple[int, int]] = []
    for start, end in sorted(set(spans)):
        if pieces and start < pieces[-1][1]:
            pieces[-1] = pieces[-1][0], max(end, pieces[-1][1])
        else:
            pieces.append((start, end))
    return pieces
