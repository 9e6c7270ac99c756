"""How soon a fresh process has its first result, and what later calls cost.

What contestants prepare (they compile for minutes) stays in build/bench-cache, in a folder for each
kind of processor, so that a second run takes a few minutes.
"""

from __future__ import annotations

import atexit
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tools.bench.harness import (
    Call,
    Page,
    Rows,
    Subject,
    Table,
    child,
    duration,
    medians,
    slug,
    spent,
)  # fmt: skip
from tools.bench.peers import export_onnx
from tools.machine import kind

MODULE = "tools.bench.cache"
FOLDER = Path("build/bench-cache")
TURNS = 3
SECONDS = 15.0
"""Longest that the processes of one contestant take for a model, the last of them aside."""

LATER_CALLS = 20
OURS = "kernelmill"
TITLES = {
    "mlp": "MLP of 24 layers, 8x256",
    "bert": "BERT-base, 8 tokens",
    "decoder": "decoder, 30 layers, 135M, 8 tokens",
}
STEPS = ("imports", "wrap", "first")

Wrap = Callable[[], Call]
"""Gives the call whose first time is measured."""

_packing: list[float] = []
"""Seconds of each time that weights were packed."""

_rests: list[Callable[[], None]] = []
"""What waits for work that the contestant's first call has left to be done."""


class Server(nn.Module):
    """A model whose first tensor is served."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.run(x)

    def run(self, x: torch.Tensor) -> torch.Tensor:
        """The method that is cached."""
        found = self.model(x)
        return found if isinstance(found, torch.Tensor) else found[0]


def build(name: str) -> tuple[Server, torch.Tensor]:
    """Return a model with random weights, and its argument."""
    from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    if name == "mlp":
        layers = [part for _ in range(24) for part in (nn.Linear(256, 256), nn.ReLU())]
        return Server(nn.Sequential(*layers).eval()), torch.randn(8, 256)
    tokens = torch.randint(0, 30_000, (1, 8))
    if name == "bert":
        return Server(BertModel(BertConfig()).eval()), tokens
    config = LlamaConfig(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
        num_attention_heads=9, num_key_value_heads=3, tie_word_embeddings=True, use_cache=False,
    )  # fmt: skip
    return Server(LlamaForCausalLM(config).eval()), tokens


# ---- contestants, each in a process of its own --------------------------------------------------


def _lazily(load: Callable[[], Call]) -> Wrap:
    """Return what loads at the first call."""
    loaded = cache(load)
    return lambda: lambda: loaded()()


def _kernelmill(
    server: Server, x: torch.Tensor, folder: Path, prepare: bool, mapped: bool = False
) -> Wrap:
    from kernelmill.inference import cache_compile

    _time_packing()

    def wrap() -> Call:
        cached = cache_compile(
            server.run, dynamic=False, cache_dir=str(folder / "cache"), mmap_packed_weights=mapped
        )
        return lambda: cached(x)

    return wrap


def _file(server: Server, x: torch.Tensor, folder: Path, prepare: bool) -> Wrap:
    from kernelmill import aot

    path, load = folder / "model.kmill", aot.load  # what imports the runtime
    if prepare:
        aot.compile(server, (x,), path=path, mmap_packed_weights=True)
    _time_packing()

    def loaded() -> Call:
        program = load(path, check_weights=False)
        return lambda: program(x)

    return _lazily(loaded)


def _time_packing() -> None:
    from kernelmill.inference import finish_packing
    from kernelmill.runtime.calls.engine import Engine

    # private: nobody but this bench asks; all packing of a call is made of these launches
    plain: Any = vars(Engine)["_launch_prepare"]

    def timed(*args: Any) -> Any:
        begun = time.perf_counter()
        try:
            return plain(*args)
        finally:
            _packing.append(time.perf_counter() - begun)

    setattr(Engine, "_launch_prepare", timed)  # noqa: B010  # its type is not this one's
    _rests.append(finish_packing)


def _inductor(server: Server, x: torch.Tensor, folder: Path, prepare: bool) -> Wrap:
    import_module("torch._inductor.compile_fx")

    def wrap() -> Call:
        compiled = torch.compile(server, dynamic=False)
        return lambda: compiled(x)

    return wrap


def _artifacts(server: Server, x: torch.Tensor, folder: Path, prepare: bool) -> Wrap:
    unpacked = tempfile.mkdtemp(dir=folder)
    atexit.register(shutil.rmtree, unpacked, ignore_errors=True)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = unpacked
    made, kept = _inductor(server, x, folder, prepare), folder / "artifacts.bin"
    if prepare:
        torch.compile(server, dynamic=False)(x)
        found = torch.compiler.save_cache_artifacts()
        assert found is not None
        kept.write_bytes(found[0])

    def wrap() -> Call:
        torch.compiler.load_cache_artifacts(kept.read_bytes())
        return made()

    return wrap


def _aot_inductor(server: Server, x: torch.Tensor, folder: Path, prepare: bool) -> Wrap:
    import_module("torch._inductor.package")
    path = str(folder / "model.pt2")
    if prepare:
        program = torch.export.export(server, (x,), strict=False)
        torch._inductor.aoti_compile_and_package(program, package_path=path)

    def loaded() -> Call:
        package = torch._inductor.aoti_load_package(path)
        return lambda: package(x)

    return _lazily(loaded)


def _exported(server: Server, x: torch.Tensor, folder: Path) -> str:
    path = folder / "model.onnx"
    if not path.exists():
        export_onnx(path, server, (x,), external_data=True)
    return str(path)


def _onnx_runtime(server: Server, x: torch.Tensor, folder: Path, prepare: bool) -> Wrap:
    import onnxruntime

    path, optimized = _exported(server, x, folder), str(folder / "optimized.onnx")
    if prepare:
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = optimized
        onnxruntime.InferenceSession(path, options)

    def loaded() -> Call:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(optimized, options)
        feeds = {session.get_inputs()[0].name: x.numpy()}
        return lambda: torch.from_numpy(session.run(None, feeds)[0])

    return _lazily(loaded)


def _open_vino(server: Server, x: torch.Tensor, folder: Path, prepare: bool) -> Wrap:
    import openvino

    path = _exported(server, x, folder)
    options = {"CACHE_DIR": str(folder / "openvino"), "PERFORMANCE_HINT": "LATENCY",
               "INFERENCE_PRECISION_HINT": "f32"}  # fmt: skip

    def loaded() -> Call:
        compiled = openvino.Core().compile_model(path, "CPU", options)
        return lambda: torch.from_numpy(compiled([x.numpy()])[0])

    return _lazily(loaded)


CONTESTANTS: dict[str, Callable[[Server, torch.Tensor, Path, bool], Wrap]] = {
    "kernelmill": _kernelmill,
    "kernelmill, mapped weights": partial(_kernelmill, mapped=True),
    "kernelmill, aot file": _file,
    "Inductor, full caches": _inductor,
    "Inductor, artifacts": _artifacts,
    "AOTInductor": _aot_inductor,
    "ONNX Runtime": _onnx_runtime,
    "OpenVINO": _open_vino,
}


def first_call(model: str, contestant: str, folder: str, prepare: bool) -> dict[str, float]:
    """Return seconds in this process: of `imports` (the contestant's own libraries), of `wrap`
    (what is done while a model is built), of the `first` call with all that it loads, of the
    `packing` of weights in that, of the `second`, and of a later `call`. `prepare` leaves in the
    folder what the contestant finds there when it runs."""
    server, x = build(model)
    times = [time.perf_counter()]
    with torch.no_grad():
        wrap = CONTESTANTS[contestant](server, x, Path(folder), prepare)
        times.append(time.perf_counter())
        call = wrap()
        times.append(time.perf_counter())
        result = call()
        times.append(time.perf_counter())
        packing, second = sum(_packing), spent(call)
        for rest in _rests:
            rest()
        call()
        later = statistics.median(spent(call) for _ in range(LATER_CALLS))
        torch.testing.assert_close(result, server(x), atol=5e-3, rtol=5e-3)
    steps = {name: times[n + 1] - times[n] for n, name in enumerate(STEPS)}
    total = times[-1] - times[0]
    return {**steps, "total": total, "packing": packing, "second": second, "call": later}


# ---- tables -------------------------------------------------------------------------------------

_found: dict[str, dict[str, dict[str, float]]] = {}
"""Medians by model and contestant: what the second table is of."""


def _first_results(model: str) -> Rows:
    """Contestants take turns of one process each."""
    runs: dict[str, list[dict[str, float]]] = {}
    taken: dict[str, float] = {}

    def process(name: str, prepare: bool = False) -> dict[str, float]:
        folder = (FOLDER / slug(kind()) / model / slug(name)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        call = f"first_call({model!r}, {name!r}, {str(folder)!r}, {prepare})"
        if prepare and (folder / "ready").exists() and not name.startswith(OURS):
            return {}
        found = child(call, MODULE, str(folder / "kernel_meta"))
        (folder / "ready").touch()
        return found

    for name in CONTESTANTS:
        try:
            process(name, prepare=True)
            runs[name], taken[name] = [], 0.0
        except Exception as error:
            print(f"{model}, {name}: {str(error).splitlines()[-1][:200]}", flush=True)
    for _ in range(TURNS):
        for name in (name for name in runs if taken[name] < SECONDS):
            begun = time.monotonic()
            runs[name].append(process(name))
            taken[name] += time.monotonic() - begun
    found = _found[model] = {name: medians(each) for name, each in runs.items()}
    for name, times in found.items():
        ratio = times["first"] / found[OURS]["first"]
        steps = [duration(times[step]) for step in ("first", *STEPS[:2], "total", "call")]
        other = "" if name.startswith(OURS) else f"{ratio:.1f}x"
        yield [f"{TITLES[model]}: {name}", *steps, other]


def _parts() -> Rows:
    for model, found in _found.items():
        ours = found[OURS]
        best = min(f["first"] for name, f in found.items() if name.startswith("Inductor"))
        parts = [duration(ours[part]) for part in ("first", "packing", "second")]
        yield [TITLES[model], *parts, f"{best / ours['first']:.0f}x"]


PAGE = Page("cache", "docs/performance-cache.md", "Performance of the compile cache", [
    Table("First results", ("model: contestant", "first call", "imports", "wrap", "all",
                            "later call", "first, ratio"),
          [Subject(model, lambda model=model: _first_results(model)) for model in TITLES]),
    Table("What kernelmill's first call is made of",
          ("", "first call", "packing weights", "second call", "the best of torch.compile"),
          [Subject("parts", _parts)]),
])  # fmt: skip
