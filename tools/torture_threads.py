"""Several callers at a time use the native entry, under sanitizers: checks have to tell what was
spoiled, and launches to give the results of one thread, whoever comes late, is held up, or forks.

python -m tools.torture_threads               writes its part of docs/reliability.md
python -m tools.torture_threads --calls 200   a quick run, printed and not written

tools/threads_stress.c has the callers, the kernels, and threads in the place of OpenMP's, whose
barriers no sanitizer knows. It is made once for each sanitizer: for undefined behaviour and for
races of threads (ThreadSanitizer) by clang as the package ziglang brings it, and for addresses
(AddressSanitizer) by gcc, where that is installed. The first time, the runtime of ThreadSanitizer
is compiled too, which takes some minutes.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tvm_ffi

from tools.machine import description
from tools.native_entry import SOURCE, header
from tools.reliability import write_part

STRESS = Path(__file__).with_name("threads_stress.c")
CALLS = 5_000
CALLERS = 3
PATIENCE_SECONDS = 1800
_FLAGS = (
    "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-unused-function",
)  # fmt: skip
_CLANG = (sys.executable, "-m", "ziglang", "cc")
SANITIZERS = {
    "undefined behaviour": (*_CLANG, "-fsanitize=undefined", "-fsanitize-trap=all"),
    "threads": (*_CLANG, "-fsanitize=thread"),
    "addresses": ("gcc", "-fsanitize=address", "-pthread"),
}
"""The compiler of each, with its flags."""


@dataclass(frozen=True)
class Outcome:
    """Of the calls under one sanitizer: `forks` in the middle of them, how often a thread was
    `held_up`, and what was `wrong`: wrong results, reports of the sanitizer, or how it ended."""

    sanitizer: str
    calls: int
    forks: int
    held_up: int
    wrong: tuple[str, ...]


def made(sanitizer: str, folder: Path) -> Path:
    """The program under a sanitizer. subprocess.CalledProcessError when it does not compile."""
    (folder / "layout.h").write_text(header())
    program = folder / sanitizer.replace(" ", "_")
    include = Path(tvm_ffi.__file__).parent / "include"
    command = [*SANITIZERS[sanitizer], *_FLAGS, "-I", str(folder), "-I", str(SOURCE.parent)]
    command += ["-isystem", str(include), "-o", str(program), str(STRESS)]
    subprocess.run(command, check=True)
    return program


def tortured(sanitizer: str, program: Path, callers: int, calls: int, seed: int) -> Outcome:
    """So many calls of each caller."""
    command = [str(program), str(callers), str(calls), str(seed)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return Outcome(sanitizer, callers * calls, 0, 0, ("hangs",))
    wrong = re.findall(r"^(?:WARNING|==\d+==ERROR): .*", done.stderr, re.MULTILINE)
    found = re.fullmatch(r"wrong (\d+) forks (\d+) held_up (\d+)\n", done.stdout)
    if found is None:
        return Outcome(sanitizer, 0, 0, 0, (*wrong, f"ends with {done.returncode}"))
    if found[1] != "0":
        wrong.append(f"{found[1]} wrong results")
    elif done.returncode and not wrong:
        wrong.append(f"ends with {done.returncode}")
    return Outcome(sanitizer, callers * calls, int(found[2]), int(found[3]), tuple(wrong))


def document(outcomes: Sequence[Outcome], seconds: float) -> str:
    """The outcomes as Markdown."""
    rows = "".join(
        f"| {each.sanitizer} | {each.calls:,} | {each.forks:,} | {each.held_up:,} "
        f"| {len(each.wrong)} |\n"
        for each in outcomes
    )
    return (
        "# Reliability of threads\n\n"
        f"`python -m tools.torture_threads` (`make torture`). {description()}\n\n"
        f"{CALLERS} callers at a time, each with 1 to 4 threads that come late or are held up, of "
        "programs of 12 launches that read what other threads wrote, and of 300 parameters some of "
        "which are spoiled before most calls; a child is forked in the middle and calls with one "
        "thread. Results are compared with those of one thread. "
        f"{seconds:.0f} s.\n\n"
        "| checked for | calls | forks | held up | races, wrong accesses and results |\n"
        "| --- | ---: | ---: | ---: | ---: |\n" + rows
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 1 when anything was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tools.torture_threads")
    parser.add_argument("--calls", type=int, default=CALLS, help="of each caller")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    start, outcomes = time.monotonic(), list[Outcome]()
    with tempfile.TemporaryDirectory(prefix="kernelmill-torture-") as folder:
        for sanitizer, command in SANITIZERS.items():
            if shutil.which(command[0]) is None:
                print(f"{command[0]} is not installed: not checked for {sanitizer}")
                continue
            program = made(sanitizer, Path(folder))
            outcomes.append(tortured(sanitizer, program, CALLERS, options.calls, options.seed))
    text = document(outcomes, time.monotonic() - start)
    wrong = [f"{each.sanitizer}: {what}" for each in outcomes for what in each.wrong]
    print(*wrong[:20], text, sep="\n")
    if options.calls >= CALLS:
        write_part("threads", text)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
