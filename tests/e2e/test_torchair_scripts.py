"""`kernelmill.compat`: scripts for torch_npu and torchair run as they are.

The scripts lie in tests/e2e/torchair; those named after a feature are those of the documentation
of TorchAir. All run in children that one process forks when it has imported torch.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(__file__).parent / "torchair"

FORKING = """
import os, sys
import llvmlite.binding, sympy, torch.fx.experimental.symbolic_shapes  # once for all of them
from kernelmill.compat import install, run_script
print("ready", flush=True)
for line in sys.stdin:
    folder, script, *arguments = line.rstrip("\\n").split("\\t")
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        os.close(0)
        sys.exit(run_script(script, arguments, install))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@dataclass(frozen=True)
class Ran:
    """What a script did."""

    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory):
    environment = {name: value for name, value in os.environ.items() if "KERNELMILL" not in name}
    environment["PYTHONPATH"] = str(ROOT / "src")
    environment["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    environment["TNG_LOG_LEVEL"] = "1"
    with subprocess.Popen(
        [sys.executable, "-c", FORKING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=environment,
    ) as running:  # fmt: skip
        assert running.stdin is not None and running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        yield running
        running.stdin.close()


@pytest.fixture
def run(process: subprocess.Popen[str], tmp_path: Path) -> Run:
    def run(name: str, *arguments: str) -> Ran:
        assert process.stdin is not None and process.stdout is not None
        fields = (str(tmp_path), str(SCRIPTS / f"{name}.txt"), *arguments)
        process.stdin.write("\t".join(fields) + "\n")
        process.stdin.flush()
        code = int(process.stdout.readline())
        return Ran(code, (tmp_path / "stdout").read_text(), (tmp_path / "stderr").read_text())

    return run


ONES = """tensor([[2., 2.],
        [2., 2.]])
tensor([[2., 2.],
        [2., 2.],
        [2., 2.],
        [2., 2.]])
"""


def test_gears_print_what_the_documentation_says(run: Run, tmp_path: Path) -> None:
    ran = run("gears")
    assert (ran.code, ran.out) == (0, ONES), ran.err
    assert "Compiling concrete graph 0 with options:" in ran.err
    assert "ge.dynamicDims = 2,2;4,4" in ran.err
    assert "ge.inputShape = arg1_1:-1,2;arg2_1:-1,2" in ran.err
    assert any(path.suffix == ".o" for path in (tmp_path / "kernel_meta").rglob("*"))


def test_gears_are_one_trace_and_refuse_other_sizes(run: Run) -> None:
    ran = run("gears_zip")
    assert (ran.code, ran.out) == (0, ONES + "traces 1\nrefused GearError\n"), ran.err


def test_mark_static(run: Run) -> None:
    ran = run("mark_static")
    assert (ran.code, ran.out) == (0, "equal True\n" * 3 + "graphs ['']\n"), ran.err


def test_cache_compile_loads_from_torchairs_folder(run: Run, tmp_path: Path) -> None:
    computed = "tensor([3., 3.])\nprefill True\ndecode True\n"
    first = run("cache_compile")
    assert (first.code, first.out) == (0, computed + "traces 3\n"), first.err
    assert first.err.count("super_kernel option early-start has no effect here") == 1
    kept = [path for path in (tmp_path / ".torchair_cache").iterdir() if path.is_dir()]
    assert {path.name.split("_")[0] for path in kept} == {"Model", "Phases"}
    assert run("cache_compile").out == computed + "traces 0\n"


def test_static_kernels(run: Run, tmp_path: Path) -> None:
    ran = run("static_kernel")
    assert (ran.code, ran.out) == (0, "equal True\ngraphs ['']\n"), ran.err
    (outputs,) = (tmp_path / "aclnn_static_shape_kernel_outputs").iterdir()
    assert len(list(outputs.glob("*.run"))) == 1


def test_super_kernel_gives_the_same_numbers(run: Run, tmp_path: Path) -> None:
    ran = run("super_kernel")
    assert ran.code == 0, ran.err
    assert ran.out.splitlines()[-1] == "Precision ====== Success!!!"
    assert len(list(tmp_path.glob("dynamo_optimized_graph_*.pbtxt"))) == 2
    assert "runs in torch" not in ran.err


def test_devices_streams_and_operators(run: Run) -> None:
    ran = run("devices", "--flag", "value")
    assert (ran.code, ran.out) == (0, "done\n"), ran.err
    assert "torch.npu.config.allow_internal_format has no effect here" in ran.err


def test_npugraph_ex_is_a_backend_by_name(run: Run, tmp_path: Path) -> None:
    ran = run("npugraph_ex")
    assert ran.code == 0, ran.err
    *lines, misspelt, limit, kind = ran.out.splitlines()
    assert lines == [
        "8.0", "static True", "pool True", "dumped True ['worldsize1_global_rank0']",
        "limited True True", "threads 1 True", "eager config.debug.run_eagerly is set", "fast ''",
    ]  # fmt: skip
    assert misspelt.startswith(
        "config has no option 'static_kernel_compil'; there are: static_kernel_compile,"
    )
    assert limit.startswith("config.capture_limit: 0 is not in [1, ")
    assert kind == "config.clone_input: 'yes' is no bool"
    (outputs,) = (tmp_path / "static_kernel_compile_outputs").iterdir()
    assert len(list(outputs.glob("*.run"))) == 1
    dumped = [path.name for path in (tmp_path / "dump").rglob("*.npy")]
    assert len(dumped) == 3, "two inputs and a result"
    for option in ("config.use_graph_pool", "config.clone_output"):
        assert ran.err.count(f"UserWarning: {option} has no effect here: ") == 1
    assert "deterministic" not in ran.err


def test_npugraph_ex_keeps_methods(run: Run, tmp_path: Path) -> None:
    def said(traces: int) -> None:
        ran = run("npugraph_ex_cache")
        *lines, argument, option, config = ran.out.splitlines()
        computed = ["prompt [6.0, 6.0]", "decode [6.0, 6.0]", f"traces {traces}"]
        assert (ran.code, lines) == (0, computed), ran.err
        assert "unexpected keyword argument 'option'" in argument
        assert "no option 'capture_limits'; there are: capture_limit," in option
        assert config == "config: module is no npugraph_ex.CompilerConfig"

    said(2)
    assert (tmp_path / ".torchair_cache").is_dir()
    said(0)


def test_missing_names_say_what_is_nearest(run: Run) -> None:
    ran = run("missing")
    nearest = {
        "operator": "torch_npu.npu_quant_matmul",
        "function": "torchair.get_npu_backend",
        "module": "torchair.configs.compiler_config",
        "npu": "torch.npu.synchronize",
        "name": "torchair.inference.cache_compile",
    }
    said = dict(line.split(": ", 1) for line in ran.out.splitlines() if ": " in line)
    for what, name in nearest.items():
        assert f"the nearest that is: {name};" in said[what]
    assert said["device"].startswith("ValueError: torch.npu.set_device: -1 names no npu")
    assert said["option"].startswith("ValueError: config.debug.graph_dump has no option 'types'")
    assert "False none\n" in ran.out
    assert ran.code == 1
    frames = [line for line in ran.err.splitlines() if line.startswith("  File")]
    assert [frame.split(", ")[-1] for frame in frames] == ["in <module>", "in fail"]


def test_exit_codes_and_tracebacks_are_those_of_python(run: Run) -> None:
    script = SCRIPTS / "exits.txt"
    assert run("exits", "code") == Ran(7, "", "")
    assert run("exits", "text") == Ran(1, "", "a last word\n")
    error = run("exits", "error")
    assert error.code == 1
    assert error.err == (
        "Traceback (most recent call last):\n"
        f'  File "{script}", line 15, in <module>\n    inner()\n'
        f'  File "{script}", line 14, in inner\n    raise RuntimeError("my own error")\n'
        "RuntimeError: my own error\n"
    )
    syntax = run("exits", "syntax")
    assert syntax.code == 1
    assert syntax.err.splitlines()[-1].startswith("SyntaxError")
    assert run("exits", "interrupt").code == 130
    assert run("exits", "hook") == Ran(1, "hook ValueError\n", "")
    assert run("exits", "none").out == f"torchair {[str(script), 'none']} True None\n"


def test_a_folder_that_no_run_made_is_not_used(run: Run, tmp_path: Path) -> None:
    (tmp_path / "kernel_meta").mkdir()
    ran = run("exits", "none")
    assert ran.code == 0
    assert "kernel_meta is not used, since it was not made by `kernelmill run`" in ran.err
    assert ".torchair_cache is not used" not in ran.err


def test_processes_that_a_script_spawns_have_it_too(run: Run) -> None:
    ran = run("spawned")
    assert ran.code == 0, ran.err
    assert sorted(ran.out.splitlines()) == ["rank 0: [3.0, 3.0]", "rank 1: [3.0, 3.0]"]
