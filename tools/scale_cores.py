"""Time of a call by number of cores: eager, Inductor, ONNX Runtime and kernelmill, in turns.

    pip install kernelmill-*.whl      # brings all that is needed; onnxruntime, onnx and onnxscript
    python scale_cores.py             # are used where they are installed, a C++ compiler too

This file needs nothing beside it: copy it to the machine that is to be measured, which should be
idle. In a checkout it is `python -m tools.scale_cores`. It takes 8 minutes at most (`--minutes`),
prints a table, and writes scale_cores.json and scale_cores.md.

Each model and number of threads is a process of its own, bound to as many cores: one processor of
each core, cores of one memory node first (while it compiles, to their nodes). Within it the
contestants take turns. A figure is the median of the turns, and a ratio one of medians. Results are
compared with eager's. Models have random weights and published sizes; a processor with AMX gets
rows in bfloat16. What a peer has no time for is left out, with the reason: Inductor compiles anew
for each number of threads.
"""

from __future__ import annotations

import argparse
import datetime
import json
import logging
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

COUNTS = (1, 2, 4, 8, 16)
LEAST_TURNS = 5
TURN_SECONDS, PAUSE_SECONDS = 0.02, 0.05
WRONG = {torch.float32: 1e-3, torch.bfloat16: 0.1}
"""From which difference to eager on a result is wrong, as a part of its largest element."""

Call = Callable[[], Tensor]

# ---- models -------------------------------------------------------------------------------------


class Attention(nn.Module):
    """Attention of all positions with all, in heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = (layer(x) for layer in (self.query, self.key, self.value))
        query, key, value = (p.unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in parts)
        found = nn.functional.scaled_dot_product_attention(query, key, value)
        return self.out(found.transpose(1, 2).flatten(2))


class EncoderLayer(nn.Module):
    """BERT's: norms behind the sums."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention, self.norm = Attention(width, heads), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.last_norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x + self.attention(x))
        return self.last_norm(x + self.down(nn.functional.gelu(self.up(x))))


class Encoder(nn.Module):
    """Of BERT's structure: `tokens (batch, length) int64 -> (batch, length, width)`."""

    def __init__(self, layers: int, width: int, heads: int, words: int, length: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(EncoderLayer(width, heads) for _ in range(layers))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.norm(self.words(tokens) + self.places.weight[: tokens.shape[1]])
        for layer in self.layers:
            x = layer(x)
        return x


def normed(channels: int, outs: int, size: int, stride: int = 1) -> nn.Sequential:
    """A convolution and its batch norm, with statistics as training would leave them."""
    norm = nn.BatchNorm2d(outs)
    norm.get_buffer("running_mean").normal_(0.0, 0.1)
    norm.get_buffer("running_var").uniform_(0.5, 1.5)
    return nn.Sequential(nn.Conv2d(channels, outs, size, stride, size // 2, bias=False), norm)


class Bottleneck(nn.Module):
    """ResNet's block: 1 x 1, 3 x 3, 1 x 1."""

    def __init__(self, channels: int, inner: int, stride: int) -> None:
        super().__init__()
        outs = 4 * inner
        self.body = nn.Sequential(
            normed(channels, inner, 1), nn.ReLU(), normed(inner, inner, 3, stride), nn.ReLU(),
            normed(inner, outs, 1),
        )  # fmt: skip
        same = stride == 1 and channels == outs
        self.shortcut = nn.Identity() if same else normed(channels, outs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet(blocks: Sequence[int], width: int) -> nn.Sequential:
    """Of ResNet's structure: `images (batch, 3, height, width) -> (batch, 1000)`."""
    layers: list[nn.Module] = [normed(3, width, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    channels = width
    for stage, count in enumerate(blocks):
        for block in range(count):
            inner = width << stage
            layers.append(Bottleneck(channels, inner, 2 if stage and not block else 1))
            channels = 4 * inner
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000)]
    return nn.Sequential(*layers)


class DecoderLayer(nn.Module):
    """One token: queries of all heads over the keys and values of `groups` of them, SwiGLU."""

    def __init__(self, width: int, heads: int, groups: int, hidden: int, cache: int) -> None:
        super().__init__()
        self.heads, self.groups, head = heads, groups, width // heads
        self.norm, self.last_norm = nn.RMSNorm(width), nn.RMSNorm(width)
        self.projections = nn.Linear(width, (heads + 2 * groups) * head, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.randn(1, groups, cache, head))

    def forward(self, x: Tensor) -> Tensor:
        parts = self.projections(self.norm(x)).unflatten(-1, (self.heads + 2 * self.groups, -1))
        query, key, value = parts.transpose(1, 2).split((self.heads, self.groups, self.groups), 1)
        keys = torch.cat((self.keys, key), 2)
        values = torch.cat((self.values, value), 2)
        found = nn.functional.scaled_dot_product_attention(query, keys, values, enable_gqa=True)
        x = x + self.out(found.transpose(1, 2).flatten(2))
        inner = self.last_norm(x)
        return x + self.down(nn.functional.silu(self.gate(inner)) * self.up(inner))


def encoder(batch: int, small: bool) -> tuple[nn.Module, Tensor]:
    """BERT-base; small: two layers of 256."""
    sizes = (2, 256, 8, 200, 64) if small else (12, 768, 12, 30522, 512)
    return Encoder(*sizes), torch.randint(0, sizes[3], (batch, 64 if small else 128))


def images(small: bool) -> tuple[nn.Module, Tensor]:
    """ResNet-50; small: two blocks of a quarter of its channels."""
    model = resnet((1, 1), 16) if small else resnet((3, 4, 6, 3), 64)
    side = 64 if small else 224
    return model, torch.randn(1, 3, side, side)


def decoder(small: bool) -> tuple[nn.Module, Tensor]:
    """A token through 8 layers of 512, with a cache of 511; small: two layers of 256."""
    sizes = (256, 8, 2, 512, 63) if small else (512, 8, 2, 1792, 511)
    layers = [DecoderLayer(*sizes) for _ in range(2 if small else 8)]
    return nn.Sequential(*layers, nn.RMSNorm(sizes[0])), torch.randn(1, 1, sizes[0])


MODELS: Mapping[str, Callable[[bool], tuple[nn.Module, Tensor]]] = {
    "BERT-base 1 x 128": lambda small: encoder(1, small),
    "BERT-base 8 x 128": lambda small: encoder(8, small),
    "ResNet-50": images,
    "decoder token": decoder,
}
HALVES = ", bfloat16"
"""At the end of a row's name: the model in bfloat16."""


def build(name: str, small: bool = False) -> tuple[nn.Module, Tensor]:
    """Make the model of a row and its argument, the same in every process."""
    torch.manual_seed(0)
    with torch.no_grad():
        model, x = MODELS[name.removesuffix(HALVES)](small)
        if name.endswith(HALVES):
            model, x = model.bfloat16(), x.bfloat16() if x.is_floating_point() else x
    return model.eval(), x


# ---- contestants --------------------------------------------------------------------------------


def ours(model: nn.Module, x: Tensor, folder: Path) -> Call:
    import kernelmill

    compiled = kernelmill.compile(model, dynamic=False, cache_dir=folder)
    compiled(x)
    kernelmill.inference.finish_packing()
    return lambda: compiled(x)


def eager(model: nn.Module, x: Tensor, folder: Path) -> Call:
    return lambda: model(x)


def onnx_runtime(model: nn.Module, x: Tensor, folder: Path) -> Call:
    """Exports once: later processes find the file."""
    import onnxruntime

    if next(model.parameters()).dtype == torch.bfloat16:
        raise NotImplementedError("no products of bfloat16 on CPUs")
    path = folder / "onnx"
    if not path.exists():
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        program = torch.onnx.export(model, (x,), dynamo=True, verbose=False)
        assert program is not None
        unfinished = Path(tempfile.mkdtemp(dir=folder))
        program.save(str(unfinished / "model.onnx"))
        unfinished.rename(path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    providers = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(str(path / "model.onnx"), options, providers)
    feeds = {session.get_inputs()[0].name: x.numpy()}
    return lambda: torch.from_numpy(session.run(None, feeds)[0])


def inductor(model: nn.Module, x: Tensor, folder: Path) -> Call:
    compilers = filter(None, (os.environ.get("CXX"), "g++", "clang++", "c++"))
    if not any(map(shutil.which, compilers)):
        raise FileNotFoundError("no C++ compiler")
    compiled = torch.compile(model, backend="inductor", dynamic=False)
    return lambda: compiled(x)


CONTESTANTS: Mapping[str, Callable[[nn.Module, Tensor, Path], Call]] = {
    "kernelmill": ours,
    "eager": eager,
    "ONNX Runtime": onnx_runtime,
    "Inductor": inductor,
}
"""By name, in the order in which they are made ready: the one that needs the longest is last."""


# ---- one row of one number of threads, in a process of its own ----------------------------------


@dataclass
class Row:
    """Median seconds of a call and the largest difference from eager, by contestant; `refused` has
    the reasons of those that are not there."""

    model: str
    threads: int
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    errors: dict[str, float] = field(default_factory=dict[str, float])
    turns: int = 0
    refused: dict[str, str] = field(default_factory=dict[str, str])


def measure(
    name: str, threads: int, folder: Path, seconds: float, limit: float,
    processors: Sequence[int] = (), small: bool = False,
) -> Row:  # fmt: skip
    """Measure for so many seconds, bound to these processors if any. Whoever is not ready within
    `limit` seconds is left out."""
    deadline = time.monotonic() + limit
    torch.set_num_threads(threads)
    row = Row(name, threads)
    model, x = build(name, small)
    calls: dict[str, Call] = {}
    with torch.no_grad():
        expected = model(x)
        for contestant, make in CONTESTANTS.items():
            try:
                with limited(deadline - time.monotonic()):
                    call = make(model, x, folder)
                    error = difference(call(), expected)
                row.errors[contestant] = error
                if not error <= WRONG[expected.dtype]:
                    raise ArithmeticError(f"wrong by {error:.1g}")
                calls[contestant] = call
            except Exception as reason:
                row.refused[contestant] = f"{type(reason).__name__}: {reason}".split("\n")[0][:200]
        bind(processors)
        found = in_turns(calls, seconds)
    row.turns = min(map(len, found.values()), default=0)
    row.seconds = {contestant: statistics.median(times) for contestant, times in found.items()}
    return row


def difference(found: Tensor, expected: Tensor) -> float:
    """Return the largest difference as a part of the largest element."""
    exact = expected.double()
    return float((found.double() - exact).abs().max() / exact.abs().max())


def bind(processors: Sequence[int]) -> None:
    """Have all threads of this process run on these processors only; on any without some."""
    for thread in os.listdir("/proc/self/task") if processors else ():
        with suppress(OSError):  # it has ended
            os.sched_setaffinity(int(thread), processors)


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """TimeoutError after so many seconds, and at the end where the block has caught it itself, as
    compilers do that fall back to eager."""
    late, last = TimeoutError("no time left to compile"), time.monotonic() + seconds

    def end(*_: object) -> None:
        raise late

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    if time.monotonic() > last:
        raise late


def in_turns(calls: Mapping[str, Call], seconds: float) -> dict[str, list[float]]:
    """Return the seconds of a call in each turn; short calls are repeated within one. A pause
    before each lets threads that spin after the last one fall asleep."""
    repeats = {name: max(1, int(TURN_SECONDS / spent(call, 2))) for name, call in calls.items()}
    found: dict[str, list[float]] = {name: [] for name in calls}
    end, turns = time.monotonic() + seconds, 0
    while turns < LEAST_TURNS or time.monotonic() < end:
        turns += 1
        for name, call in calls.items():
            time.sleep(PAUSE_SECONDS)
            found[name].append(spent(call, repeats[name]))
    return found


def spent(call: Call, repeats: int) -> float:
    """Return the seconds of a call, the mean of so many."""
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


# ---- the machine --------------------------------------------------------------------------------

CPUS = Path("/sys/devices/system/cpu")


def cores(allowed: Sequence[int], system: Path = CPUS) -> list[int]:
    """Return one processor of each core, cores of one memory node first; all that are allowed where
    the system does not say which belong together."""
    found: dict[str, tuple[int, int]] = {}
    for number in sorted(allowed):
        folder = system / f"cpu{number}"
        try:
            siblings = (folder / "topology/thread_siblings_list").read_text().strip()
        except OSError:
            siblings = str(number)
        found.setdefault(siblings, (node_of(number, system), number))
    return [number for _, number in sorted(found.values())]


def node_of(processor: int, system: Path = CPUS) -> int:
    """Return the number of a processor's memory node, 0 where the system does not say."""
    nodes = (system / f"cpu{processor}").glob("node[0-9]*")
    return min((int(node.name.removeprefix("node")) for node in nodes), default=0)


def cpuinfo(name: str) -> str:
    """Return a field of the first processor in /proc/cpuinfo, "" where it is not there."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    fields = (line.partition(":") for line in lines)
    return next((value.strip() for key, _, value in fields if key.strip() == name), "")


def description(count: int) -> str:
    """Return a sentence on date, processor, cores, load and versions."""
    versions: list[str] = []
    for package in ("kernelmill", "torch", "onnxruntime"):
        try:
            versions.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            continue
    processor = cpuinfo("model name") or platform.machine()
    kind = f"family {cpuinfo('cpu family')}, model {cpuinfo('model')}"
    load = f"load {os.getloadavg()[0]:.2f} before"
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    parts = ", ".join((processor, kind, f"{count} cores", load, *versions))
    return f"Measured on {today}: {parts}."


# ---- all rows -----------------------------------------------------------------------------------


def jobs(names: Sequence[str], counts: Sequence[int]) -> list[tuple[str, int]]:
    """Return rows and numbers of threads. Those come first that say most if time runs out: one
    thread, and all."""
    order = dict.fromkeys((min(counts), max(counts), *counts))
    return [(name, count) for count in order for name in names]


def limit_of(left: float, rows: int, seconds: float) -> float:
    """Return the seconds that the next of so many rows may take, of those that are left: twice an
    equal share, for those that compile longer, if others can still import, compile and measure."""
    least = 3 * seconds + 10
    return min(left, max(left / rows, min(2 * left / rows, left - least * (rows - 1))))


def run(
    names: Sequence[str], processors: Sequence[int], minutes: float, seconds: float
) -> list[Row]:
    """Measure each row with each number of threads, a process for each."""
    end = time.monotonic() + 60 * minutes
    todo = jobs(names, [count for count in COUNTS if count <= len(processors)])
    rows: list[Row] = []
    allowed = os.sched_getaffinity(0)
    with tempfile.TemporaryDirectory(prefix="scale-cores-") as folder:
        for number, (name, threads) in enumerate(todo):
            left = end - time.monotonic()
            share = limit_of(left, len(todo) - number, seconds)
            own = processors[:threads]
            nodes = {node_of(processor) for processor in own}
            os.sched_setaffinity(0, {each for each in allowed if node_of(each) in nodes})
            try:
                rows.append(child(name, own, Path(folder), seconds, share))
            finally:
                os.sched_setaffinity(0, allowed)
            print(lines_of(rows[-1:])[-1], flush=True)
    return rows


def child(name: str, processors: Sequence[int], folder: Path, seconds: float, limit: float) -> Row:
    """Measure one row in a process of its own, on these processors."""
    threads = len(processors)
    own = folder / "".join(letter if letter.isalnum() else "-" for letter in name)
    own.mkdir(exist_ok=True)
    places = {
        "KERNELMILL_KERNEL_META": f"{folder}/kernel_meta",
        "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
        "OMP_NUM_THREADS": str(threads),
    }
    # Importing and building take some seconds, and turns their own time.
    ready = max(1.0, limit - 2 * seconds - 5)
    job = json.dumps([name, threads, str(own), seconds, ready, processors])
    command = [sys.executable, "-P", "-W", "ignore", __file__, "--job", job]
    try:
        done = subprocess.run(
            command, env={**os.environ, **places}, capture_output=True, text=True,
            timeout=max(1.0, limit),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Row(name, threads, refused=dict.fromkeys(CONTESTANTS, "no time left"))
    if done.returncode:
        reason = (done.stderr.strip() or "no output").splitlines()[-1]
        return Row(name, threads, refused=dict.fromkeys(CONTESTANTS, reason))
    return Row(**json.loads(done.stdout.splitlines()[-1]))


def lines_of(rows: Sequence[Row]) -> list[str]:
    """Return a Markdown table: times, the best other by ours, and ours beside that of one core."""
    one = {row.model: row.seconds.get("kernelmill") for row in rows if row.threads == 1}
    head = ["model", "threads", *CONTESTANTS, "best other by kernelmill", "part of linear"]
    table = [head, ["---", *["---:"] * (len(head) - 1)]]
    order = list(dict.fromkeys(row.model for row in rows))
    for row in sorted(rows, key=lambda row: (order.index(row.model), row.threads)):
        mine, alone = row.seconds.get("kernelmill"), one.get(row.model)
        others = [value for name, value in row.seconds.items() if name != "kernelmill"]
        ratio = f"{min(others) / mine:.2f}" if mine and others else "-"
        linear = f"{alone / (row.threads * mine):.2f}" if mine and alone else "-"
        times = [row.seconds.get(name) for name in CONTESTANTS]
        shown = ["-" if value is None else f"{1e3 * value:.3g} ms" for value in times]
        table.append([row.model, str(row.threads), *shown, ratio, linear])
    return [f"| {' | '.join(cells)} |" for cells in table]


def document(rows: Sequence[Row], sentence: str) -> str:
    """Return the page: how it was measured, the table, errors, who is missing and why."""
    worst = max((error for row in rows for error in row.errors.values()), default=0.0)
    missing = sorted({f"{name}: {why}" for row in rows for name, why in row.refused.items()})
    return "\n".join([
        "# Time of a call by number of cores", "",
        f"`python -m tools.scale_cores`. {sentence}", "",
        *lines_of(rows), "",
        f"The largest difference from eager is {worst:.1g} of the largest element.", "",
        *(f"- Left out, {each}" for each in missing), "",
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="scale_cores", description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=8.0, help="for everything; 8")
    parser.add_argument("--seconds", type=float, default=3.0, help="of turns for each figure; 3")
    parser.add_argument("--models", nargs="*", help=f"of: {', '.join(MODELS)}")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        name, threads, folder, *others = json.loads(options.job)
        row = measure(name, threads, Path(folder), *others)
        print(json.dumps(asdict(row)))
        return
    processors = cores(sorted(os.sched_getaffinity(0)))
    names = list(options.models or MODELS)
    if not options.models and "amx_tile" in cpuinfo("flags").split():
        names += [name + HALVES for name in MODELS]
    sentence = description(len(processors))
    rows = run(names, processors, options.minutes, options.seconds)
    found: dict[str, Any] = {"measured": sentence, "rows": [asdict(row) for row in rows]}
    Path("scale_cores.json").write_text(json.dumps(found, indent=1) + "\n")
    page = document(rows, sentence)
    Path("scale_cores.md").write_text(page)
    print(page)


if __name__ == "__main__":
    main()
