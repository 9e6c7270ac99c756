"""Files of `kernelmill.aot` for processors of another family."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import kernelmill
from kernelmill.artifact.container import KMILL, read_artifact
from kernelmill.core.errors import UnsupportedError
from kernelmill.store.sealed import SealedFile
from tests.other_processors import ELF_MACHINES, OTHER, machine_of


def test_all_code_is_for_the_target_and_the_graph_for_everybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELMILL_KERNEL_META", str(tmp_path / "kernels"))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 33), nn.GELU(), nn.Linear(33, 5), nn.Softmax(-1)).eval()
    x = torch.randn(7, 20)
    path = kernelmill.aot.compile(model, (x,), path=tmp_path / "other.kmill", target=OTHER)
    file = read_artifact(SealedFile(path, KMILL))
    objects = {name: machine_of(image) for name, image in file.objects.items()}
    # Among them the one that calls kernels, which is not compiled from a kernel's text.
    assert any(name.startswith("executor ") for name in objects) and len(objects) >= 3
    assert set(objects.values()) == {ELF_MACHINES[OTHER]}
    with pytest.raises(UnsupportedError, match=f"its instruction set is {OTHER}, and this machine"):
        kernelmill.aot.load(path, rebuild=False)
    program = kernelmill.aot.load(path)
    with torch.no_grad():
        torch.testing.assert_close(program(x), model(x))
