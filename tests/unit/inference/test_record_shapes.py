"""Calls of a model, written down as they happen."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter

from kernelmill.inference import record_shapes


@dataclass
class Batch:
    ids: Tensor


class Model(nn.Module):
    def forward(self, x: Tensor, batch: Any = None, *rest: Tensor, **more: Any) -> Tensor:
        return x.sum()


def recorded(path: Path) -> list[dict[str, list[int]]]:
    return [json.loads(line)["shapes"] for line in path.read_text().splitlines()]


def test_each_call_is_a_line_with_the_names_of_forward(tmp_path: Path) -> None:
    model, path = Model(), tmp_path / "log"
    with record_shapes(model, path):
        model(torch.ones(2, 3))
        model(batch=torch.ones(4), x=torch.ones(()))
    assert recorded(path) == [{"x": [2, 3]}, {"x": [], "batch": [4]}]


def test_tensors_inside_containers_are_named_as_python_reaches_them(tmp_path: Path) -> None:
    model, path = Model(), tmp_path / "log"
    x = torch.ones(1)
    batch = {"k": [x, (x, 7)], 3: Batch(torch.ones(5))}
    with record_shapes(model, path):
        model(x, batch, torch.ones(6), mask=torch.ones(7), flag=True)
    assert recorded(path) == [
        {
            "x": [1], 'batch["k"][0]': [1], 'batch["k"][1][0]': [1], "batch[3].ids": [5],
            "rest[0]": [6], 'more["mask"]': [7],
        }
    ]  # fmt: skip


def test_only_calls_inside_the_with_are_recorded_and_the_file_is_appended_to(
    tmp_path: Path,
) -> None:
    model, path = Model(), tmp_path / "log"
    model(torch.ones(1))
    for size in (2, 3):
        with record_shapes(model, path):
            model(torch.ones(size))
    model(torch.ones(4))
    assert recorded(path) == [{"x": [2]}, {"x": [3]}]


def test_recording_stops_when_the_body_raises(tmp_path: Path) -> None:
    model, path = Model(), tmp_path / "log"
    with pytest.raises(RuntimeError, match="stop"), record_shapes(model, path):
        raise RuntimeError("stop")
    model(torch.ones(4))
    assert recorded(path) == []


@pytest.mark.parametrize("inplace", [False, True])
def test_compiled_models_are_recorded_and_not_compiled_anew(tmp_path: Path, inplace: bool) -> None:
    path, counter = tmp_path / "log", CompileCounter()
    model: nn.Module = Model()
    if inplace:
        model.compile(backend=counter, fullgraph=True)
    else:
        model = torch.compile(model, backend=counter, fullgraph=True)  # type: ignore[assignment]
    with record_shapes(model, path):
        model(torch.ones(2, 3))
        model(torch.ones(2, 3))
    assert recorded(path) == [{"x": [2, 3]}] * 2
    assert counter.frame_count == 1


def test_a_file_that_cannot_be_written_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(OSError), record_shapes(Model(), tmp_path / "no" / "folder"):
        pass
