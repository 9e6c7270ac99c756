"""kernelmill as the backend of torch.compile calls that name none, as libraries make them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from kernelmill.core.errors import InputError

SCRIPT = """
import sys
import torch
before = "torch._dynamo" in sys.modules
model, x = torch.nn.Linear(8, 8).eval(), torch.ones(2, 8)
compiled = torch.compile(model)
with torch.no_grad():
    assert torch.equal(compiled(x), model(x))
print(before, torch.compiler.get_default_backend(), "kernelmill.compiler" in sys.modules)
print(sys.argv[1:])
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return str(path)


def run(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    plain = {k: v for k, v in os.environ.items() if k != "KERNELMILL_DEFAULT"}
    environment = {**plain, **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def test_a_variable_makes_it_the_default(script: str) -> None:
    done = run(sys.executable, script, KERNELMILL_DEFAULT="1")
    assert done.stdout.splitlines()[0] == "False kernelmill True", done.stderr


def test_the_command_makes_it_the_default(script: str) -> None:
    done = run(sys.executable, "-m", "kernelmill", "on", script, "--port", "80")
    assert done.stdout.splitlines() == ["True kernelmill True", "['--port', '80']"], done.stderr


def test_processes_that_the_command_starts_follow(script: str, tmp_path: Path) -> None:
    outer = tmp_path / "outer.py"
    outer.write_text(
        f"import subprocess, sys; subprocess.run([sys.executable, {script!r}], check=True)"
    )
    done = run(sys.executable, "-m", "kernelmill", "on", str(outer))
    assert done.stdout.splitlines()[0] == "False kernelmill True", done.stderr


@pytest.mark.parametrize("value", ["0", ""])
def test_without_it_the_default_is_inductor(value: str) -> None:
    code = "import torch; print(torch.compiler.get_default_backend())"
    done = run(sys.executable, "-c", code, KERNELMILL_DEFAULT=value)
    assert done.stdout.strip() == "inductor", done.stderr


def test_a_wrong_value_is_named() -> None:
    done = run(sys.executable, "-c", "import torch", KERNELMILL_DEFAULT="maybe")
    assert done.returncode == 1
    assert "environment variable KERNELMILL_DEFAULT='maybe': expected 1 or 0" in done.stderr


def test_torch_is_imported_without_the_compiler() -> None:
    code = (
        "import sys, torch;"
        "print([m for m in sys.modules if m.startswith('kernelmill.') "
        "and not m.startswith(('kernelmill.core', 'kernelmill.torch_internals'))])"
    )
    assert run(sys.executable, "-c", code).stdout.strip() == "[]"


@pytest.fixture
def as_default() -> Iterator[None]:
    torch.compiler.set_default_backend("kernelmill")
    torch._dynamo.reset()
    yield
    torch.compiler.set_default_backend(None)
    torch._dynamo.reset()


def compiled_result(**given: Any) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(8, 8), nn.GELU()).eval(), torch.randn(2, 8)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model, **given)(x), model(x))


MODES = ["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]


@pytest.mark.usefixtures("as_default")
@pytest.mark.parametrize("mode", MODES)
def test_modes_of_torch(mode: str) -> None:
    compiled_result(mode=mode)


@pytest.mark.usefixtures("as_default")
@pytest.mark.parametrize(
    ("options", "left_out"),
    [
        ({"max_autotune": True, "freezing": True}, ""),
        ({"max-autotune": True}, ""),
        ({"max_autotune": False, "triton.cudagraphs": False}, "max_autotune, triton.cudagraphs"),
        ({"epilogue_fusion": True, "mode": "max-autotune"}, "epilogue_fusion"),
    ],
)
def test_options_of_inductors(
    options: dict[str, Any], left_out: str, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        compiled_result(options=options)
        torch._dynamo.reset()
    said = [record.getMessage() for record in caplog.records if "left out" in record.getMessage()]
    assert len(said) == bool(left_out)
    if left_out:
        assert f"options {left_out} mean" in said[0]


@pytest.mark.usefixtures("as_default")
@pytest.mark.parametrize("options", [{"max_autotuned": True}, {"debug.no_such": 1}])
def test_names_that_nobody_has_are_errors(options: dict[str, Any]) -> None:
    with pytest.raises(Exception, match="no option"):
        compiled_result(options=options)


def test_a_forced_cache_of_autograd_is_not_asked() -> None:
    from torch._functorch import config

    names = ("force_autograd_cache", "bundled_autograd_cache", "strict_autograd_cache")
    with config.patch(**dict.fromkeys(names, True)):
        compiled_result(backend="kernelmill")
        model, x = nn.Linear(4, 4), torch.randn(2, 4)
        torch.compile(model, backend="kernelmill")(x).sum().backward()
        assert model.weight.grad is not None
    torch._dynamo.reset()


def without_guards(model: Any) -> Any:
    dropped: Any = {"guard_filter_fn": torch.compiler.skip_all_guards_unsafe}
    return torch.compile(model, backend="kernelmill", fullgraph=True, options=dropped)


def of_rows(count: int) -> torch.Tensor:
    x = torch.randn(count, 64)
    torch._dynamo.mark_dynamic(x, 0)
    return x


def test_one_row_without_guards() -> None:
    """As vLLM calls what it has traced with several."""
    norm = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 8))

    def attends(x: torch.Tensor) -> torch.Tensor:
        return norm(x).softmax(0) @ x[:, :8].mT

    compiled = without_guards(attends)
    with torch.no_grad():
        for rows in (3, 1, 5, 1):
            x = of_rows(rows)
            torch.testing.assert_close(compiled(x), attends(x))


def test_one_row_that_a_squeeze_would_take_out_is_refused() -> None:
    compiled = without_guards(lambda x: torch.squeeze(x.sin(), 0))
    with torch.no_grad():
        compiled(of_rows(3))
        with pytest.raises(InputError, match="compile it again for this size"):
            compiled(of_rows(1))
