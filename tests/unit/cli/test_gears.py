"""`kernelmill gears suggest` on a recorded file."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelmill.cli.main import main
from kernelmill.gears.shape_log import line_of
from tests.repo.source import ROOT


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "shapes.jsonl"
    lines = [line_of({"x": (b, s)}) for b in (2, 4) for s in (8, 8, 16, 32)]
    path.write_text("".join(lines))
    return str(path)


def test_the_suggestion_is_python_with_its_cost_in_a_comment(
    log: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gears", "suggest", log]) == 0
    first, *code = capsys.readouterr().out.splitlines()
    assert first.startswith("# 6 gears for 8 calls: 0.0% of the work is padding")
    assert code == [
        'config.inference_config.gear_miss = "pad"',
        'config.inference_config.dynamic_gears_merge_policy = "zip"',
        "kernelmill.inference.set_dim_gears(x, {0: [2, 2, 2, 4, 4, 4], 1: [8, 16, 32, 8, 16, 32]})",
    ]


def test_max_and_policy(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gears", "suggest", log, "--max", "4", "--policy", "product"]) == 0
    assert "{0: [2, 4], 1: [8, 32]}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "reason"), [("nonsense\n", "line 1 is no record"), ("", "no calls")]
)
def test_a_bad_log_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, reason: str
) -> None:
    path = tmp_path / "log"
    path.write_text(text)
    assert main(["gears", "suggest", str(path)]) == 2
    assert reason in capsys.readouterr().err


def test_a_missing_log_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gears", "suggest", str(tmp_path / "none")]) == 2
    assert "No such file" in capsys.readouterr().err


def test_the_tutorial_shows_what_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "shapes.jsonl"
    path.write_text("".join(line_of({"input": (n, 8)}) for n in (1, 3, 4, 4, 9, 16)))
    assert main(["gears", "suggest", str(path), "--max", "3"]) == 0
    printed = capsys.readouterr().out
    assert printed in (ROOT / "docs" / "tutorials" / "gears.md").read_text()
