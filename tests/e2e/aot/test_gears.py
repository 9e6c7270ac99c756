"""Files of `kernelmill.aot.compile` with a program for each gear."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from kernelmill import CompilerConfig, ConfigError, GearError, InputError, aot
from kernelmill.aot import exporting
from kernelmill.artifact.container import KMILL, read_artifact
from kernelmill.store.sealed import SealedFile


class Masked(nn.Module):
    """Softmax over a projection, masked; says how many rows there are."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, mask: torch.Tensor, scale: float = 1.0) -> dict[str, Any]:
        y = torch.softmax(self.linear(x) * mask[..., None], -1) * scale
        return {"y": y, "rows": x.shape[0]}


GEARS = {"x": {0: [1, 4], 1: [8, 16]}, "mask": {0: [1, 4], 1: [8, 16]}}


def arguments(rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(rows, columns, 8), torch.rand(rows, columns)


@pytest.fixture(scope="module")
def model() -> Masked:
    torch.manual_seed(0)
    return Masked().eval()


def compile(model: nn.Module, folder: Path, gears: Any, **options: Any) -> str:
    given = options.pop("args", arguments(1, 5))
    return aot.compile(model, given, path=folder / "model.kmill", gears=gears, **options)


def check(program: aot.AotProgram, model: Masked, rows: int, columns: int) -> None:
    given = arguments(rows, columns)
    with torch.no_grad():
        found, expected = program(*given), model(*given)
    torch.testing.assert_close(found["y"], expected["y"])
    assert found["rows"] == rows


def test_each_gear_is_a_program_and_other_sizes_are_refused(model: Masked, tmp_path: Path) -> None:
    path = compile(model, tmp_path, GEARS)
    program = aot.load(path)
    check(program, model, 1, 8)
    check(program, model, 4, 16)
    with pytest.raises(GearError, match=r"\(x\[0\]=1, x\[1\]=16\) is no combination of the gears"):
        program(*arguments(1, 16))
    with pytest.raises(InputError):
        program(arguments(1, 8)[0], arguments(4, 16)[1])
    assert program.report()["calls"] == 2
    artifact = read_artifact(SealedFile(path, KMILL))
    assert artifact.plans.count('plan "') == 2 and " symbols" not in artifact.plans


def test_other_sizes_may_have_a_program_for_all(model: Masked, tmp_path: Path) -> None:
    config = CompilerConfig()
    config.inference_config.gear_miss = "dynamic"
    program = aot.load(compile(model, tmp_path, GEARS, config=config))
    for sizes in ((1, 8), (4, 16), (3, 7), (2, 16)):
        check(program, model, *sizes)


def test_lists_combine_as_the_options_say(tmp_path: Path) -> None:
    config = CompilerConfig()
    config.inference_config.dynamic_gears_merge_policy = "product"
    gears = {"input": {0: [2, 3], 1: [4, 5]}}
    program = aot.load(
        compile(nn.Softmax(-1), tmp_path, gears, config=config, args=(torch.randn(2, 4),))
    )
    for rows in (2, 3):
        for columns in (4, 5):
            x = torch.randn(rows, columns)
            torch.testing.assert_close(program(x), x.softmax(-1))


def test_what_varies_inside_of_the_model_too(tmp_path: Path) -> None:
    def kept(x: torch.Tensor) -> torch.Tensor:
        return x[x > 0].cumsum(0)

    config = CompilerConfig()
    config.inference_config.gear_miss = "dynamic"
    gears = {"x": {0: [4, 9]}}
    given = (torch.randn(4),)
    program = aot.load(
        aot.compile(kept, given, path=tmp_path / "f.kmill", gears=gears, config=config)
    )
    for size in (4, 9, 6):
        x = torch.randn(size)
        torch.testing.assert_close(program(x), kept(x))


def test_the_order_of_dims_in_memory_stays(tmp_path: Path) -> None:
    model = nn.Conv2d(3, 4, 3).eval()
    x = torch.randn(1, 3, 8, 8).to(memory_format=torch.channels_last)
    program = aot.load(compile(model, tmp_path, {"input": {0: [2, 5]}}, args=(x,)))
    for rows in (2, 5):
        x = torch.randn(rows, 3, 8, 8).to(memory_format=torch.channels_last)
        with torch.no_grad():
            found, expected = program(x), model(x)
        torch.testing.assert_close(found, expected)
        assert found.stride() == expected.stride()


def test_another_machine_compiles_all_of_them(
    model: Masked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = compile(model, tmp_path, GEARS)
    artifact = read_artifact(SealedFile(path, KMILL))
    monkeypatch.setattr("kernelmill.aot.program.other_machine", lambda _: "it is another one")
    program = aot.load(path)
    check(program, model, 1, 8)
    check(program, model, 4, 16)
    assert exporting.retargeted(artifact).manifest.gears == artifact.manifest.gears


@pytest.mark.parametrize(
    ("gears", "message"),
    [
        ({}, "give a dict from arguments to dims"),
        ([2, 4], "give a dict from arguments to dims"),
        ({"maks": {0: [2, 4]}}, "'maks', which is not passed; the nearest is 'mask'"),
        ({"x": {3: [2, 4]}}, "the tensor has 3 dims"),
        ({"x": {0: [2]}}, "has 1 gears: give 2 to 100"),
        ({"x": {2: [8, 4]}}, r"\(x\[2\]=4\) does not fit the model: x\[2\] is 8"),
        ({"x": {0: [2, 4]}, "mask": {0: [2, 5]}}, r"mask\[0\]=5\) does not fit the model"),
    ],
)
def test_gears_that_there_cannot_be(
    model: Masked, tmp_path: Path, gears: Any, message: str
) -> None:
    with pytest.raises(GearError, match=message):
        compile(model, tmp_path, gears)


def test_a_number_has_no_gears(model: Masked, tmp_path: Path) -> None:
    with pytest.raises(GearError, match="argument 'scale' is float"):
        compile(model, tmp_path, {"scale": {0: [2, 4]}}, args=(*arguments(2, 4), 2.0))


def test_what_does_not_go_together(model: Masked, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="gears and dynamic_shapes"):
        compile(model, tmp_path, GEARS, dynamic_shapes={"x": None, "mask": None})
    with pytest.raises(ConfigError, match="mmap_packed_weights is for files of one program"):
        compile(model, tmp_path, GEARS, mmap_packed_weights=True)
    config = CompilerConfig()
    config.inference_config.gear_miss = "pad"
    with pytest.raises(ConfigError, match="gear_miss='pad' and gears of"):
        compile(model, tmp_path, GEARS, config=config)
    config = CompilerConfig()
    config.mode = "reduce-overhead"
    with pytest.raises(ConfigError, match="captures each set of sizes when it comes"):
        compile(model, tmp_path, GEARS, config=config)
    exported = torch.export.export(model, arguments(2, 4))
    with pytest.raises(InputError, match="gears are for a module or a function"):
        aot.compile(exported, path=tmp_path / "e.kmill", gears=GEARS)
