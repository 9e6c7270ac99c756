"""The contestants: each turns a model into a call that takes nothing and returns the result.

Each compiles for the arguments of the subject and makes the first call. A peer that is not
installed, or cannot take the model, raises; the report shows a dash and the reason. What a peer
has exported or built ahead of time is kept in a folder of its own, so that measuring again begins
soon (`kept`).
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tools.bench.harness import Call
from tools.bench.limits import HALVES
from tools.bench.peers import FirstResult, export_onnx, onnx_session, open_vino_request
from tools.bench.subject import Subject

KEPT = Path(tempfile.gettempdir()) / "kernelmill-bench-kept"
_SOURCES = [Path("tests/zoo.py"), *sorted(Path(__file__).parent.glob("*.py"))]


def kept(subject: Subject, kind: str, make: Callable[[Path], None]) -> Path:
    """The folder that `make` filled for this model, now or in an earlier run: its name has a digest
    of the model's parameters, the builders' sources and torch's version."""
    digest = hashlib.sha256(torch.__version__.encode())
    for source in _SOURCES:
        digest.update(source.read_bytes())
    for value in (*subject.case.model.state_dict().values(), *subject.args):
        digest.update(f"{value.dtype}{tuple(value.shape)}{value.double().sum().item()}".encode())
    folder = KEPT / f"{subject.name}-{digest.hexdigest()[:16]}-{kind}"
    if not folder.is_dir():
        KEPT.mkdir(exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=KEPT))
        try:
            make(scratch)
            os.replace(scratch, folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return folder


def _warm(call: Call) -> Call:
    call()
    return call


def eager(subject: Subject) -> Call:
    return _warm(lambda: subject.case.model(*subject.args))


def _compiled(subject: Subject, backend: Any = "inductor") -> Call:
    compiled = torch.compile(subject.case.model, backend=backend, dynamic=False)
    return _warm(lambda: compiled(*subject.args))


def kernelmill(subject: Subject) -> Call:
    from kernelmill.inference import finish_packing

    call = _compiled(subject, "kernelmill")
    finish_packing()
    return _warm(call)


def kernelmill_aot(subject: Subject) -> Call:
    """Ours compiled ahead of time: a file, loaded. Nothing of it is kept for later runs."""
    from kernelmill import aot

    with tempfile.TemporaryDirectory(prefix="kernelmill-bench-") as folder:
        path = Path(folder) / "model.kmill"
        model = FirstResult(subject.case.model)
        program = aot.load(aot.compile(model, subject.args, path=str(path)))
        return _warm(lambda: program(*subject.args))


def dynamo_alone(subject: Subject) -> Call:
    """No contestant but a floor: a backend whose program returns what is ready, at no cost. What is
    left is the price of calling anything through torch.compile."""

    def ready(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        kept = tuple(gm(*example_inputs))
        return lambda *args: kept

    return _compiled(subject, ready)


def inductor_tuned(subject: Subject) -> Call:
    """Inductor with max-autotune and frozen weights."""
    import torch._inductor.config as config

    with config.patch(max_autotune=True, freezing=True), redirect_stderr(io.StringIO()):
        return _compiled(subject)


def aot_inductor(subject: Subject) -> Call:
    """AOTInductor: exported, compiled to a shared library, loaded."""
    case = subject.case

    def make(folder: Path) -> None:
        program = torch.export.export(FirstResult(case.model), case.args, strict=False)
        torch._inductor.aoti_compile_and_package(program, package_path=str(folder / "model.pt2"))

    package = kept(subject, "aot-inductor", make) / "model.pt2"
    runner = torch._inductor.aoti_load_package(str(package))
    return _warm(lambda: runner(*case.args))


def _exported(subject: Subject) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Model and arguments as the exporters are to see them."""
    if subject.twin is None:
        return FirstResult(subject.case.model), subject.args
    args = tuple(a.float() if a.dtype == torch.bfloat16 else a for a in subject.args)
    return FirstResult(subject.twin), args


def _followed(sources: Sequence[Tensor], copies: Sequence[Tensor]) -> Callable[[], None]:
    """What brings the copies of changed type up to date, when their sources were written to."""
    pairs = [(s, c) for s, c in zip(sources, copies, strict=True) if s is not c]
    known = [source._version for source, _ in pairs]

    def follow() -> None:
        for number, (source, copy) in enumerate(pairs):
            if source._version != known[number]:
                copy.copy_(source)
                known[number] = source._version

    return follow


def onnx_file(subject: Subject) -> Path:
    """The model as ONNX has it."""

    def make(folder: Path) -> None:
        if subject.onnx is not None:
            (folder / "model.onnx").write_bytes(subject.onnx())
        else:
            export_onnx(folder / "model.onnx", *_exported(subject))

    return kept(subject, "onnx", make) / "model.onnx"


def onnx_runtime(subject: Subject) -> Call:
    if subject.kind == HALVES:
        raise NotImplementedError("no products of bfloat16 on CPUs")
    _, args = _exported(subject)
    session = onnx_session(onnx_file(subject))
    names = [entry.name for entry in session.get_inputs()]
    feeds = dict(zip(names, (arg.numpy() for arg in args), strict=True))
    return _warm(lambda: torch.from_numpy(session.run(None, feeds)[0]))


def open_vino(subject: Subject) -> Call:
    import openvino

    module, args = _exported(subject)

    def make(folder: Path) -> None:
        if subject.onnx is not None:
            model = openvino.convert_model(onnx_file(subject))
        else:
            model = openvino.convert_model(module, example_input=args)
        for entry, arg in zip(model.inputs, args, strict=True):
            entry.get_node().set_partial_shape(openvino.PartialShape(list(arg.shape)))
        model.validate_nodes_and_infer_types()
        openvino.save_model(model, folder / "model.xml", compress_to_fp16=False)

    path = kept(subject, "openvino", make) / "model.xml"
    request = open_vino_request(path, "bf16" if subject.kind == HALVES else "f32")
    feeds = [arg.numpy() for arg in args]
    follow = _followed(subject.args, args)

    def call() -> Tensor:
        follow()
        request.infer(feeds, share_inputs=True, share_outputs=True)
        return torch.from_numpy(request.get_output_tensor(0).data)

    return _warm(call)


FLOOR = "Dynamo alone"

CONTESTANTS: dict[str, Callable[[Subject], Call]] = {
    "eager": eager,
    "Inductor": _compiled,
    "kernelmill": kernelmill,
    "kernelmill aot": kernelmill_aot,
    "Inductor tuned": inductor_tuned,
    "AOTInductor": aot_inductor,
    "ONNX Runtime": onnx_runtime,
    "OpenVINO": open_vino,
    FLOOR: dynamo_alone,
}
"""By name, in the order of the report's columns. The last one computes nothing at its calls."""
