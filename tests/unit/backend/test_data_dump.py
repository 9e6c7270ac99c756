"""`config.debug.data_dump` and `config.dump_config`: files of what operators read and give."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kernelmill import CompilerConfig, get_backend
from kernelmill.core.errors import ConfigError


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


def test_the_folder_is_made(tmp_path: Path) -> None:
    _, files = dumped(tmp_path / "none" / "yet", torch.relu, torch.ones(2))
    assert len(files) == 2


def test_a_folder_that_is_a_file_is_an_error_of_the_call(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        dumped(tmp_path / "file", torch.relu, torch.ones(2))


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


def chosen(tmp_path: Path, model: Any, calls: int = 1, **options: Any) -> dict[str, list[Path]]:
    """The files of each call, by its folder's name."""
    config = CompilerConfig()
    config.dump_config.enable_dump = True
    config.dump_config.dump_path = str(tmp_path)
    for name, value in options.items():
        setattr(config.dump_config, name, value)
    config.post_grad_custom_pre_pass = _negate_relu
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=get_backend(compiler_config=config))
    with torch.no_grad():
        for number in range(calls):
            compiled(torch.tensor([1.0, -2.0, float("nan")]) * number)
    found: dict[str, list[Path]] = {}
    for path in sorted(tmp_path.rglob("*.*")):
        found.setdefault(path.parent.name, []).append(path)
    return found


def _negate_relu(graph: torch.fx.Graph) -> None:
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default):
        node.target = torch.ops.aten.neg.default


def test_the_step_chooses_calls(tmp_path: Path) -> None:
    found = chosen(tmp_path, torch.relu, calls=7, dump_step="1|3-4|6")
    assert [*found] == ["call_1", "call_3", "call_4", "call_6"]
    assert np.array_equal(np.load(found["call_3"][0]), [3, -6, np.nan], equal_nan=True)


def test_statistics_are_lines_of_a_table(tmp_path: Path) -> None:
    ((_, files),) = chosen(tmp_path, lambda x: (x + 4).sum() > 0, dump_data="stats").items()
    assert [path.name for path in files] == ["operators.txt", "statistics.csv"]
    with files[1].open() as file:
        rows = list(csv.DictReader(file))
    assert [row["tensor"] for row in rows] == [
        "0000_add.input0", "0000_add.output0", "0001_sum_1.input0", "0001_sum_1.output0",
        "0002_gt.input0", "0002_gt.output0",
    ]  # fmt: skip
    keys = ["min", "max", "mean", "l2_norm", "nan", "inf"]
    assert [rows[1][key] for key in keys] == ["4.0", "4.0", "4.0", str(32**0.5), "1", "0"]
    assert [rows[3][key] for key in keys] == ["", "", "", "", "1", "0"]
    assert (rows[1]["operator"], rows[1]["dtype"], rows[1]["shape"]) == (
        "aten.add.Tensor", "float32", "3",
    )  # fmt: skip
    assert (rows[5]["dtype"], rows[5]["max"]) == ("bool", "0.0")


@pytest.mark.parametrize(("stage", "operator"), [("original", "relu"), ("optimized", "neg")])
def test_the_stage_is_before_or_behind_custom_passes(
    tmp_path: Path, stage: str, operator: str
) -> None:
    found = chosen(tmp_path, torch.relu, data_dump_stage=stage, dump_data="stats")
    listing, table = (path.read_text() for path in found["call_0"])
    assert f"aten.{operator}.default" in listing and f"aten.{operator}.default" in table


def test_a_stage_of_no_dump_leaves_the_passes(tmp_path: Path) -> None:
    config = CompilerConfig()
    config.dump_config.data_dump_stage = "original"
    config.post_grad_custom_pre_pass = _negate_relu
    torch._dynamo.reset()
    compiled = torch.compile(torch.relu, backend=get_backend(compiler_config=config))
    assert compiled(torch.ones(2)).tolist() == [-1, -1]


def filed(tmp_path: Path, model: Any, dump: dict[str, Any], **options: Any) -> list[str]:
    """The files of a call with a dump_config_path, without their numbers."""
    path, out = tmp_path / "dump.json", tmp_path / "out"
    out.mkdir()
    path.write_text(json.dumps({"dump": {"dump_path": str(out), **dump}}))
    config = CompilerConfig()
    config.dump_config.dump_config_path = str(path)
    for name, value in options.items():
        setattr(config.dump_config, name, value)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=get_backend(compiler_config=config))
    with torch.no_grad():
        compiled(torch.tensor([1.0, 0.0]))
    return [path.name.split("_", 1)[1] for path in sorted(out.rglob("*.npy"))]


def test_a_file_has_the_options(tmp_path: Path) -> None:
    layers = [{"layer": ["add"]}, {"layer": ["Exp"], "watcher_nodes": []}]
    found = filed(tmp_path, lambda x: (x + 1).exp() * 2, {"dump_list": layers})
    assert found == ["add.output0.npy", "exp.output0.npy"]


def test_options_go_before_their_file(tmp_path: Path) -> None:
    found = filed(
        tmp_path, lambda x: (x + 1).exp(), {"dump_list": [{"layer": ["add"]}], "dump_step": "1"},
        dump_layer="exp", dump_mode="input", dump_step="0",
    )  # fmt: skip
    assert found == ["exp.input0.npy"]


def test_a_file_without_names_means_all_operators(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="model_name of .* has no effect: a backend compiles one"):
        found = filed(tmp_path, lambda x: (x + 1).exp(), {"dump_list": [{"model_name": "m"}]})
    assert found == ["add.output0.npy", "exp.output0.npy"]


def test_operators_that_overflow_alone(tmp_path: Path) -> None:
    dump = {"dump_debug": "on", "dump_mode": "all"}
    found = filed(tmp_path, lambda x: (x * 2).reciprocal().add_(1).clamp(max=3), dump)
    assert found == [
        "reciprocal.input0.npy", "reciprocal.output0.npy", "add.input0.npy", "add.output0.npy",
    ]  # fmt: skip
    inputs = {path.name: np.load(path) for path in tmp_path.rglob("*.input0.npy")}
    assert inputs["0002_add.input0.npy"].tolist() == [0.5, np.inf]


def test_watched_operators_are_written_again_behind_others(tmp_path: Path) -> None:
    dump = {
        "dump_scene": "watcher",
        "dump_list": [{"layer": ["exp", "add"], "watcher_nodes": ["mul"]}],
    }
    found = filed(tmp_path, lambda x: ((x * 3).exp() + 1).relu(), dump)
    assert found == ["mul.output0.npy", "exp.mul.output0.npy", "add.mul.output0.npy"]


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("{", ConfigError, "is no JSON of"),
        ('{"dump": 3}', ConfigError, "is no JSON of"),
        ('{"dump": {}}', ConfigError, "it has no dump_path"),
        ('{"dump": {"dump_path": "/no/such"}}', FileNotFoundError, "dump_path: no folder"),
        ('{"dump": {"dump_path": "/", "dump_mod": "all"}}', ValueError, "'dump_mod' is none of"),
        ('{"dump": {"dump_path": "/", "dump_mode": "none"}}', ValueError, "not one of 'input'"),
        ('{"dump": {"dump_path": "/", "dump_debug": 1}}', ValueError, "dump_debug is 1"),
        (
            '{"dump": {"dump_path": "/", "dump_list": [{"layer": "a"}]}}',
            ValueError,
            "no list of objects",
        ),
        ('{"dump": {"dump_path": "/", "dump_scene": "watcher"}}', ValueError, "needs watcher_no"),
        (
            '{"dump": {"dump_path": "/", "dump_debug": "on", "dump_op_switch": "on"}}',
            ValueError,
            "one can be on",
        ),
    ],
)
def test_a_wrong_file_is_an_error_where_it_is_named(
    tmp_path: Path, text: str, error: type[Exception], message: str
) -> None:
    dump, file = CompilerConfig().dump_config, tmp_path / "dump.json"
    file.write_text(text)
    with pytest.raises(error, match=message) as caught:
        dump.dump_config_path = str(file)
    assert isinstance(caught.value, ConfigError)


def test_what_has_no_effect_says_so(tmp_path: Path) -> None:
    dump, file = CompilerConfig().dump_config, tmp_path / "dump.json"
    file.write_text('{"dump": {"dump_path": "/", "dump_op_switch": "on"}}')
    with pytest.warns(UserWarning, match="dump_op_switch of .* has no effect: operators outside"):
        dump.dump_config_path = str(file)
    with pytest.warns(UserWarning, match="quant_dumpable has no effect here: the graph runs"):
        dump.quant_dumpable = True
