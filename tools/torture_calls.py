"""Calls compiled programs with arguments that are wrong in random ways: each must raise, or give
what torch gives, and never crash.

python -m tools.torture_calls                  16 processes; writes its part of docs/reliability.md
python -m tools.torture_calls --processes 2    a quick run, printed and not written

The native entry is made with checks for undefined behaviour (tools/native_entry.py), which stop the
process; and, where gcc's libasan is installed, with those of AddressSanitizer for each access to
memory. That library has to be there before all others and sees all memory that is allocated, for
which this starts itself once more (PYTHONMALLOC=malloc gives each object of Python memory of its
own). A process compiles one program of each kind, the first of a random structure of arguments,
so that the native entry gets another table of steps. A crash or a hang is named by its seed and
call.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from kernelmill import aot
from kernelmill.compiler.pipeline import compile_graph
from kernelmill.config import CompilerConfig
from kernelmill.graph.text import parse_graph
from kernelmill.runtime import executor
from kernelmill.runtime.linking import linker
from kernelmill.torch_internals.libraries import address_of
from tools.machine import description
from tools.native_entry import ADDRESSES, SANITIZED, TARGETS, compiled
from tools.reliability import write_part
from tools.wrong_arguments import Tree, has_no_memory, spoiled

FULL = 16
CALLS = 1000
PATIENCE_SECONDS = 600.0
"""Longest time of a process."""

FOUR = """graph four(%a: f32[3, 4], %b: f32[3, 4], %c: f32[3, 4], %d: i64[3, 4]) {
    %m = mul(%a, %b) : f32[3, 4]
    %s = add(%m, %c) : f32[3, 4]
    %t = add(%d, %d) : i64[3, 4]
    return %s, %t
}"""


@dataclass
class Subject:
    """Something to call, what torch gives for the same, and arguments that are right. `before` is
    done ahead of each call; `others` are more arguments, which may be right."""

    name: str
    call: Callable[..., Any]
    eager: Callable[..., Any]
    arguments: tuple[Any, ...]
    before: Callable[[random.Random], None] = lambda chance: None
    others: tuple[tuple[Any, ...], ...] = ()


@dataclass
class Outcome:
    """Calls by what became of them; what was wrong."""

    counts: Counter[str] = field(default_factory=Counter[str])
    wrong: list[str] = field(default_factory=list[str])
    processes: int = 0
    seconds: float = 0.0


# ---- programs -----------------------------------------------------------------------------------


def random_tree(chance: random.Random, depth: int = 0) -> Tree:
    """Tensors and constants in containers."""
    kind = chance.choice(
        ("tensor", "tensor", "leaf", "tuple", "list", "dict")[: 3 if depth > 2 else 6]
    )
    if kind == "tensor":
        shape = chance.choice(((3, 4), (4,), (1, 4), (3, 1), ()))
        return torch.randn(shape).to(chance.choice((torch.float32, torch.float64, torch.int64)))
    if kind == "leaf":
        return chance.choice((2, 0, True, False, 1.5, 0.0, None, "text"))
    parts = [random_tree(chance, depth + 1) for _ in range(chance.randint(1, 3))]
    if kind == "dict":
        return {f"key {n}": part for n, part in enumerate(parts)}
    return tuple(parts) if kind == "tuple" else parts


def folded(value: Tree, total: torch.Tensor) -> torch.Tensor:
    """One tensor that depends on everything in a tree, and on its order; not on that of a dict's
    keys, by which files take arguments."""
    if isinstance(value, torch.Tensor):
        return total * 0.5 + value.to(torch.float32)
    if isinstance(value, bool):
        return -total if value else total
    if isinstance(value, (int, float)):
        return total + value
    if isinstance(value, str):
        return total + len(value)
    if value is None:
        return total
    if not isinstance(value, (tuple, list, dict)):
        raise TypeError(f"no tree: {type(value).__name__}")
    for part in [value[key] for key in sorted(value)] if isinstance(value, dict) else value:
        total = folded(part, total)
    return total


def structured(folder: Path, chance: random.Random) -> Subject:
    """A file whose arguments are a random tree."""
    first, tree = torch.randn(3, 4), [random_tree(chance) for _ in range(4)]

    def fold(first: torch.Tensor, tree: Tree) -> torch.Tensor:
        return folded(tree, first * 2)

    arguments = first, tree
    program = aot.load(aot.compile(fold, arguments, path=folder / "structured.kmill"))
    return Subject("structured", program, fold, arguments)


def entry(folder: Path, chance: random.Random) -> Subject:
    """The program behind torch.compile, without Dynamo."""
    program = compile_graph(parse_graph(FOUR), CompilerConfig()).program
    arguments = *torch.randn(3, 3, 4), torch.arange(12).reshape(3, 4)

    def eager(a: Any, b: Any, c: Any, d: Any) -> Any:
        given = a, b, c, d
        if [(t.shape, t.dtype) for t in given] != [(t.shape, t.dtype) for t in arguments]:
            raise ValueError("it takes no others")
        return [a * b + c, d + d]

    return Subject("entry", program.call, eager, arguments)


def sized(folder: Path, chance: random.Random) -> Subject:
    """A file of all sizes, with an integer that decides one."""

    def shifted(x: torch.Tensor, n: int) -> torch.Tensor:
        return x[:, None] * 2 + torch.arange(n)

    shapes = {"x": {0: torch.export.Dim.DYNAMIC}, "n": torch.export.Dim.DYNAMIC}
    arguments = torch.randn(5), 7
    path = aot.compile(shifted, arguments, path=folder / "sized.kmill", dynamic_shapes=shapes)
    return Subject("sized", aot.load(path), shifted, arguments)


class Weighted(nn.Module):
    """Weights that are packed, and a buffer that each call writes to."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(32, 32)
        self.seen = nn.Buffer(torch.zeros(4, 32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A product, and a sum of all calls."""
        self.seen.add_(x)
        return self.linear(x) + self.seen


def weighted(folder: Path, chance: random.Random) -> Subject:
    """A file whose weights others write to. A refused call must not have written."""
    program = aot.load(
        aot.compile(Weighted(), (torch.randn(4, 32),), path=folder / "weighted.kmill")
    )
    tensors = program.tensors
    weight, bias, seen = (tensors[name] for name in ("linear.weight", "linear.bias", "seen"))
    before = seen.clone()

    def write(chance: random.Random) -> None:
        way = chance.randrange(40)
        if way == 0:
            weight.data.mul_(1.001)
        elif way == 1:
            weight.data = weight.data.clone() + 0.001
        elif way == 2:
            weight.data.numpy()[chance.randrange(32)] += 0.01
        elif way == 3:
            bias.add_(0.01)
        before.copy_(seen)

    def eager(x: torch.Tensor) -> torch.Tensor:
        after = before.clone().add_(x)
        torch.testing.assert_close(seen, after)
        return nn.functional.linear(x, weight, bias) + after

    def call(*values: Any) -> Any:
        try:
            return program(*values)
        except Exception:
            if not torch.equal(seen, before):
                raise AssertionError("a refused call has written") from None
            raise

    others = (seen,), (seen.view(4, 32),), (weight[:4],), (weight,)
    return Subject("weighted", call, eager, (torch.randn(4, 32),), write, others)


SUBJECTS = (structured, entry, sized, weighted)

# ---- calls --------------------------------------------------------------------------------------


def tortured(seed: int, calls: int, tell: Callable[[str], None] = lambda text: None) -> Outcome:
    """So many calls of each program in this process; `tell` hears of each before it is made."""
    outcome, chance = Outcome(), random.Random(seed)
    torch.manual_seed(seed)
    with tempfile.TemporaryDirectory(prefix="kernelmill-torture-") as folder:
        for make in SUBJECTS:
            with torch.no_grad():
                subject = make(Path(folder), chance)
                subject.before(chance)
                for _ in range(3):
                    subject.call(*subject.arguments)
            for number in range(calls):
                told = f"seed {seed}, {subject.name}, call {number}"
                tell(told)
                _call(subject, chance, outcome, told)
    return outcome


def _call(subject: Subject, chance: random.Random, outcome: Outcome, told: str) -> None:
    right = chance.random() < 0.2
    arguments = subject.arguments if right else spoiled(subject.arguments, chance)
    if subject.others and not right and chance.random() < 0.1:
        arguments = chance.choice(subject.others)
    if not isinstance(arguments, (tuple, list, dict)):
        return
    with torch.set_grad_enabled(chance.random() < 0.3):
        with torch.no_grad():
            subject.before(chance)
        try:
            found = subject.call(*arguments)
        except Exception as error:
            outcome.counts["refused"] += 1
            if right or isinstance(error, AssertionError):
                outcome.wrong.append(f"{told}: {error}")
            return
        outcome.counts["right arguments" if right else "taken, as torch takes them"] += 1
        try:
            if has_no_memory(arguments):
                raise ValueError("a tensor without memory")
            expected = subject.eager(*arguments)
            torch.testing.assert_close(found, expected, atol=1e-3, rtol=1e-3, equal_nan=True)
        except Exception as error:
            outcome.wrong.append(f"{told}: {type(error).__name__}: {str(error)[:200]}")


# ---- processes ----------------------------------------------------------------------------------


_RUNTIME = "__asan_init"


def with_addresses() -> bool:
    """Whether AddressSanitizer's runtime is in this process."""
    return hasattr(ctypes.CDLL(None), _RUNTIME)


def start_with_addresses() -> None:
    """Start this program once more with AddressSanitizer's runtime, if there is one."""
    if with_addresses() or shutil.which("gcc") is None:
        return
    # C++'s exceptions pass through it, so it asks for their functions as it starts.
    libraries = [
        subprocess.run(
            ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libstdc++.so.6")
    ]
    if not all(map(os.path.isabs, libraries)):  # gcc has none
        return
    options = "detect_leaks=0:abort_on_error=1:handle_segv=0"
    environment = os.environ | {
        "LD_PRELOAD": " ".join(libraries), "ASAN_OPTIONS": options, "PYTHONMALLOC": "malloc",
    }  # fmt: skip
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


def _address_anywhere(name: str) -> int | None:
    found = address_of(name)
    if found is None and name.startswith("__asan_"):
        found = ctypes.cast(ctypes.CDLL(None)[name], ctypes.c_void_p).value
    return found


def use_sanitized_entry() -> None:
    """Let this process's native entry, and its children's, stop at undefined behaviour, and at
    memory that is not there where AddressSanitizer's runtime is."""
    checks = [*SANITIZED, *ADDRESSES] if with_addresses() else SANITIZED
    text = compiled(TARGETS[0], *checks)
    if "ubsantrap" not in text or executor.executor.cache_info().currsize:
        raise RuntimeError("the compiler has made no checks, or another entry is in use")
    if with_addresses() != ("__asan_report_load8" in text):
        raise RuntimeError("the compiler has made no checks of addresses")
    executor._source = cache(text.encode)
    linker.address_of = _address_anywhere
    if with_addresses() and not _stops_behind_the_end():
        raise RuntimeError("a read behind the end of memory is not seen")


def _stops_behind_the_end() -> bool:
    """Whether a process ends that has the entry read further than its memory goes."""
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        memory = ctypes.create_string_buffer(64)
        executor.executor().digest[0](ctypes.addressof(memory), 128)
        os._exit(0)
    return _wait(pid) == -signal.SIGABRT


def torture(processes: int, calls: int, first_seed: int = 0) -> Outcome:
    """So many processes, one after the other. None may have threads here."""
    outcome, start = Outcome(), time.monotonic()
    use_sanitized_entry()
    with tempfile.TemporaryDirectory(prefix="kernelmill-torture-") as folder:
        for seed in range(first_seed, first_seed + processes):
            _process(Path(folder), seed, calls, outcome)
            outcome.processes += 1
    outcome.seconds = time.monotonic() - start
    return outcome


def _process(folder: Path, seed: int, calls: int, outcome: Outcome) -> None:
    told, result = folder / "told", folder / "result"
    told.write_text(f"seed {seed}, before the first call".ljust(80))
    pid = os.fork()
    if pid == 0:
        _work(told, result, seed, calls)
    status = _wait(pid)
    if status == 0:
        counts, wrong = json.loads(result.read_text())
        outcome.counts.update(counts)
        outcome.wrong += wrong
    else:
        how = "hangs" if status is None else f"ends with {status}"
        outcome.wrong.append(f"{told.read_text().strip() if told.exists() else seed}: {how}")


def _work(told: Path, result: Path, seed: int, calls: int) -> None:
    code = 2
    try:
        place = os.open(told, os.O_CREAT | os.O_WRONLY)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what torch prints of wrong tensors

        def tell(text: str) -> None:
            os.pwrite(place, text.ljust(80).encode(), 0)

        try:
            found = tortured(seed, calls, tell)
        except Exception as error:
            found = Outcome(wrong=[f"seed {seed}: {type(error).__name__}: {error}"])
        result.write_text(json.dumps([found.counts, found.wrong]))
        code = 0
    finally:
        os._exit(code)


def _wait(pid: int) -> int | None:
    """How a process ended: its exit code, or -signal; None when it had to be killed."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def document(outcome: Outcome) -> str:
    """The outcome as Markdown."""
    counts = outcome.counts
    return (
        "# Reliability of calls\n\n"
        f"`python -m tools.torture_calls` (`make torture`). {description()}\n\n"
        f"Each process compiled {len(SUBJECTS)} programs: a file with a random structure of "
        "arguments, a program behind `torch.compile`, a file of all sizes, one whose weights are "
        "written to meanwhile. It called them with arguments that were wrong in random ways: other "
        "dtypes, ranks, sizes, strides, devices, layouts, offsets, tensors without memory, of "
        "other classes or made for other modes, other containers, long and recursive ones, objects "
        "that are no tensors. The native entry was made with clang's checks for undefined "
        f"behaviour{' and of each address (AddressSanitizer)' if with_addresses() else ''}.\n\n"
        "| | |\n| --- | ---: |\n"
        f"| processes | {outcome.processes:,} |\n"
        f"| calls with right arguments | {counts['right arguments']:,} |\n"
        f"| calls that were refused by an exception | {counts['refused']:,} |\n"
        f"| calls that gave what torch gives | {counts['taken, as torch takes them']:,} |\n"
        f"| crashes, hangs, wrong results, right arguments refused | {len(outcome.wrong)} |\n"
        f"| seconds | {outcome.seconds:.0f} |\n"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 1 when anything was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tools.torture_calls")
    parser.add_argument("--processes", type=int, default=FULL)
    parser.add_argument("--calls", type=int, default=CALLS, help="of each program")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    start_with_addresses()
    torch.set_num_threads(1)  # a process with threads cannot be forked
    outcome = torture(options.processes, options.calls, options.seed)
    text = document(outcome)
    print(*outcome.wrong[:20], text, sep="\n")
    if options.processes >= FULL:
        write_part("calls", text)
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
