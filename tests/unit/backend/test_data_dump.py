"""`config.debug.data_dump`: files of what operators read and give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from kernelmill import CompilerConfig, get_backend


def dumped(tmp_path: Path, model, *args, wanted=None) -> tuple[torch.Tensor, list[Path]]:
    config = CompilerConfig()
    config.debug.data_dump.type = "npy"
    config.debug.data_dump.path = tmp_path
    config.debug.data_dump.filter = wanted
    torch._dynamo.reset()
    with torch.no_grad():
        result = torch.compile(model, backend=get_backend(compiler_config=config))(*args)
    return result, sorted(tmp_path.rglob("*.npy"))


def test_each_operator_has_its_inputs_and_outputs(tmp_path) -> None:
    x, weight = torch.randn(3, 4), torch.randn(4, 5)
    result, files = dumped(tmp_path, lambda x, w: torch.relu(x @ w), x, weight)
    assert torch.equal(result, torch.relu(x @ weight))
    names = [path.name.split("_", 1)[1] for path in files]
    assert names == ["mm.input0.npy", "mm.input1.npy", "mm.output0.npy",
                     "relu.input0.npy", "relu.output0.npy"]  # fmt: skip
    loaded = [np.load(path) for path in files]
    assert np.array_equal(loaded[0], x.numpy()) and np.array_equal(loaded[4], result.numpy())
    assert np.array_equal(loaded[2], (x @ weight).numpy())
    (listing,) = tmp_path.rglob("operators.txt")
    assert listing.parent.name == "call_0"
    assert [line.split()[2] for line in listing.read_text().splitlines()] == [
        "aten.mm.default", "aten.relu.default",
    ]  # fmt: skip


def test_inputs_are_those_before_an_operator_writes_to_them(tmp_path) -> None:
    x = torch.ones(3)
    _, files = dumped(tmp_path, lambda x: x.add_(1), x)
    assert torch.equal(x, torch.full((3,), 2.0))
    assert np.array_equal(np.load(files[0]), np.ones(3))


def test_the_filter_chooses_operators_and_bfloat16_is_written_as_float32(tmp_path) -> None:
    x = torch.randn(3).bfloat16()
    result, files = dumped(
        tmp_path, lambda x: torch.relu(x) * 2, x, wanted=lambda node: "mul" in node.name
    )
    assert len(files) == 2
    assert np.array_equal(np.load(files[1]), result.float().numpy())


def test_a_forked_child_writes_to_a_folder_of_its_own(tmp_path, monkeypatch) -> None:
    config = CompilerConfig()
    config.debug.data_dump.type = "npy"
    config.debug.data_dump.path = tmp_path
    torch._dynamo.reset()
    model = torch.compile(lambda x: x + 1, backend=get_backend(compiler_config=config))
    model(torch.ones(2))
    monkeypatch.setattr("kernelmill.backend.data_dump.os.getpid", lambda: 12345)
    model(torch.ones(2))
    folders = sorted(path.name for path in tmp_path.rglob("call_*"))
    assert folders == ["call_0", "call_1"]
    assert {path.parent.name.endswith("_pid_12345") for path in tmp_path.rglob("call_1")} == {True}


def test_dtypes_that_numpy_lacks(tmp_path) -> None:
    x = torch.tensor([0.5, 1.0, -2.0])
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        folder = tmp_path / str(dtype)
        folder.mkdir()
        _, files = dumped(folder, lambda x, dtype=dtype: x.to(dtype), x)
        assert np.array_equal(np.load(files[-1]), x.numpy())
