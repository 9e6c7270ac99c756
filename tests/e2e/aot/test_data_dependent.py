"""Compiled files of programs whose sizes depend on the contents of tensors."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.export import export

import kernelmill
from kernelmill.core.errors import InputError, UnsupportedError
from tests.e2e.data_dependent import FUNCTIONS, Router, arguments

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
NAMES = [*[function.__name__ for function in FUNCTIONS], "router"]


def environment(folder):
    paths = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    return {
        **os.environ, "PYTHONPATH": paths, "KERNELMILL_KERNEL_META": str(folder / "kernels")
    }  # fmt: skip


def run(folder, *command):
    """The output of a process that imports nothing but what it names."""
    done = subprocess.run(
        [sys.executable, *map(str, command)], cwd=folder, env=environment(folder),
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


@pytest.fixture(scope="module")
def files(fresh, tmp_path_factory):
    folder = tmp_path_factory.mktemp("compiled")
    script = HERE.parent / "data_dependent.py"
    fresh.output(script, "aot", folder, cwd=folder, env=environment(folder))
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_files_serve_sizes_that_they_find_while_running(files, name):
    program = kernelmill.aot.load(files / f"{name}.kmill")
    for args, kwargs, expected in torch.load(files / f"{name}.pt", weights_only=True):
        torch.testing.assert_close(program(*args, **kwargs), expected)


def test_a_process_with_nothing_else_runs_the_file(files, tmp_path):
    output = run(tmp_path, HERE / "serving.py", files / "router.kmill", files / "router.pt", 8)
    assert output == "[] []"


def test_sizes_of_arguments_keep_their_limits(files):
    program = kernelmill.aot.load(files / "nonzero.kmill")
    with pytest.raises(InputError, match="dim 0 of argument 'x' is 65"):
        program(torch.zeros(65, 5))


def test_an_exported_program_is_compiled_like_a_module(tmp_path):
    model, x = Router().eval(), arguments()
    with torch.no_grad():
        exported = export(model, (x[0],))
        program = kernelmill.aot.load(kernelmill.aot.compile(exported, path=tmp_path / "r.kmill"))
        for value in x:
            torch.testing.assert_close(program(value), model(value))


@pytest.mark.needs_internal("export.stack_anchor")  # which finds the line
def test_what_cannot_be_carried_is_refused_with_its_line(tmp_path):
    def columns(x):
        return torch.unique(x, dim=1)

    with pytest.raises(UnsupportedError, match=r"unique_dim.*\(at .*test_data_dependent.py:\d+"):
        kernelmill.aot.compile(columns, (torch.ones(3, 4),), path=tmp_path / "c.kmill")
