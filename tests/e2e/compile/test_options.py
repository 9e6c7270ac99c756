"""What `kernelmill.compile` is given besides the model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import kernelmill
from kernelmill import CompilerConfig, ConfigError, GearError, InputError
from kernelmill.core.errors import ConfigTypeError
from kernelmill.inference import finish_packing
from tests.kept_methods import COMPILED


def added(input_ids: Any, attention_mask: Any = None) -> Any:
    return input_ids * 2 if attention_mask is None else input_ids * attention_mask


@pytest.mark.parametrize("model", [3, "model.pt", [nn.ReLU()], torch.ones(2), nn.ReLU, object()])
def test_what_is_no_model_is_refused(model: Any) -> None:
    with pytest.raises(InputError, match=r"is a class|takes a torch\.nn\.Module"):
        kernelmill.compile(model)


@pytest.mark.parametrize(
    ("given", "kind", "says"),
    [
        ({"dynamic": "yes"}, ConfigTypeError, "dynamic: 'yes'"),
        ({"mode": "fastest"}, ConfigError, "fastest"),
        ({"config": {"mood": 1}}, ConfigError, "mood"),
        ({"config": 3}, ConfigTypeError, "int is no CompilerConfig"),
        ({"cache_dir": 3}, ConfigTypeError, "int names no folder"),
        ({"gears": {"input_id": {0: [2, 4]}}}, ConfigError, "the nearest is 'input_ids'"),
        ({"gears": {"input_ids": {0: [2]}}}, GearError, "1 gears"),
        ({"gears": {"input_ids": {0: [2, 4]}}, "dynamic": False}, ConfigError, "dynamic=False"),
        ({"gears": [2, 4]}, ConfigTypeError, "gears: list"),
        ({"mmap_packed_weights": 1}, ConfigTypeError, "mmap_packed_weights: 1 is no bool"),
    ],
)
def test_wrong_options_are_refused_at_once(given: Any, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        kernelmill.compile(added, **given)


def test_a_config_is_taken_as_it_is_now(tmp_path: Path) -> None:
    config = CompilerConfig()
    config.mode = "reduce-overhead"
    folders = {
        kernelmill.compile(added, cache_dir=tmp_path, **given).folder
        for given in list[dict[str, Any]](
            (
                {"config": config},
                {"config": {"mode": "reduce-overhead"}},
                {"mode": "reduce-overhead"},  # torch.compile's, which is no mode of ours
                {},
                {"dynamic": True},
                {"gears": {"input_ids": {0: [2, 4]}}},
            )
        )
    }
    assert len(folders) == 4 and all(folder.startswith(str(tmp_path)) for folder in folders)
    assert config == config and kernelmill.compile(added, cache_dir=tmp_path).folder in folders


@COMPILED
def test_gears_are_by_argument(tmp_path: Path) -> None:
    gears = {"input_ids": {0: [1, 4], 1: [32, 64]}}
    compiled = kernelmill.compile(added, gears=gears, cache_dir=tmp_path)
    tensors = [torch.randn(shape) for shape in ((4, 64), (1, 32), (4, 64))]
    for x in tensors:
        torch.testing.assert_close(compiled(x), x * 2)
    with pytest.raises(GearError, match="input_ids"):
        compiled(torch.randn(3, 32))
    report = compiled.report()
    assert [each.sizes for each in report.programs] == ["gears"] and not report.torch
    assert report.programs[0].arguments == ("1 x 32", "4 x 64")
    assert not any(map(vars, tensors))
    later = kernelmill.compile(added, gears=gears, cache_dir=tmp_path)
    later(tensors[1])
    assert later.report().statistics["loaded"] == 1


@COMPILED
def test_gears_of_what_is_passed_by_name_and_in_training(tmp_path: Path) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, **given: Any) -> Any:
            return self.linear(given["x"])

    model = Model()
    compiled = kernelmill.compile(model, gears={"x": {0: [2, 4]}}, cache_dir=tmp_path)
    for rows in (2, 4):
        x = torch.randn(rows, 8)
        compiled(x=x).sum().backward()
        with torch.no_grad():
            torch.testing.assert_close(compiled(x=x), model(x=x))
    with pytest.raises(GearError), torch.no_grad():
        compiled(x=torch.randn(3, 8))


@COMPILED
@pytest.mark.skipif(os.geteuid() == 0, reason="root can write everywhere")
def test_a_folder_that_cannot_be_written_is_done_without(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tmp_path.chmod(0o500)
    compiled = kernelmill.compile(added, cache_dir=tmp_path)
    for rows in (2, 3, 4):
        assert compiled(torch.ones(rows)).tolist() == [2.0] * rows
    tmp_path.chmod(0o700)
    assert compiled.report().statistics == {"loaded": 0, "traced": 2, "uncached": 0}
    assert sum("cannot be written" in each.getMessage() for each in caplog.records) == 1


@COMPILED
def test_a_folder_that_is_a_file_is_done_without(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    compiled = kernelmill.compile(added, cache_dir=tmp_path / "file")
    for rows in (2, 3, 4):
        assert compiled(torch.ones(rows)).tolist() == [2.0] * rows
    assert compiled.report().statistics == {"loaded": 0, "traced": 2, "uncached": 0}
    assert sum("cannot be written" in each.getMessage() for each in caplog.records) == 1


def test_uncompile_gives_others_as_they_are() -> None:
    model = nn.ReLU()
    assert kernelmill.uncompile(model) is model and kernelmill.uncompile(added) is added
    assert kernelmill.uncompile(torch.compile(model, backend="eager")) is model
    assert kernelmill.uncompile(kernelmill.compile(kernelmill.compile(model))) is model


def test_packed_weights_are_mapped_where_that_is_asked_for(tmp_path: Path) -> None:
    model, x = nn.Linear(64, 64).eval().requires_grad_(False), torch.randn(8, 64)
    for mapped in (False, True):
        compiled = kernelmill.compile(model, cache_dir=tmp_path, mmap_packed_weights=mapped)
        torch.testing.assert_close(compiled(x), model(x))
        finish_packing()
        torch.testing.assert_close(compiled(x), model(x))
        assert compiled.report().counters["packed_bytes"] > 0
        assert bool([*tmp_path.glob("*/packed/*")]) is mapped
