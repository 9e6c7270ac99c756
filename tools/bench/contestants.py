"""The contestants: each turns a model into a call that takes nothing and returns the result.

Each compiles for the arguments of the case and makes the first call. A peer that is not installed,
or cannot take the model, raises; the report shows a dash and the reason.
"""

from __future__ import annotations

import io
import logging
import tempfile
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tests.zoo import Case

Call = Callable[[], Any]


class FirstResult(nn.Module):
    """A model that returns its first tensor alone, for exporters that know no result classes."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *args: Tensor) -> Tensor:
        return first_tensor(self.model(*args))


def first_tensor(result: Any) -> Tensor:
    """The first tensor of a nested result: the hidden states, or the logits."""
    return result if isinstance(result, Tensor) else result[0]


def _warm(call: Call) -> Call:
    call()
    return call


def eager(case: Case) -> Call:
    return _warm(lambda: case.model(*case.args))


def _compiled(case: Case, backend: str) -> Call:
    compiled = torch.compile(case.model, backend=backend, dynamic=False)
    return _warm(lambda: compiled(*case.args))


def kernelmill(case: Case) -> Call:
    return _compiled(case, "kernelmill")


def inductor(case: Case) -> Call:
    return _compiled(case, "inductor")


def dynamo_alone(case: Case) -> Call:
    """No contestant but a floor: a backend whose program returns what is ready, at no cost. What is
    left is the price of calling anything through torch.compile."""

    def ready(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        kept = tuple(gm(*example_inputs))
        return lambda *args: kept

    compiled = torch.compile(case.model, backend=ready, dynamic=False)
    return _warm(lambda: compiled(*case.args))


def inductor_tuned(case: Case) -> Call:
    """Inductor with max-autotune and frozen weights."""
    import torch._inductor.config as config

    with config.patch(max_autotune=True, freezing=True), redirect_stderr(io.StringIO()):
        return _compiled(case, "inductor")


def aot_inductor(case: Case) -> Call:
    """AOTInductor: exported, compiled to a shared library, loaded."""
    program = torch.export.export(FirstResult(case.model), case.args, strict=False)
    folder = Path(tempfile.mkdtemp(prefix="aot-inductor-"))
    package = torch._inductor.aoti_compile_and_package(
        program, package_path=str(folder / "model.pt2")
    )
    runner = torch._inductor.aoti_load_package(package)
    return _warm(lambda: runner(*case.args))


def onnx_runtime(case: Case) -> Call:
    import onnxruntime

    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    program = torch.onnx.export(
        FirstResult(case.model), case.args, dynamo=True, optimize=True, verbose=False
    )
    assert program is not None
    buffer = io.BytesIO()
    program.save(buffer)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(buffer.getvalue(), options)
    names = [entry.name for entry in session.get_inputs()]
    feeds = dict(zip(names, (arg.numpy() for arg in case.args), strict=True))
    return _warm(lambda: torch.from_numpy(session.run(None, feeds)[0]))


def open_vino(case: Case) -> Call:
    import openvino

    model = openvino.convert_model(FirstResult(case.model), example_input=case.args)
    for entry, arg in zip(model.inputs, case.args, strict=True):
        entry.get_node().set_partial_shape(openvino.PartialShape(list(arg.shape)))
    model.validate_nodes_and_infer_types()
    compiled = openvino.compile_model(
        model,
        "CPU",
        {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
            "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        },
    )
    request = compiled.create_infer_request()
    feeds = [arg.numpy() for arg in case.args]

    def call() -> Tensor:
        request.infer(feeds, share_inputs=True, share_outputs=True)
        return torch.from_numpy(request.get_output_tensor(0).data)

    return _warm(call)


CONTESTANTS: dict[str, Callable[[Case], Call]] = {
    "eager": eager,
    "Inductor": inductor,
    "kernelmill": kernelmill,
    "Inductor tuned": inductor_tuned,
    "AOTInductor": aot_inductor,
    "ONNX Runtime": onnx_runtime,
    "OpenVINO": open_vino,
    "Dynamo alone": dynamo_alone,
}
"""By name, in the order of the report's columns. The last one computes nothing at its calls."""
