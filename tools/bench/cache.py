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
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tools.bench.harness import Page, Rows, Table, child, duration, medians, slug, spent
from tools.bench.peers import FirstResult, export_onnx, onnx_call, onnx_session, open_vino_call
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

Steps = Iterator[Any]
"""A contestant: its own libraries are imported up to the first yield, what is done while a model is
built is done up to the second, and the third, which is in the time of the first call, gives the
call. `prepare` leaves in the folder what the contestant finds there when it runs."""

_packing: list[float] = []
"""Seconds of each time that weights were packed."""


def build(name: str) -> tuple[FirstResult, torch.Tensor]:
    """Return a model with random weights, and its argument."""
    from transformers import BertConfig, BertModel, LlamaForCausalLM

    from tools.bench.other_decoders import SMOL

    torch.manual_seed(0)
    if name == "mlp":
        layers = [part for _ in range(24) for part in (nn.Linear(256, 256), nn.ReLU())]
        return FirstResult(nn.Sequential(*layers).eval()), torch.randn(8, 256)
    model = BertModel(BertConfig()) if name == "bert" else LlamaForCausalLM(SMOL)
    model.config.use_cache = False
    return FirstResult(model.eval()), torch.randint(0, 30_000, (1, 8))


# ---- contestants, each in a process of its own --------------------------------------------------


def _kernelmill(
    model: FirstResult, x: torch.Tensor, folder: Path, prepare: bool, mapped: bool = False
) -> Steps:
    from kernelmill.inference import cache_compile

    _time_packing()
    yield
    cached = cache_compile(
        model.forward, dynamic=False, cache_dir=str(folder / "cache"), mmap_packed_weights=mapped
    )
    yield
    yield lambda: cached(x)


def _file(model: FirstResult, x: torch.Tensor, folder: Path, prepare: bool) -> Steps:
    from kernelmill import aot

    path, load = folder / "model.kmill", aot.load  # what imports the runtime
    if prepare:
        aot.compile(model, (x,), path=path, mmap_packed_weights=True)
    _time_packing()
    yield
    yield
    program = load(path, check_weights=False)
    yield lambda: program(x)


def _time_packing() -> None:
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


def _inductor(model: FirstResult, x: torch.Tensor, folder: Path, prepare: bool) -> Steps:
    import_module("torch._inductor.compile_fx")
    yield
    compiled = torch.compile(model, dynamic=False)
    yield
    yield lambda: compiled(x)


def _artifacts(model: FirstResult, x: torch.Tensor, folder: Path, prepare: bool) -> Steps:
    unpacked = tempfile.mkdtemp(dir=folder)
    atexit.register(shutil.rmtree, unpacked, ignore_errors=True)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = unpacked
    steps, kept = _inductor(model, x, folder, prepare), folder / "artifacts.bin"
    next(steps)
    if prepare:
        torch.compile(model, dynamic=False)(x)
        found = torch.compiler.save_cache_artifacts()
        assert found is not None
        kept.write_bytes(found[0])
    yield
    torch.compiler.load_cache_artifacts(kept.read_bytes())
    yield from steps


def _aot_inductor(model: FirstResult, x: torch.Tensor, folder: Path, prepare: bool) -> Steps:
    import_module("torch._inductor.package")
    path = str(folder / "model.pt2")
    if prepare:
        program = torch.export.export(model, (x,), strict=False)
        torch._inductor.aoti_compile_and_package(program, package_path=path)
    yield
    yield
    package = torch._inductor.aoti_load_package(path)
    yield lambda: package(x)


def _exported(model: FirstResult, x: torch.Tensor, folder: Path) -> Path:
    path = folder / "model.onnx"
    if not path.exists():
        export_onnx(path, model, (x,), external_data=True)
    return path


def _onnx_runtime(model: FirstResult, x: torch.Tensor, folder: Path, prepare: bool) -> Steps:
    from onnxruntime import GraphOptimizationLevel

    path, optimized = _exported(model, x, folder), folder / "optimized.onnx"
    if prepare:
        onnx_session(path, optimized_model_filepath=str(optimized))
    yield
    yield
    none = GraphOptimizationLevel.ORT_DISABLE_ALL
    call = onnx_call(optimized, graph_optimization_level=none)
    yield lambda: call(x)


def _open_vino(model: FirstResult, x: torch.Tensor, folder: Path, prepare: bool) -> Steps:
    import_module("openvino")
    path = _exported(model, x, folder)
    yield
    yield
    call = open_vino_call(path, CACHE_DIR=str(folder / "openvino"))
    yield lambda: call(x)


CONTESTANTS: dict[str, Callable[[FirstResult, torch.Tensor, Path, bool], Steps]] = {
    "kernelmill": _kernelmill,
    "kernelmill, mapped weights": partial(_kernelmill, mapped=True),
    "kernelmill, aot file": _file,
    "Inductor, full caches": _inductor,
    "Inductor, artifacts": _artifacts,
    "AOTInductor": _aot_inductor,
    "ONNX Runtime": _onnx_runtime,
    "OpenVINO": _open_vino,
}


def first_call(name: str, contestant: str, folder: str, prepare: bool) -> dict[str, float]:
    """Return seconds in this process: of `imports`, `wrap` and the `first` call (see `Steps`), of
    the `packing` of weights in that, of the `second`, and of a later `call`."""
    model, x = build(name)
    times = [time.perf_counter()]
    with torch.no_grad():
        steps = CONTESTANTS[contestant](model, x, Path(folder), prepare)
        for _ in range(2):
            next(steps)
            times.append(time.perf_counter())
        call = next(steps)
        result = call()
        times.append(time.perf_counter())
        packing, second = sum(_packing), spent(call)
        if contestant.startswith(OURS):  # what the first call has left to be done
            import_module("kernelmill.inference").finish_packing()
        call()
        later = statistics.median(spent(call) for _ in range(LATER_CALLS))
        torch.testing.assert_close(result, model(x), atol=5e-3, rtol=5e-3)
    found = {name: times[n + 1] - times[n] for n, name in enumerate(STEPS)}
    total = times[-1] - times[0]
    return {**found, "total": total, "packing": packing, "second": second, "call": later}


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
          {model: partial(_first_results, model) for model in TITLES}),
    Table("What kernelmill's first call is made of",
          ("", "first call", "packing weights", "second call", "the best of torch.compile"),
          {"parts": _parts}),
])  # fmt: skip
