"""Kills processes in the middle of compiles and damages their files, and checks what is left.

python -m tools.torture                 10,000 kills; writes docs/reliability.md
python -m tools.torture --kills 200     a quick run, printed and not written
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from kernelmill.store import Key, NewEntry, Store
from kernelmill.store.upkeep import survey
from tools.reliability import write_part

FULL = 10_000
KEYS = 12
FAULTS = ("none", "flip", "cut", "empty", "delete")
LONGEST_SECONDS = 0.012
"""A child that is not killed sooner has compiled and written most of the keys."""


@dataclass
class Outcome:
    """Kills that hit a running child, faults by kind, and what was wrong afterwards."""

    kills: int = 0
    finished: int = 0
    faults: Counter[str] = field(default_factory=Counter[str])
    wrong: list[str] = field(default_factory=list[str])
    recovered: int = 0
    seconds: float = 0.0


def key(n: int) -> Key:
    return Key.of({"kernel": f"kernel number {n}"})


def compiled(n: int) -> NewEntry:
    """What a compile of `key(n)` gives, always the same."""
    return NewEntry(b"\x7fELF" + bytes([n]) * 3000, {"n": n}, {"blockDim": n})


def work(folder: Path, seed: int) -> None:
    """Get every key in a random order; exits with 1 when an object is not what it must be."""
    order = list(range(KEYS))
    random.Random(seed).shuffle(order)
    store = Store(folder, patience=5)
    for n in order:
        entry = store.get_or_compile(key(n), "Torture", lambda n=n: compiled(n))
        if entry.object != compiled(n).object:
            os._exit(1)


def torture(folder: Path, kills: int, seed: int = 0) -> Outcome:
    """Fork, kill, damage, check, so many times on one folder."""
    outcome, chance, start = Outcome(), random.Random(seed), time.monotonic()
    while outcome.kills < kills:
        pids = [_child(folder, chance.random()) for _ in range(chance.choice((1, 1, 2)))]
        time.sleep(chance.uniform(0, LONGEST_SECONDS))
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            outcome.kills += code == -signal.SIGKILL
            outcome.finished += code == 0
            if code == 1:
                outcome.wrong.append(f"a wrong object after {outcome.kills} kills")
        _check(folder, outcome)
        fault = chance.choice(FAULTS)
        outcome.faults[fault] += _inflict(folder, fault, chance)
        if chance.random() < 0.1:
            _recover(folder, outcome)
    _recover(folder, outcome)
    outcome.seconds = time.monotonic() - start
    return outcome


def _child(folder: Path, seed: float) -> int:
    pid = os.fork()
    if pid == 0:
        code = 2
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # its warnings are expected
            work(folder, int(seed * 1e9))
            code = 0
        finally:
            os._exit(code)
    return pid


_damaged: set[str] = set()


def _check(folder: Path, outcome: Outcome) -> None:
    """Nothing may be bad but what was damaged on purpose and has not been met since."""
    if not folder.exists():
        return
    for row in survey(str(folder)).rows:
        if row.state == "bad" and row.name not in _damaged:
            outcome.wrong.append(f"after {outcome.kills} kills: {row.reason}")


def _inflict(folder: Path, fault: str, chance: random.Random) -> int:
    files = sorted(folder.glob("Torture_*.[oij]*")) if folder.exists() else []
    files = [path for path in files if path.suffix in (".o", ".info", ".json")]
    if fault == "none" or not files:
        return 0
    path = chance.choice(files)
    data = bytearray(path.read_bytes())
    if fault == "delete" or not data:
        path.unlink()
        return 1
    if fault == "flip":
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data[: {"cut": len(data) // 2, "empty": 0}.get(fault, len(data))])
    _damaged.add(path.stem)
    return 1


def _recover(folder: Path, outcome: Outcome) -> None:
    """An undisturbed process serves every key; then all is good, and the next compiles nothing."""
    pid = _child(folder, 0.5)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    found = survey(str(folder))
    if code != 0 or (found.count("ok"), len(found.rows)) != (KEYS, KEYS):
        bad = [row for row in found.rows if row.state != "ok"]
        outcome.wrong.append(f"after {outcome.kills} kills: exit code {code}, {bad}")
    store = Store(folder)
    for n in range(KEYS):
        entry = store.get_or_compile(key(n), "Torture", lambda n=n: compiled(n))
        if entry.object != compiled(n).object:
            outcome.wrong.append(f"a wrong object after {outcome.kills} kills")
    if store.counts.compiled:
        outcome.wrong.append(f"after {outcome.kills} kills: {store.counts.compiled} compiled twice")
    _damaged.clear()
    for path in folder.glob("*.bad-*"):
        path.unlink()
    outcome.recovered += 1


def document(outcome: Outcome) -> str:
    """The outcome as Markdown."""
    from tools.machine import description

    faults = ", ".join(f"{n} {kind}" for kind, n in sorted(outcome.faults.items()) if n)
    return "\n".join(
        [
            "# Reliability of the kernel store",
            "",
            f"`python -m tools.torture` (`make torture` for {FULL:,} kills). {description()}",
            "",
            f"Processes that fill one folder with {KEYS} kernels, one or two at a time, were killed"
            " (SIGKILL) at random points; between the kills single files were damaged on purpose.",
            "",
            "| | |",
            "| --- | ---: |",
            f"| processes killed while they ran | {outcome.kills:,} |",
            f"| processes that finished first | {outcome.finished:,} |",
            f"| files damaged | {faults} |",
            f"| times everything was served, checked and found good | {outcome.recovered:,} |",
            f"| wrong objects, damage that was not noticed, kernels lost | {len(outcome.wrong)} |",
            f"| seconds | {outcome.seconds:.0f} |",
            "",
        ]
    )


def main() -> int:
    """Returns 1 when anything was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tools.torture", description=__doc__)
    parser.add_argument("--kills", type=int, default=FULL)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="write the document for fewer kills")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kernelmill-torture-") as folder:
        outcome = torture(Path(folder) / "kernel_meta", options.kills, options.seed)
    print("\n".join(outcome.wrong[:20]))
    print(
        f"{outcome.kills} killed, {outcome.finished} finished, {outcome.recovered} recoveries, "
        f"{dict(outcome.faults)}, {len(outcome.wrong)} wrong, {outcome.seconds:.1f} s"
    )
    if options.write or options.kills >= FULL:
        write_part("kernel store", document(outcome))
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
