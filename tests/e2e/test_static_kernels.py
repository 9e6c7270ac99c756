"""Static kernels from the option to the installed package, each step in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kernelmill
from tests.fresh import FreshProcesses

SCRIPT = """
import json, sys, torch, kernelmill
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 24), nn.Tanh(), nn.LayerNorm(24)).eval()
x = torch.randn(5, 16)
config = kernelmill.CompilerConfig()
config.mode = "reduce-overhead"
if len(sys.argv) > 1:
    config.experimental_config.aclgraph._aclnn_static_shape_kernel = True
if len(sys.argv) > 2:
    config.experimental_config.aclgraph._aclnn_static_shape_kernel_build_dir = sys.argv[2]
with torch.no_grad():
    state = torch.random.get_rng_state()
    found = kernelmill.explain(model, x, compiler_config=config).as_dict()
    assert torch.equal(state, torch.random.get_rng_state())
    compiled = torch.compile(model, backend=kernelmill.get_backend(compiler_config=config))
    torch.testing.assert_close(compiled(x), model(x))
print(json.dumps({name: found[name] for name in ("kernels", "compiled")}))
"""


def run(
    fresh: FreshProcesses, tmp_path: Path, *arguments: str, meta: str = "meta"
) -> dict[str, Any]:
    """What explain says in a process whose script, store and packages are in `tmp_path`."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {
        **os.environ,
        "KERNELMILL_KERNEL_META": str(tmp_path / meta),
        "KERNELMILL_STATIC_KERNELS": str(tmp_path / "packages"),
    }
    output = fresh.output(script, *arguments, cwd=os.getcwd(), env=environment)
    return json.loads(output.splitlines()[-1])


def kinds(found: dict[str, Any]) -> set[str]:
    """Of the operators' kernels. What packs their weights is one kernel for all sizes."""
    return {kernel["kind"] for kernel in found["kernels"] if kernel["type"] != "Panels"}


@pytest.fixture(scope="module")
def built(
    fresh: FreshProcesses, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path, dict[str, Any]]:
    """(outputs of one run, the folder all is in, what explain said)."""
    tmp_path = tmp_path_factory.mktemp("static")
    (tmp_path / "build").mkdir()
    found = run(fresh, tmp_path, "static", str(tmp_path / "build"))
    runs = list((tmp_path / "build" / "aclnn_static_shape_kernel_outputs").iterdir())
    assert len(runs) == 2  # explain compiles, and so does the call after it
    return min(runs), tmp_path, found


def test_the_captured_graph_uses_static_kernels(built: tuple[Path, Path, dict[str, Any]]) -> None:
    outputs, _, found = built
    (folder,) = outputs.glob("*_opcompile")
    choices = [json.loads(path.read_text())["kernel"] for path in folder.iterdir()]
    assert set(choices) <= {"static", "dynamic"}
    assert ("static (this run)" in kinds(found)) == ("static" in choices)
    assert ("dynamic" in kinds(found)) == ("dynamic" in choices)


def test_the_outputs_are_those_of_the_documents(
    built: tuple[Path, Path, dict[str, Any]],
) -> None:
    outputs, _, _ = built
    pid = outputs.name.split("_")[-2]
    assert outputs.name.endswith("_outputs")
    folders = sorted(path.name for path in outputs.iterdir() if path.is_dir())
    assert folders == [pid, f"{pid}_debug", f"{pid}_opcompile"]
    (package,) = outputs.glob("static_kernel_*.run")
    assert os.access(package, os.X_OK)
    (path,) = (outputs / pid).glob("MatMul_float_ND_5_16_0.json")
    document = json.loads(path.read_text())
    assert document["inputs"][0] == {
        "shape": [5, 16], "dtype": "float", "format": "ND", "strides": [16, 1]
    }  # fmt: skip
    meant = {path.name for path in (outputs / pid).iterdir()}
    assert meant <= {path.name for path in (outputs / f"{pid}_debug").iterdir()}


def test_installed_elsewhere_it_needs_no_store_and_no_compiler(
    built: tuple[Path, Path, dict[str, Any]], fresh: FreshProcesses, tmp_path: Path
) -> None:
    outputs, _, before = built
    (package,) = outputs.glob("*.run")
    moved = tmp_path / "moved.run"
    moved.write_bytes(package.read_bytes())
    command = [sys.executable, str(moved), "--install", "--path", str(tmp_path / "packages")]
    subprocess.run(command, check=True, capture_output=True)
    found = run(fresh, tmp_path, meta="empty")
    assert found["compiled"] == 0
    assert not (tmp_path / "empty").exists()
    assert {kernel["name"] for kernel in found["kernels"]} == {
        kernel["name"] for kernel in before["kernels"]
    }
    static = {kind for kind in kinds(found) if kind.startswith("static")}
    assert static <= {f"static (package {package.stem})"}
    assert all(kernel["source"] == f"package {package.stem}" for kernel in found["kernels"])
    command[2] = "--uninstall"
    subprocess.run(command, check=True, capture_output=True)
    assert kinds(run(fresh, tmp_path, meta="empty")) == {"dynamic"}


def test_the_choice_is_made_once(
    built: tuple[Path, Path, dict[str, Any]], fresh: FreshProcesses
) -> None:
    _, tmp_path, before = built
    again = run(fresh, tmp_path, "static", str(tmp_path / "build"))
    assert again["compiled"] == 0
    assert [k["name"] for k in again["kernels"]] == [k["name"] for k in before["kernels"]]


def test_without_a_folder_the_outputs_are_beside_the_script(
    fresh: FreshProcesses, tmp_path: Path
) -> None:
    run(fresh, tmp_path, "static")
    assert (tmp_path / "aclnn_static_shape_kernel_outputs").is_dir()


def test_a_folder_that_is_not_there_or_not_writable_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    config = kernelmill.CompilerConfig()
    config.mode = "reduce-overhead"
    group = config.experimental_config.aclgraph
    with pytest.raises(FileNotFoundError, match="_aclnn_static_shape_kernel_build_dir"):
        group._aclnn_static_shape_kernel_build_dir = str(tmp_path / "none")
    group._aclnn_static_shape_kernel = True
    group._aclnn_static_shape_kernel_build_dir = str(tmp_path)
    monkeypatch.setattr("os.access", lambda path, mode: False)
    compiled = torch.compile(torch.exp, backend=kernelmill.get_backend(compiler_config=config))
    with pytest.raises(Exception, match="read and written"):
        compiled(torch.randn(3))


def test_in_another_mode_the_option_is_a_warning() -> None:
    config = kernelmill.CompilerConfig()
    config.experimental_config.aclgraph._aclnn_static_shape_kernel = True
    with pytest.warns(UserWarning, match="belongs to mode 'reduce-overhead'"):
        kernelmill.get_backend(compiler_config=config)
