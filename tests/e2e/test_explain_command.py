"""`kernelmill explain` and `kernelmill trace` on a model of a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelmill.cli.main import main

MODEL = """
import os
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1) * 2

def make():
    return Model().eval(), (torch.randn(4, 32),)

def breaking():
    class Breaks(torch.nn.Module):
        def forward(self, x):
            torch._dynamo.graph_break()
            return x * 2
    return Breaks(), (torch.randn(4, 32),)

def talking():
    print("made")
    os.system("echo a child")
    return make()

def uncompiled():
    class Disabled(torch.nn.Module):
        @torch.compiler.disable
        def forward(self, x):
            return x + 1
    return Disabled(), (torch.randn(4, 32),)

def broken():
    return torch.nn.Linear(3, 4), (torch.randn(4, 32),)
"""


@pytest.fixture(autouse=True)
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(MODEL)


def test_explain_compares_with_an_earlier_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "model.py:make", "--json"]) == 0
    Path("before.json").write_text(capsys.readouterr().out)
    assert main(["explain", "model.py:make", "--against", "before.json"]) == 0
    head, call, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["before", "now", "saved"] and call.endswith("  a call")
    assert len(rows) == 1 and rows[0].endswith(" -> f32[4, 32]")
    Path("other.json").write_text("[]")
    assert main(["explain", "model.py:make", "--against", "other.json"]) == 2
    assert "--against other.json is no report: " in capsys.readouterr().err


def test_explain_prints_the_report_and_writes_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "model.py:make", "-o", "report.html"]) == 0
    out = capsys.readouterr().out
    assert "1 graph, 0 graph breaks" in out and "medians of" in out
    assert "<h1>Model</h1>" in Path("report.html").read_text()


def test_explain_is_read_on_60_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["explain", "model.py:make", "--no-measure"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 60 and any("capture" in line for line in lines)


def test_explain_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "model.py:make", "--json", "--no-measure"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["name"] == "Model" and found["call"]["outcome"] == "not measured"
    (program,) = found["programs"]
    assert [step["kind"] for step in program["steps"]] == ["kernel"]


def test_what_a_model_prints_is_not_in_the_json(capfd: pytest.CaptureFixture[str]) -> None:
    for command in (["explain", "--no-measure"], ["bench", "--seconds", "0", "--no-inductor"]):
        assert main([*command, "model.py:talking", "--json"]) == 0
        found = capfd.readouterr()
        assert json.loads(found.out) and {"made", "a child"} <= set(found.err.splitlines())


def test_trace_writes_events(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "model.py:make"]) == 0
    assert capsys.readouterr().out.startswith("trace.json: a call on ")
    events = json.loads(Path("trace.json").read_text())["traceEvents"]
    (span,) = (event for event in events if event["ph"] == "X")
    assert span["args"]["writes"] == ["f32[4, 32]"] and span["dur"] > 0


def test_explain_says_why_a_graph_breaks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "model.py:breaking", "-o", "report.html"]) == 0
    said = "Call to `torch._dynamo.graph_break()` (Hint: Remove the `torch._dynamo.graph_break()`"
    shown, page = capsys.readouterr().out, Path("report.html").read_text()
    assert f"graph break: {said} call.)" in shown and said in page
    line = next(n for n, text in enumerate(MODEL.splitlines(), 1) if "graph_break()" in text)
    assert f"  at model.py:{line} in forward: torch._dynamo.graph_break()" in shown


def test_explain_and_trace_say_when_nothing_is_compiled(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["explain", "model.py:uncompiled", "-o", "report.html"]) == 1
    assert "nothing of the model was compiled" in capsys.readouterr().out
    assert "Nothing of the model was compiled" in Path("report.html").read_text()
    assert main(["trace", "model.py:uncompiled"]) == 1
    assert "no trace: nothing of the model was compiled" in capsys.readouterr().err
    assert not Path("trace.json").exists()


def test_trace_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "model.py:make", "-o", "t.json", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["file"] == "t.json" and found["parts"] >= 1 and found["threads"] >= 1


def explained(capsys: pytest.CaptureFixture[str], *options: str) -> Any:
    command = ["explain", "model.py:make", "--json", "--no-measure", *options]
    assert main(command) == 0
    return json.loads(capsys.readouterr().out)


def test_options_of_a_compile_have_their_effect(capsys: pytest.CaptureFixture[str]) -> None:
    before = torch.get_num_threads()
    found = explained(capsys, "--dynamic", "--threads", "1", "--config", "target=x86-64-v2")
    assert found["machine"]["threads"] == 1 and torch.get_num_threads() == before
    assert " x86-64-v2 " in found["machine"]["isa"]
    assert {kernel["kind"] for kernel in found["kernels"]} == {"dynamic"}
    option = "experimental_config.pattern_fusion_pass=false"
    found = explained(capsys, "--static", "--config", option)
    assert len(found["kernels"]) > 1 and found["fused"] == 0
    assert not any("dynamic" in kernel["kind"] for kernel in found["kernels"])
    found = explained(capsys, "--mode", "reduce-overhead")
    assert len(found["kernels"]) > 1, "operators run one by one"


def test_a_trace_is_of_so_many_threads(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "model.py:make", "--threads", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["threads"] == 1


@pytest.mark.parametrize("command", ["explain", "trace", "bench"])
def test_a_wrong_option_of_a_compile_names_the_nearest(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "model.py:make", "--mode", "reduce-overhed"]) == 2
    assert "did you mean 'reduce-overhead'?" in capsys.readouterr().err
    assert main([command, "model.py:make", "--config", "aoe_config.aoe_mod=2"]) == 2
    assert "has no option 'aoe_mod'; there are: aoe_mode" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["explain", "model.py:nobody"], 2, "model.py has no 'nobody'"),
        (["explain", "model.py:broken"], 3, "the call failed"),
        (["explain", "model.py:make", "-o", "no/such/folder/report.html"], 2, "no/such/folder"),
        (["trace", "model.py:make", "-o", "."], 2, "is a folder; name a file in it"),
        (["trace", "missing.py:make"], 2, "no file missing.py"),
    ],
)
def test_what_cannot_be_done_is_said(
    arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == code
    assert message in capsys.readouterr().err
