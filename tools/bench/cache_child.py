"""One fresh process of the cache bench: a model is built, a contestant makes its first call.

    python -m tools.bench.cache_child MODEL CONTESTANT FOLDER prepare|run

`prepare` leaves in FOLDER what the contestant finds there when it runs. Prints JSON: seconds of
`imports` (the contestant's own libraries), of `wrap` (what is done while a model is built), of the
`first` call with all that it loads, of the `second`, and of a later `call`; kernelmill also of the
`packing` of weights, launch by launch or at once, which is part of its first call.
"""

from __future__ import annotations

import atexit
import io
import json
import logging
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn

Call = Callable[[], Any]
Wrap = Callable[[], Call]
"""Gives the call whose first time is measured."""

_packing: list[float] = []
"""Seconds of each time that weights were packed."""

_rests: list[Callable[[], None]] = []
"""What waits for work that the contestant's first call has left to be done."""

MODELS = ("mlp", "bert", "decoder")
LATER_CALLS = 20


class Server(nn.Module):
    """A model whose first tensor is served."""

    def __init__(self, model: nn.Module, name: str) -> None:
        super().__init__()
        self.model = model
        self.name = name

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The first result."""
        return self.run(x)

    def run(self, x: torch.Tensor) -> torch.Tensor:
        """The method that is cached."""
        if self.name == "mlp":
            return self.model(x)
        if self.name == "bert":
            return self.model(x).last_hidden_state
        return self.model(input_ids=x, use_cache=False).logits


def build(name: str) -> tuple[Server, torch.Tensor]:
    """A model with random weights, and its argument."""
    torch.manual_seed(0)
    if name == "mlp":
        layers = [part for _ in range(24) for part in (nn.Linear(256, 256), nn.ReLU())]
        return Server(nn.Sequential(*layers).eval(), name), torch.randn(8, 256)
    tokens = torch.randint(0, 30_000, (1, 8))
    if name == "bert":
        from transformers import BertConfig, BertModel

        return Server(BertModel(BertConfig()).eval(), name), tokens
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
        num_attention_heads=9, num_key_value_heads=3, tie_word_embeddings=True,
    )  # fmt: skip
    return Server(LlamaForCausalLM(config).eval(), name), tokens


def kernelmill(server: Server, x: torch.Tensor, folder: Path, prepare: bool) -> Wrap:
    return _cached(server, x, folder, False)


def kernelmill_mapped(server: Server, x: torch.Tensor, folder: Path, prepare: bool) -> Wrap:
    return _cached(server, x, folder, True)


def _cached(server: Server, x: torch.Tensor, folder: Path, mapped: bool) -> Wrap:
    os.environ["KERNELMILL_KERNEL_META"] = str(folder / "kernel_meta")
    from kernelmill.inference import cache_compile

    _time_packing()

    def wrap() -> Call:
        cached = cache_compile(
            server.run, dynamic=False, cache_dir=str(folder / "cache"), mmap_packed_weights=mapped
        )
        return lambda: cached(x)

    return wrap


def kernelmill_file(server: Server, x: torch.Tensor, folder: Path, prepare: bool) -> Wrap:
    os.environ["KERNELMILL_KERNEL_META"] = str(folder / "kernel_meta")
    from kernelmill import aot

    path = folder / "model.kmill"
    if prepare:
        with torch.no_grad():
            aot.compile(server, (x,), path=path, mmap_packed_weights=True)
    load = aot.load  # what imports the runtime
    _time_packing()

    def wrap() -> Call:
        loaded: list[Call] = []

        def call() -> Any:
            if not loaded:
                loaded.append(load(path, check_weights=False))
            return loaded[0](x)

        return call

    return wrap


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


def _compiled(server: Server, x: torch.Tensor) -> Wrap:
    def wrap() -> Call:
        compiled = torch.compile(server, dynamic=False)
        return lambda: compiled(x)

    return wrap


def inductor(server: Server, x: torch.Tensor, folder: Path, prepare: bool) -> Wrap:
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")
    import_module("torch._inductor.compile_fx")
    return _compiled(server, x)


def artifacts(server: Server, x: torch.Tensor, folder: Path, prepare: bool) -> Wrap:
    unpacked = tempfile.mkdtemp(dir=folder)
    atexit.register(shutil.rmtree, unpacked, ignore_errors=True)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = unpacked
    import_module("torch._inductor.compile_fx")
    kept = folder / "artifacts.bin"
    if prepare:
        with torch.no_grad():
            torch.compile(server, dynamic=False)(x)
        found = torch.compiler.save_cache_artifacts()
        assert found is not None
        kept.write_bytes(found[0])

    def wrap() -> Call:
        torch.compiler.load_cache_artifacts(kept.read_bytes())
        compiled = torch.compile(server, dynamic=False)
        return lambda: compiled(x)

    return wrap


def aot_inductor(server: Server, x: torch.Tensor, folder: Path, prepare: bool) -> Wrap:
    import torch._inductor.package

    path = str(folder / "model.pt2")
    if prepare:
        with torch.no_grad():
            program = torch.export.export(server, (x,), strict=False)
            torch._inductor.aoti_compile_and_package(program, package_path=path)

    def wrap() -> Call:
        loaded: list[Any] = []

        def call() -> Any:
            if not loaded:
                loaded.append(torch._inductor.aoti_load_package(path))
            return loaded[0](x)

        return call

    return wrap


def _exported(server: Server, x: torch.Tensor, folder: Path) -> str:
    path = str(folder / "model.onnx")
    if not os.path.exists(path):
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        with redirect_stdout(io.StringIO()), torch.no_grad():
            program = torch.onnx.export(server, (x,), dynamo=True, optimize=True, verbose=False)
        assert program is not None
        program.save(path, external_data=True)
    return path


def onnx_runtime(server: Server, x: torch.Tensor, folder: Path, prepare: bool) -> Wrap:
    import onnxruntime

    path = _exported(server, x, folder)
    optimized = str(folder / "optimized.onnx")
    if prepare:
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = optimized
        onnxruntime.InferenceSession(path, options)

    def wrap() -> Call:
        sessions: list[Any] = []

        def call() -> Any:
            if not sessions:
                options = onnxruntime.SessionOptions()
                options.intra_op_num_threads = torch.get_num_threads()
                options.graph_optimization_level = (
                    onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
                )
                sessions.append(onnxruntime.InferenceSession(optimized, options))
            session = sessions[0]
            feeds = {session.get_inputs()[0].name: x.numpy()}
            return torch.from_numpy(session.run(None, feeds)[0])

        return call

    return wrap


def open_vino(server: Server, x: torch.Tensor, folder: Path, prepare: bool) -> Wrap:
    import openvino

    path = _exported(server, x, folder)

    def wrap() -> Call:
        compiled: list[Any] = []

        def call() -> Any:
            if not compiled:
                options = {
                    "CACHE_DIR": str(folder / "openvino"),
                    "PERFORMANCE_HINT": "LATENCY",
                    "INFERENCE_PRECISION_HINT": "f32",
                }
                compiled.append(openvino.Core().compile_model(path, "CPU", options))
            return torch.from_numpy(compiled[0]([x.numpy()])[0])

        return call

    return wrap


CONTESTANTS: dict[str, Callable[[Server, torch.Tensor, Path, bool], Wrap]] = {
    "kernelmill": kernelmill,
    "kernelmill, mapped weights": kernelmill_mapped,
    "kernelmill, aot file": kernelmill_file,
    "Inductor, full caches": inductor,
    "Inductor, artifacts": artifacts,
    "AOTInductor": aot_inductor,
    "ONNX Runtime": onnx_runtime,
    "OpenVINO": open_vino,
}


def main(model: str, contestant: str, folder: str, what: str) -> None:
    """One measurement."""
    server, x = build(model)
    clock = time.perf_counter
    started = clock()
    wrap = CONTESTANTS[contestant](server, x, Path(folder), what == "prepare")
    imported = clock()
    call = wrap()
    wrapped = clock()
    with torch.no_grad():
        result = call()
        done = clock()
        packing = sum(_packing)
        begun = clock()
        call()
        second = clock() - begun
        for rest in _rests:
            rest()
        call()
        later: list[float] = []
        for _ in range(LATER_CALLS):
            begun = clock()
            call()
            later.append(clock() - begun)
        torch.testing.assert_close(result, server(x), atol=5e-3, rtol=5e-3)
    found = {
        "imports": imported - started,
        "wrap": wrapped - imported,
        "first": done - wrapped,
        "second": second,
        "call": statistics.median(later),
        "packing": packing,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
