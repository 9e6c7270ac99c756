"""`kernelmill bench`: what it measures and says, and its exit codes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from kernelmill.cli import race as racing
from kernelmill.cli.bench import _remarks
from kernelmill.cli.main import main
from kernelmill.cli.output import config_of
from kernelmill.cli.race import Race, Standing
from kernelmill.core.factory import load

SOURCE = """
import torch

def linear():
    return torch.nn.Linear(16, 8).eval(), (torch.ones(4, 16),)

@torch._dynamo.disable
def hidden(x):
    return x + 1

def uncaptured():
    return lambda x: hidden(x), (torch.ones(3),)

def raises():
    def model(x):
        raise ValueError("wrong weights")
    return model, (torch.ones(3),)

def interrupted_at(count):
    calls = []
    @torch._dynamo.disable
    def count_calls(x):
        calls.append(1)
        if len(calls) == count:
            raise KeyboardInterrupt
        return x
    return lambda x: count_calls(x * 2) + 1, (torch.ones(3),)

def interrupted_in_eager():
    return interrupted_at(1)

def interrupted_while_compiling():
    return interrupted_at(4)

def interrupted_while_measuring():
    return interrupted_at(12)

def counts():
    seen = [0]  # a list that grew would be traced anew, with all of it, after thousands of calls
    def model(x):
        seen[0] += 1
        return x * seen[0]
    return model, (torch.ones(3),)
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("KERNELMILL_KERNEL_META", str(tmp_path / "kernels"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = tmp_path / "bench_models.py"
    path.write_text(SOURCE)
    return str(path)


def bench(name: str, *options: str) -> int:
    return main(["bench", name, "--seconds", "0", "--no-inductor", *options])


def test_a_model_is_measured_and_compared(
    file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bench(f"{file}:linear", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["operations"] == 2 * 4 * 16 * 8 and told["kernels"] >= 1
    eager, ours, inductor = told["contestants"]
    assert [one["name"] for one in (eager, ours, inductor)] == ["eager", "kernelmill", "inductor"]
    assert eager["seconds"] > 0 and ours["seconds"] > 0 and ours["turns"] >= 5
    assert ours["ratio"] == pytest.approx(eager["seconds"] / ours["seconds"])
    assert ours["agrees"] and ours["error"] < 1e-6
    assert inductor["refused"] == "not asked for"


@pytest.mark.parametrize("columns", [60, 120])
def test_the_table_fits(
    file: str, columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert bench(f"{file}:linear") == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines if "file" not in line) <= columns
    (ours,) = [line.split() for line in lines if line.startswith("kernelmill ")]
    assert len(ours) == (5 if columns < 80 else 8)  # the first call has a unit
    assert "inductor was not measured: not asked for" in lines


def test_options_of_a_compile_have_their_effect(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--dynamic", "--threads", "1", "--config", "target=x86-64-v2")
    assert bench(f"{file}:linear", *options, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["threads"] == 1 and told["graphs"] == 1
    factory, config = load(f"{file}:linear"), config_of(None, options[-1:])
    found = racing.race(factory, 0.0, config, "not asked for", dynamic=True)
    assert {kernel.kind for report in found.reports for kernel in report.kernels} == {"dynamic"}


def test_a_model_that_cannot_be_captured(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(f"{file}:uncaptured") == 1
    assert "nothing of the model was captured" in capsys.readouterr().out


def test_a_model_that_fails_in_eager(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(f"{file}:raises") == 3
    told = capsys.readouterr().err
    assert told.splitlines()[-1] == "ValueError: wrong weights" and "in model" in told


def test_a_model_with_state_is_not_called_wrong(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    bench(f"{file}:counts")
    told = capsys.readouterr().out
    assert "two calls of eager differ" in told and "please report" not in told


@pytest.mark.parametrize("when", ["in_eager", "while_compiling", "while_measuring"])
def test_ctrl_c_prints_nothing_and_is_exit_code_130(
    file: str, capsys: pytest.CaptureFixture[str], when: str
) -> None:
    assert bench(f"{file}:interrupted_{when}") == 130
    assert capsys.readouterr() == ("", "")


def test_wrong_usage(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(f"{file}:none") == 2
    assert bench(f"{file}:linear", "--mode", "fastest") == 2
    assert bench(f"{file}:linear", "--threads", "0") == 2
    assert bench(f"{file}:linear", "--mode", "reduce-overhead", "--tune") == 2
    told = capsys.readouterr().err
    assert "has no 'none'" in told and "max-autotune" in told and "--threads" in told


def test_no_compiler_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/nowhere/g++")
    assert racing.why_no_inductor() == "there is no C++ compiler /nowhere/g++"


def test_slow_ones_are_told_what_to_look_at() -> None:
    standings = [Standing("eager", seconds=1e-5), Standing("kernelmill", seconds=2e-5)]
    found = Race(standings, 0, 1, [], ["print at model.py:8 in forward"], ("take the other layer",))
    told = "\n".join(_remarks(found, training=True))
    where = "Dynamo breaks the graph at 1 place: print at model.py:8 in forward"
    for part in ("training mode", "take the other layer", where, "cache_compile"):
        assert part in told
    standings[1].seconds = 1e-6
    assert list(_remarks(found, training=False)) == []


@pytest.mark.parametrize(
    ("found", "error", "agrees"),
    [
        (torch.tensor([1.0, 2.0]), 0.0, True),
        (torch.tensor([1.0, 2.0002]), 1e-4, True),
        (torch.tensor([1.0, 2.1]), 0.05, False),
        (torch.tensor([1.0, float("nan")]), float("inf"), False),
        (torch.tensor([1.0]), float("inf"), False),
        (torch.tensor([1.0, 2.0], dtype=torch.float64), float("inf"), False),
    ],
)
def test_errors(found: torch.Tensor, error: float, agrees: bool) -> None:
    told, within = racing._worst([torch.tensor([1.0, 2.0])], [found])
    assert told == pytest.approx(error, rel=1e-2) and within == agrees


def test_infinities_and_integers_must_be_equal() -> None:
    inf = torch.tensor([float("inf"), 1.0])
    assert racing._worst([inf], [inf.clone()]) == (0.0, True)
    assert not racing._worst([inf], [-inf])[1]
    assert not racing._worst([torch.tensor([5])], [torch.tensor([6])])[1]
    assert racing._worst([torch.tensor([5])], [torch.tensor([5])]) == (0.0, True)
