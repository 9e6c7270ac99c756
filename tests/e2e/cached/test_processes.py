"""Cached methods over several processes: ranks, a language model, eight at once, kills."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.cached.mutations import SUBJECT, run

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


def start(folder, *arguments):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    environment |= {"KERNELMILL_KERNEL_META": str(folder / "kernels"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip


def output_of(process):
    output, errors = process.communicate()
    assert process.returncode == 0, errors[-3000:]
    return output


def test_ranks_trace_once_each_and_then_load(tmp_path):
    launch = ("-m", "torch.distributed.run", "--nproc-per-node", "2", HERE / "tensor_parallel.py")
    first = sorted(output_of(start(tmp_path, *launch)).splitlines())
    assert first == ["rank 0: loaded 0, dynamo True", "rank 1: loaded 0, dynamo True"]
    second = sorted(output_of(start(tmp_path, *launch)).splitlines())
    assert second == ["rank 0: loaded 1, dynamo False", "rank 1: loaded 1, dynamo False"]


@pytest.mark.parametrize("expected", ["'loaded': 1, 'traced': 0, 'uncached': 0"])
def test_a_language_model_generates_what_eager_does(tmp_path, expected):
    output_of(start(tmp_path, HERE / "language_model.py"))
    assert output_of(start(tmp_path, HERE / "language_model.py")).count(expected) == 2


def test_one_of_several_processes_traces_for_all(tmp_path):
    (tmp_path / "subject.py").write_text(SUBJECT.read_text())
    processes = [start(tmp_path, "subject.py") for _ in range(4)]
    outputs = [output_of(process) for process in processes]
    assert sum('"traced": 1' in output for output in outputs) == 1


def test_a_killed_process_leaves_nothing_that_harms(tmp_path):
    (tmp_path / "subject.py").write_text(SUBJECT.read_text())
    for seconds in (3.0, 5.0):
        process = start(tmp_path, "subject.py")
        time.sleep(seconds)
        process.kill()
        process.communicate()
    assert run(tmp_path, SUBJECT.read_text())["uncached"] == 0
    assert run(tmp_path, SUBJECT.read_text())["loaded"] == 1
