"""Cached methods over several processes: ranks, a language model, eight at once, kills."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kept_methods import KEPT

pytestmark = KEPT

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


def environment(folder):
    paths = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    return {
        **os.environ, "PYTHONPATH": paths, "KERNELMILL_KERNEL_META": str(folder / "kernels"),
        "OMP_NUM_THREADS": "1",
    }  # fmt: skip


def start(folder, *arguments):
    command = [sys.executable, *map(str, arguments)]
    return subprocess.Popen(
        command, cwd=folder, env=environment(folder), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def output_of(process):
    output, errors = process.communicate()
    assert process.returncode == 0, errors[-3000:]
    return output


def ranks(folder):
    """What each rank of a job of two wrote."""
    job = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    output_of(start(folder, *job, HERE / "tensor_parallel.py"))
    files = [folder / f"rank{rank}.json" for rank in range(2)]
    found = [json.loads(file.read_text()) for file in files]
    for file in files:
        file.unlink()
    return found


def test_ranks_trace_once_each_and_then_load(tmp_path):
    traced = {"loaded": 0, "traced": 1, "uncached": 0, "dynamo": True}
    loaded = {"loaded": 1, "traced": 0, "uncached": 0, "dynamo": False}
    assert ranks(tmp_path) == [traced, traced]
    assert ranks(tmp_path) == [loaded, loaded]


@pytest.mark.parametrize("expected", ["'loaded': 1, 'traced': 0, 'uncached': 0"])
def test_a_language_model_generates_what_eager_does(fresh, tmp_path, expected):
    _, later = (
        fresh.output(HERE / "language_model.py", cwd=tmp_path, env=environment(tmp_path))
        for _ in range(2)
    )
    assert later.count(expected) == 2


def test_killed_and_simultaneous_processes_leave_nothing_that_harms(tmp_path):
    """In a process of its own, which may fork at will."""
    start_of = ("-m", "tools.torture_cache", "--kills", "8", "--seed", "1")
    assert output_of(start(tmp_path, *start_of)).startswith("8 kills\n# ")


def test_packed_weights_are_mapped_by_all_and_never_stale(fresh, tmp_path):
    def run(seed):
        command = (HERE / "shared_weights.py", seed)
        return fresh.output(*command, cwd=tmp_path, env=environment(tmp_path)).split("] ")

    files = tmp_path / "cache"
    (maps, counts) = run(0)
    assert maps == "['r--s'" and counts.startswith("0 ")
    packed = sorted(files.rglob("*.packed"))
    assert len(packed) == 3
    # Nothing is packed but what was changed in the process.
    assert run(0) == ["['r--s'", "1 0 1\n"]
    # Other weights are files of their own, whatever else is the same.
    assert run(1) == ["['r--s'", "1 3 1\n"]
    assert len(list(files.rglob("*.packed"))) == 6
    packed[0].write_bytes(packed[0].read_bytes()[:5000])
    assert run(0) == ["['r--s'", "1 1 1\n"]


def test_quantised_weights_are_mapped_too_and_have_no_copies_in_float32(fresh, tmp_path):
    def run():
        command = (HERE / "shared_weights.py", 0, "int8")
        return fresh.output(*command, cwd=tmp_path, env=environment(tmp_path)).split("] ")

    maps, counts = run()
    assert maps == "['r--s'" and counts.startswith("0 ")
    packed = list((tmp_path / "cache").rglob("*.packed"))
    # The integers are there once: in the order in which kernels read them.
    integers = 3 * 512 * 512
    assert integers < sum(file.stat().st_size for file in packed) < 1.2 * integers
    _, packed_again, changed = run()[1].split()
    assert packed_again == "0" and int(changed) > 0
