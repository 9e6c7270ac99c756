"""tools/bench/images: each contestant's results, and who is out of the race."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("transformers")  # tests.zoo has models of it

from tools.bench import contestants, images
from tools.bench.measure import ready
from tools.bench.subject import Subject

FLOATS = ("ONNX Runtime", "OpenVINO", "kernelmill")
PEERS = {"ONNX Runtime": "onnxruntime", "OpenVINO": "openvino"}


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contestants, "KEPT", tmp_path)
    monkeypatch.chdir(Path(__file__).parents[3])  # digests have the sources


def network() -> nn.Module:
    """Convolutions of three kinds, and a layer."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU6(),
        nn.Conv2d(16, 32, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6(),
        nn.Conv2d(32, 32, 3, 1, 1, groups=32, bias=False), nn.BatchNorm2d(32), nn.ReLU6(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 20),
    )  # fmt: skip


@torch.no_grad()
def test_batch_norms_are_those_of_a_network_that_has_learned() -> None:
    subject, _ = images.subject_of("small", network(), 8, 16)
    last = subject.case.model[:8](subject.args[0])  # what the last of them gives
    assert abs(last.mean()) < 0.1 and abs(last.std() - 1) < 0.1


@torch.no_grad()
@pytest.mark.parametrize("name", ["kernelmill", *PEERS])
def test_results_are_right_and_of_eight_bits(name: str) -> None:
    if name in PEERS:
        pytest.importorskip(PEERS[name])
    subject, examples = images.subject_of("small", network(), 1, 16)
    known, refused = images.contestants_of(examples), {}
    wanted = {each: known[each] for each in ("eager", name, f"{name} int8")}
    found = images.errors(subject, ready(subject, wanted, refused))
    assert not refused and found["eager"] == 0
    assert found[name] < 1e-5  # of float32
    assert 1e-3 < found[f"{name} int8"] < 0.05  # rounded, and no result of another image
    other = subject.case.model(torch.randn(1, 3, 16, 16))
    own = subject.case.model(*subject.args)
    assert (other - own).norm() > 0.1 * own.norm()


@torch.no_grad()
def test_wrong_results_are_out_of_the_race(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    threads: list[int] = []

    def scaled(by: float) -> Callable[[Subject], Callable[[], Tensor]]:
        def make(subject: Subject) -> Callable[[], Tensor]:
            threads.append(torch.get_num_threads())
            return lambda: subject.case.model(*subject.args) * by

        return make

    def absent(subject: Subject) -> Callable[[], Tensor]:
        raise ModuleNotFoundError("not here")

    def stale(subject: Subject) -> Callable[[], Tensor]:
        kept = subject.case.model(*subject.args)
        return lambda: kept

    made = {
        "eager": scaled(1), "right": scaled(1.00001), "wrong": scaled(1.01), "absent": absent,
        "right int8": scaled(1.01), "wrong int8": scaled(1.5), "no int8": scaled(torch.nan),
        "stale": stale,
    }  # fmt: skip
    seconds = {"eager": [3.0, 4.0, 9.0], "right": [1.0, 2.0, 3.0], "right int8": [2.0, 1.0, 1.0]}

    def in_turns(calls: dict[str, object], seconds_: float = 0.0, **_: float):
        return {name: seconds[name] for name in calls}

    monkeypatch.setattr(images, "contestants_of", lambda examples: made)
    monkeypatch.setattr(images, "in_turns", in_turns)
    before = torch.get_num_threads()
    found = list(images.row("small, 1, 1", *images.subject_of("small", network(), 1, 16), 1))
    assert found == [("small, 1, 1", "4 s", "3.00", "-", "-", "4.00 (1.0 %)", "-", "-", "-")]
    assert set(threads) == {1} and torch.get_num_threads() == before
    printed = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[1:3] for line in printed] == [
        ["absent", "ModuleNotFoundError"], *([name, "wrong result"] for name in
        ("wrong", "wrong int8", "no int8", "stale")),
    ]  # fmt: skip


def test_rows_say_what_they_measure() -> None:
    (table,) = images.PAGE.tables
    assert list(table.subjects)[:4] == [
        "resnet50-1-1", "resnet50-1-2", "resnet50-8-1", "resnet50-8-2",
    ]  # fmt: skip
    assert table.head[1:] == ("eager", *FLOATS, *(f"{name} int8" for name in FLOATS))


@torch.no_grad()
@pytest.mark.skipif(not find_spec("torchvision"), reason="torchvision is not installed")
@pytest.mark.parametrize("name, branches", [("mobilenet_v2", 10), ("resnet50", 16)])
def test_branches_of_networks_add_little(name: str, branches: int) -> None:
    gains = [
        float(norm.weight.mean())
        for norm in images.network(name).modules()
        if isinstance(norm, nn.BatchNorm2d)
    ]
    assert sum(gain < 1 for gain in gains) == branches
