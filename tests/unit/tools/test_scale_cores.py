"""The measurement on many cores: it stands alone, and counts cores, turns and time as it says."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from tests.repo.source import ROOT
from tools import scale_cores
from tools.scale_cores import (
    HALVES,
    Row,
    build,
    cores,
    document,
    jobs,
    limit_of,
    limited,
    lines_of,
    measure,
)

SOURCE = ROOT / "tools" / "scale_cores.py"


def test_it_needs_nothing_beside_it_but_kernelmill_and_torch() -> None:
    found = ast.walk(ast.parse(SOURCE.read_text()))
    names = [
        name
        for node in found
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else
                     [alias.name for alias in node.names])
    ]  # fmt: skip
    others = {name.partition(".")[0] for name in names} - sys.stdlib_module_names
    assert others == {"kernelmill", "onnxruntime", "torch"}


def test_a_copy_measures_in_a_process_of_its_own(tmp_path: Path) -> None:
    copy = tmp_path / "scale_cores.py"
    copy.write_text(SOURCE.read_text())
    processors = sorted(os.sched_getaffinity(0))[:1]
    given = json.dumps(["decoder token", 1, str(tmp_path), 0.1, 0.0, processors])
    done = subprocess.run(
        [sys.executable, "-P", "-W", "ignore", str(copy), "--job", given],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    row = Row(**json.loads(done.stdout.splitlines()[-1]))
    # There was no time to compile.
    assert (row.model, row.threads, row.seconds) == ("decoder token", 1, {})
    assert row.refused.keys() == scale_cores.CONTESTANTS.keys()
    assert row.refused["eager"].startswith("TimeoutError")


def test_a_limit_holds_where_the_block_catches_its_error() -> None:
    with pytest.raises(TimeoutError), limited(0.01), suppress(TimeoutError):
        time.sleep(1)


def test_contestants_take_turns_and_are_held_against_eager(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {name: scale_cores.CONTESTANTS[name] for name in ("kernelmill", "eager")}
    wrong = {"wrong": lambda model, x, folder: lambda: model(x) + 1}
    monkeypatch.setattr(scale_cores, "CONTESTANTS", own | wrong)
    row = measure("decoder token", 2, tmp_path, 0.1, 600.0, small=True)
    assert list(row.seconds) == ["kernelmill", "eager"] and row.turns >= 5
    assert row.errors["eager"] == 0 < row.errors["kernelmill"] < 1e-4
    assert list(row.refused) == ["wrong"] and "wrong by" in row.refused["wrong"]


@pytest.mark.parametrize("name", [*scale_cores.MODELS, "BERT-base 1 x 128" + HALVES])
def test_models_are_the_same_in_every_process(name: str) -> None:
    (model, x), (again, y) = (build(name, small=True) for _ in range(2))
    assert torch.equal(x, y)
    with torch.no_grad():
        result = model(x)
        assert torch.equal(result, again(y)) and result.isfinite().all()
    assert (result.dtype == torch.bfloat16) == name.endswith(HALVES)


def test_one_processor_of_each_core_those_of_one_node_first(tmp_path: Path) -> None:
    for number in range(8):  # four cores of two threads, on two nodes in turns
        core = number % 4
        topology = tmp_path / f"cpu{number}" / "topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(f"{core},{core + 4}\n")
        (tmp_path / f"cpu{number}" / f"node{core % 2}").mkdir()
    assert cores(range(8), tmp_path) == [0, 2, 1, 3]
    assert cores([1, 5, 6], tmp_path) == [6, 1]
    assert cores([9, 3], tmp_path / "nowhere") == [3, 9]


def test_one_thread_and_all_come_first() -> None:
    assert jobs(["a", "b"], [1, 2, 4]) == [
        ("a", 1), ("b", 1), ("a", 4), ("b", 4), ("a", 2), ("b", 2)
    ]  # fmt: skip
    assert jobs(["a"], [1]) == [("a", 1)]


def test_a_row_leaves_the_others_time_to_measure() -> None:
    assert limit_of(480.0, 20, 3.0) == 48.0
    assert limit_of(60.0, 2, 2.0) == 44.0
    assert limit_of(20.0, 2, 2.0) == 10.0  # too little for both: half each
    assert limit_of(7.0, 1, 2.0) == 7.0


def test_whoever_takes_too_long_is_stopped() -> None:
    with pytest.raises(TimeoutError), limited(0.01):
        time.sleep(60)
    with limited(60):
        pass


def test_tables_have_ratios_of_medians_and_say_who_is_missing() -> None:
    rows = [
        Row("a", 1, {"kernelmill": 0.010, "eager": 0.020}, {"kernelmill": 1e-6, "eager": 0.0}),
        Row("a", 4, {"kernelmill": 0.005, "eager": 0.004}, refused={"Inductor": "no compiler"}),
        Row("b", 2, refused={"eager": "no time left"}),
    ]
    table = lines_of(rows)[2:]
    assert table[0] == "| a | 1 | 10 ms | 20 ms | - | - | 2.00 | 1.00 |"
    assert table[1] == "| a | 4 | 5 ms | 4 ms | - | - | 0.80 | 0.50 |"
    assert table[2] == "| b | 2 | - | - | - | - | - | - |"
    page = document(rows, "Measured on a day.")
    assert "- Left out, Inductor: no compiler" in page and "is 1e-06 of the largest" in page
