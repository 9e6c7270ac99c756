"""Processes that check random programs: one that crashes or hangs is replaced."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import tempfile
import warnings
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import torch

from tests.programs.check import Checker, Verdict, by_name
from tests.programs.generator import generate
from tests.programs.modes import Mode
from tests.programs.program import Program

CHECK_SECONDS = 120.0
"""A program that takes more of a processor's time in one mode counts as wrong, and so does one that
takes next to none for as long: other processes may keep the machine busy."""

NEXT_TO_NONE = 0.5

END_SECONDS = 10.0
CHECKS_OF_A_WORKER = 1500
"""Then a fresh one takes over: torch keeps something of every module and trace."""

OWN_TRACES = 10
"""Every so many programs one is traced by each mode for itself. Modes of the others share traces,
as `tests/programs/shared_trace.py` says."""

IN_MEMORY = "/dev/shm"
"""Where Linux has files in memory: a worker's kernels and programs are many and short-lived."""


def _serve(pipe: Connection, folder: str) -> None:
    """A worker: takes programs, or their seeds, and names of modes; sends a verdict for each."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    tempfile.tempdir = folder
    os.environ["KERNELMILL_KERNEL_META"] = os.path.join(folder, "kernel_meta")
    gc.freeze()  # torch's own objects stay, and are not searched
    gc.set_threshold(10000, 10, 50)  # a trace makes as much that dies young as it takes to compile
    while (job := pipe.recv()) is not None:
        program, modes = job
        sharing: list[Mode] = []
        if isinstance(program, int):
            sharing = [] if program % OWN_TRACES == 0 else [by_name(mode) for mode in modes]
            program = generate(program)
        with Checker(program, sharing) as checker:
            for mode in modes:
                pipe.send(_verdict(checker, mode))


def _verdict(checker: Checker, mode: str) -> Verdict | None:
    if not by_name(mode).takes(checker.program):
        return None
    try:
        return checker.verdict(by_name(mode))
    except Exception as error:  # of eager itself, or of the check
        return Verdict(mode, "wrong", f"{type(error).__name__}: {error}", "check")


class Worker:
    """A process that checks programs, and is replaced when it dies or hangs."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._start()

    def _start(self) -> None:
        place = IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else None
        self._folder = tempfile.TemporaryDirectory(prefix="kernelmill-programs-", dir=place)
        self._pipe, theirs = self._context.Pipe()
        self._process: Any = self._context.Process(
            target=_serve, args=(theirs, self._folder.name), daemon=True
        )
        self._process.start()
        theirs.close()
        self._checks = 0

    def check(self, program: Program | int, modes: Sequence[str]) -> list[Verdict]:
        """The verdicts of the modes that take the program, or that of this seed; "crash" and
        "hang" are kinds of wrong."""
        if self._checks >= CHECKS_OF_A_WORKER:
            self.stop()
            self._start()
        found: list[Verdict] = []
        left = list(modes)
        while left:
            self._pipe.send((program, left))
            left = self._received(left, found)
        return found

    def _received(self, modes: list[str], found: list[Verdict]) -> list[str]:
        """Takes verdicts until all are there or the process is not; the modes that remain."""
        for number, mode in enumerate(modes):
            self._checks += 1
            try:
                if self._answers():
                    verdict = self._pipe.recv()
                    if verdict is not None:
                        found.append(verdict)
                    continue
                kind, text = "hang", f"no end after {CHECK_SECONDS:.0f} s"
            except (EOFError, ConnectionError):
                kind, text = "crash", "the process died"
            found.append(Verdict(mode, "wrong", text, kind))
            self._process.kill()
            self.stop()
            self._start()
            return modes[number + 1 :]
        return []

    def _answers(self) -> bool:
        """Whether the process sends something, or ends, before it counts as hanging."""
        first = last = self._processor_seconds()
        while not self._pipe.poll(CHECK_SECONDS):
            now = self._processor_seconds()
            if now - first > CHECK_SECONDS or now - last < NEXT_TO_NONE:
                return False
            last = now
        return True

    def _processor_seconds(self) -> float:
        """What all threads of the process have used so far (proc(5): utime and stime)."""
        with open(f"/proc/{self._process.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        """Ends the process."""
        with suppress(ConnectionError):
            self._pipe.send(None)
        self._process.join(END_SECONDS)
        self._process.kill()
        self._process.join()
        self._folder.cleanup()
