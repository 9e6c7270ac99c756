"""`kernelmill compile`: a model as a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import kernelmill
from kernelmill.artifact.container import KMILL, read_artifact
from kernelmill.cli.main import main
from kernelmill.store.sealed import SealedFile

MODEL = """
import torch

torch.manual_seed(0)
linear = torch.nn.Linear(8, 4).eval()

def make():
    return linear, (torch.ones(2, 8),)

def branches():
    return lambda x: x if x.sum() > 0 else -x, (torch.ones(3),)
"""


@pytest.fixture(autouse=True)
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("linears.py").write_text(MODEL)


def made(path: str, rows: int) -> torch.Tensor:
    return kernelmill.aot.load(path)(torch.ones(rows, 8))


def test_it_writes_a_file_that_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "linears.py:make"]) == 0
    out = capsys.readouterr().out
    assert "Linear.kmill: " in out and out.endswith(" bytes\n")
    assert made("Linear.kmill", 2).shape == (2, 4)


def test_gears_target_and_options_are_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["compile", "linears.py:make", "-o", "m.kmill", "--gears", "input:0=1,3", "--json"]
    settings = ["--config", "check_weights=full", "--config", "float32_pieces=false"]
    assert main([*command, "--target", "x86-64-v2", *settings]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["gears"] == 2 and told["isa"] == "x86-64-v2" and told["kernels"] >= 1
    assert told["bytes"] == Path("m.kmill").stat().st_size and told["file"].endswith("/m.kmill")
    assert made("m.kmill", 1).shape == (1, 4) and made("m.kmill", 3).shape == (3, 4)
    options = read_artifact(SealedFile("m.kmill", KMILL)).manifest.options
    assert options["check_weights"] == "full" and options["float32_pieces"] is False
    assert main(["aot", "info", "m.kmill"]) == 0
    assert "gears (input[0]): (1,), (3,)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--gears", "inptu:0=1,3"], "the nearest is 'input'"),
        (["--gears", "input:0"], "write ARGUMENT:DIM=SIZES"),
        (["--gears", "input:0=1,x"], "write ARGUMENT:DIM=SIZES"),
        (["--gears", "input:0=1,3", "--gears", "input:0=1,4"], "has gears already"),
        (["--target", "x86-64-v9"], "config.target: 'x86-64-v9' is not one of"),
        (["--mode", "max-autotun"], "did you mean 'max-autotune'?"),
        (["--config", "mode"], "write NAME=VALUE"),
        (["--config", "inference_config.gear_mis=pad"], "there are: gear_miss"),
        (["--config", "infrence_config.gear_miss=pad"], "there are: inference_config"),
        (["--config", "float32_pieces=perhaps"], "'perhaps' is no bool"),
        (["-o", "no/such/m.kmill"], "there is no folder no/such"),
        (["--quantize", "int9"], "did you mean 'int8'"),
    ],
)
def test_what_cannot_be_done_is_said(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compile", "linears.py:make", *options]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not list(Path().glob("*.kmill"))


def test_code_that_cannot_be_traced_is_the_users(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "linears.py:branches"]) == 3
    err: Any = capsys.readouterr().err
    assert "the model cannot be traced" in err and 'linears.py", line 11' in err
