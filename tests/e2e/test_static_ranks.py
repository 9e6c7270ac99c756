"""Static kernels in the ranks of a job: shared, each with a folder of its own, and one killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.fresh import FreshProcesses

SCRIPT = """
import json, os, signal, sys, torch, kernelmill
import torch.distributed as distributed
from torch import nn
from kernelmill.compiler import choices, static_build

static_build.PATIENCE_SECONDS = float(os.environ["PATIENCE"])
rank = int(os.environ["RANK"])
folder = sys.argv[1]
os.environ["KERNELMILL_KERNEL_META"] = os.path.join(folder, sys.argv[2].format(rank=rank))
store = os.environ.get("STORE")
if store:
    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
else:
    distributed.init_process_group("gloo")
compiled_here = []
measured = choices.Choices._choose

def choose(self, operator):
    if sys.argv[3:] == ["killed"] and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    compiled_here.append(operator.type)
    return measured(self, operator)

choices.Choices._choose = choose
config = kernelmill.CompilerConfig()
config.mode = "reduce-overhead"
options = config.experimental_config.aclgraph
options._aclnn_static_shape_kernel = True
options._aclnn_static_shape_kernel_build_dir = folder
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Sigmoid(), nn.Linear(16, 4)).eval()
x = torch.randn(4 + rank, 8)
with torch.no_grad():
    from kernelmill.backend.entry import Backend
    made = []
    compiled = torch.compile(model, backend=Backend(config, on_compiled=made.append))
    result = compiled(x)
    torch.testing.assert_close(result, model(x))
kinds = sorted({kernel.kind for each in made for kernel in each.report.kernels})
text = json.dumps({"kinds": kinds, "chosen": compiled_here})
open(os.path.join(folder, f"rank{rank}.json"), "w").write(text)
if not sys.argv[3:]:
    distributed.destroy_process_group()
os._exit(0)
"""


def environment(folder: Path, patience: int) -> dict[str, str]:
    (folder / "script.py").write_text(SCRIPT)
    paths = os.pathsep.join(path for path in sys.path if path)
    packages = str(folder / "packages")
    return {
        **os.environ, "PATIENCE": str(patience), "PYTHONPATH": paths,
        "KERNELMILL_STATIC_KERNELS": packages, "OMP_NUM_THREADS": "1",
    }  # fmt: skip


def found(folder: Path, rank: int) -> dict[str, Any]:
    return json.loads((folder / f"rank{rank}.json").read_text())


def torchrun(folder: Path, meta: str) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    command += ["2", str(folder / "script.py"), str(folder), meta]
    done = subprocess.run(
        command, env=environment(folder, 120), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def ranks(
    fresh: FreshProcesses, folder: Path, meta: str, *more: str, patience: int = 120
) -> list[int]:
    """The exit codes of two processes that meet at a file, in place of a job of torchrun."""
    knobs = environment(folder, patience) | {
        "STORE": str(folder / f"store{len(list(folder.glob('store*')))}"),
        "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
    }  # fmt: skip
    started = [
        fresh.start(
            folder / "script.py", folder, meta, *more, cwd=folder, env={**knobs, "RANK": str(rank)}
        )
        for rank in range(2)
    ]
    return [process.result().returncode for process in started]


def test_the_work_is_shared_and_the_package_installed_once(tmp_path: Path) -> None:
    torchrun(tmp_path, "meta")
    chosen = [found(tmp_path, rank)["chosen"] for rank in range(2)]
    assert all(chosen)
    assert len(chosen[0]) + len(chosen[1]) == 10  # five operators at two shapes
    (package,) = tmp_path.rglob("static_kernel_*.run")
    (active,) = tmp_path.rglob("active.json")
    assert json.loads(active.read_text()) == {"packages": [package.stem]}
    for rank in range(2):
        kinds = set(found(tmp_path, rank)["kinds"])
        assert kinds <= {"dynamic", f"static (package {package.stem})"}


def test_processes_with_folders_of_their_own_share_the_package(
    fresh: FreshProcesses, tmp_path: Path
) -> None:
    assert ranks(fresh, tmp_path, "meta{rank}") == [0, 0]
    (package,) = tmp_path.rglob("static_kernel_*.run")
    kinds = {kind for rank in range(2) for kind in found(tmp_path, rank)["kinds"]}
    assert kinds <= {"dynamic", f"static (package {package.stem})"}


def test_when_one_is_killed_the_other_compiles_for_itself(
    fresh: FreshProcesses, tmp_path: Path
) -> None:
    assert ranks(fresh, tmp_path, "meta", "killed", patience=3) == [0, -9]
    assert len(found(tmp_path, 0)["chosen"]) >= 5
    assert set(found(tmp_path, 0)["kinds"]) <= {"dynamic", "static (this run)"}
    assert ranks(fresh, tmp_path, "meta") == [0, 0]  # on what the killed one left behind
    assert found(tmp_path, 1)["kinds"]
