"""`kernelmill cache show` and `kernelmill aot info`."""

import json
import subprocess
import sys

import pytest
import torch
from torch import nn

import kernelmill
from kernelmill.cli.main import main
from kernelmill.inference import cache_compile


@pytest.fixture
def file(tmp_path):
    return kernelmill.aot.compile(nn.Linear(4, 4), (torch.ones(2, 4),), path=tmp_path / "a.kmill")


def test_a_compiled_file_is_shown(file, capsys):
    assert main(["aot", "info", file]) == 0
    text = capsys.readouterr().out
    assert "Linear(input)" in text and "weight: parameter float32[4, 4] at 0" in text
    assert "==== plan ====" not in text
    assert main(["aot", "info", file, "--all"]) == 0
    text = capsys.readouterr().out
    assert "==== plan ====\nplan " in text and "==== graph ====\ngraph " in text


def test_a_compiled_file_as_json_has_the_facts_of_the_text(file, capsys):
    assert main(["aot", "info", file, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["file"] == file and found["name"] == "Linear" and "plan" not in found
    assert found["tensors"][0] == {
        "name": "weight", "role": "parameter", "dtype": "float32", "shape": [4, 4], "offset": 0
    }  # fmt: skip
    assert main(["aot", "info", file, "--all", "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert whole["plan"].startswith("plan ") and whole["graph"].startswith("graph ")
    assert [k["name"] for k in whole["kernels"]] == [k["name"] for k in found["kernels"]]
    assert all(kernel["text"].startswith("kernel ") for kernel in whole["kernels"])


def test_showing_a_file_needs_no_torch(file):
    code = (
        f"import sys\nfrom kernelmill.cli.main import main\nmain(['aot', 'info', {file!r}])\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})


def test_damage_is_told(file, capsys):
    with open(file, "r+b") as opened:
        opened.seek(-4096, 2)
        opened.write(b"~~~~")
    assert main(["aot", "info", file]) == 2
    assert "the checksum of its weights does not match" in capsys.readouterr().err
    assert main(["aot", "info", f"{file}.nothing"]) == 2


class Model(nn.Module):
    def run(self, x):
        return x + 1.0


def test_a_compile_cache_is_shown(tmp_path, capsys):
    model = Model()
    with torch.no_grad():
        cache_compile(model.run, cache_dir=str(tmp_path))(torch.ones(2))
    assert main(["cache", "show", str(tmp_path)]) == 0
    assert "==== signature ====" in capsys.readouterr().out
    assert main(["cache", "show", str(tmp_path), "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert entry["name"].endswith("Model.run") and entry["file"].endswith(".kmill")
    assert entry["plan"].startswith("plan ")
    assert main(["cache", "show", str(tmp_path / "nothing")]) == 2
