"""int8 of networks for images, beside ONNX Runtime and OpenVINO.

A row is named by network, images a call and threads: resnet50-1-2.

Networks are torchvision's for images of 224 by 224. Weights are random, but as training would leave
them in what rounding depends on: batch norms have the mean and the variance of what they see, and
branches beside a residual add little. Results of two random images differ by 23 % (ResNet-50) and
34 %. Each runtime quantises for the ranges of the same 8 images: ONNX Runtime with its own tool,
whose file OpenVINO reads too. The contestants of a row take turns; the figure is the median of
eager's time over theirs. In brackets is the relative error of the results of int8 against eager's
(root mean square), for images that are no examples.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

import kernelmill
from kernelmill.inference import finish_packing
from tests import zoo
from tools.bench import contestants
from tools.bench.contestants import kept, onnx_file
from tools.bench.harness import Call, Page, Rows, Table, beside_eager, duration, in_turns
from tools.bench.measure import ready
from tools.bench.peers import quantise_onnx
from tools.bench.subject import Subject, poison, refill

NETWORKS = {"resnet50": "ResNet-50", "mobilenet_v2": "MobileNetV2"}
SIZE, EXAMPLES = 224, 8
TURN_SECONDS = 0.1
WRONG, WRONG_INT8 = 1e-4, 0.2
"""Contestants with larger errors are out of the race: results of other images are nearly as far."""

_SEED = 7
_GAIN = 0.2
"""Of the last batch norm of a branch. With 1, the default, differences grow from block to block:
rounding costs 17 % and more."""


def network(name: str) -> nn.Module:
    """Return one of torchvision's, with random weights."""
    from tools.libraries.cuda_builds import make_importable
    from tools.libraries.row import library

    make_importable()
    torch.manual_seed(_SEED)
    model = library("torchvision").models.get_model(name, weights=None)
    for block in model.modules():
        if hasattr(block, "bn3"):
            nn.init.constant_(block.bn3.weight, _GAIN)
        elif getattr(block, "use_res_connect", False):
            nn.init.constant_(block.conv[-1].weight, _GAIN)
    return model


def subject_of(
    name: str, model: nn.Module, batch: int, size: int = SIZE
) -> tuple[Subject, list[Tensor]]:
    """Return a network on random images, and examples: batches of others. Its batch norms get the
    mean and the variance of what they see."""
    torch.manual_seed(_SEED)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None  # the mean of all batches
    model.train()
    for _ in range(2):
        model(torch.randn(EXAMPLES, 3, size, size))
    examples = torch.randn(EXAMPLES, 3, size, size)
    case = zoo.Case(name, model.eval(), (torch.randn(batch, 3, size, size),))
    return Subject(case, wrong=WRONG), list(examples.split(batch))


def contestants_of(examples: list[Tensor]) -> dict[str, Callable[[Subject], Call]]:
    """Return them by name, those of int8 with these examples."""

    def ours(subject: Subject, quantize: str | None) -> Call:
        compiled = kernelmill.compile(
            subject.case.model, quantize=quantize, cache_dir=tempfile.mkdtemp(),
            examples=[(each,) for each in examples] if quantize else None,
        )  # fmt: skip
        compiled(*subject.args)
        finish_packing()
        return lambda: compiled(*subject.args)

    def quantised(subject: Subject) -> Subject:
        def make(folder: Path) -> None:
            quantise_onnx(onnx_file(subject), examples, folder / "int8.onnx")

        file = kept(subject, "onnx-int8", make) / "int8.onnx"
        case = zoo.Case(f"{subject.name}-int8", subject.case.model, subject.args)
        return Subject(case, onnx=file.read_bytes)

    return {
        "eager": contestants.eager,
        "ONNX Runtime": contestants.onnx_runtime,
        "OpenVINO": contestants.open_vino,
        "kernelmill": lambda subject: ours(subject, None),
        "ONNX Runtime int8": lambda subject: contestants.onnx_runtime(quantised(subject)),
        "OpenVINO int8": lambda subject: contestants.open_vino(quantised(subject)),
        "kernelmill int8": lambda subject: ours(subject, "int8"),
    }


def errors(subject: Subject, calls: Mapping[str, Call]) -> dict[str, float]:
    """Return each one's relative error against eager, for images that none has seen before, in
    memory that holds no result."""
    refill(subject.args)
    wanted = calls["eager"]().clone()
    found: dict[str, float] = {}
    for name, call in calls.items():
        poison(call())
        found[name] = float((call() - wanted).norm() / wanted.norm())
    return found


def row(title: str, subject: Subject, examples: list[Tensor], threads: int) -> Rows:
    """Measure eager's time, and for each other the ratio, and of int8 the error."""
    refused: dict[str, str] = {}
    known, before = contestants_of(examples), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        calls = ready(subject, known, refused)
        lost = errors(subject, calls)
        for name, error in lost.items():
            if not error <= (WRONG_INT8 if "int8" in name else subject.wrong):
                refused[name] = f"wrong result: {error}"
                del calls[name]
        found = in_turns(calls, seconds=TURN_SECONDS)
    finally:
        torch.set_num_threads(before)
    for name, reason in refused.items():
        print(f"{title}: {name}: {reason}")
    notes = {name: f" ({100 * error:.1f} %)" for name, error in lost.items() if "int8" in name}
    eager = duration(statistics.median(found["eager"]))
    yield title, *beside_eager(known, found, eager, notes)


def _row(name: str, batch: int, threads: int) -> Rows:
    title = f"{NETWORKS[name]}, {batch}, {threads}"
    return row(title, *subject_of(f"{name}-{batch}", network(name), batch), threads)


PAGE = Page("images", "docs/performance-images.md", "int8 of images", [
    Table("", ("network, images, threads", *contestants_of([])),
          {f"{name}-{batch}-{threads}": partial(_row, name, batch, threads)
           for name in NETWORKS for batch in (1, 8) for threads in (1, 2)}),
])  # fmt: skip
