"""`kernelmill lower` prints each stage that is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelmill.cli.main import main
from kernelmill.graph.text import parse_graph
from kernelmill.kernel.text import parse_kernel

GRAPH = """graph g(
  %x: f32[8, 16]
) {
  %0 = exp(%x) : f32[8, 16]
  %1 = neg(%x) : f32[8, 16]
  %2 = reshape(%0) {shape=(2, 64)} : f32[2, 64]
  %3 = reshape(%2) {shape=(128)} : f32[128]
  %4 = reduce_sum(%3) {dims=(0)} : f32[]
  return %4
}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "g.txt"
    path.write_text(GRAPH)
    return str(path)


def stages(text: str) -> dict[str, str]:
    """The printed texts by the first words of their titles."""
    parts = [part.partition("\n") for part in text.split("== ")[1:]]
    return {title: body for title, _, body in parts}


def test_graph_kernels_and_plan(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lower", file, "--target", "x86-64-v3"]) == 0
    found = stages(capsys.readouterr().out)
    titles = list(found)
    assert titles[0] == "graph" and titles[-1] == "plan"
    assert any(title.startswith("graph after ") for title in titles)
    (kernel,) = [body for title, body in found.items() if title.startswith("kernel ")]
    assert parse_kernel(kernel).tasks >= 1
    assert parse_graph(found["graph"]).nodes


def test_passes_can_be_left_out(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lower", file, "--passes", "none", "--print", "graph"]) == 0
    assert list(stages(capsys.readouterr().out)) == ["graph"]
    assert main(["lower", file, "--passes", "dce", "--separate", "--print", "kernels"]) == 0
    assert len(stages(capsys.readouterr().out)) == 2


def test_what_happens_at_a_call_is_shown(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lower", file, "--print", "call"]) == 0
    (steps,) = stages(capsys.readouterr().out).values()
    kinds = [line.split()[0] for line in steps.splitlines() if line]
    assert kinds == ["MakeTensors", "CheckArguments", "RunLaunches", "ReturnResults"]


def test_code_for_a_processor_that_this_machine_need_not_be(
    file: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["lower", file, "--target", "x86-64-v4", "--print", "llvm,asm"]) == 0
    llvm, assembly = stages(capsys.readouterr().out).values()
    assert '"target-cpu"="x86-64-v4"' in llvm and "zmm" in assembly


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"\xf8\x00", "is no text file"),
        (b"import torch.nn\n@", "is no graph: line 2: unexpected character '@'"),
        (b"graph g(\n  %x: f32[8]\n) {\n  return %y\n}\n", "is no graph: line 4"),
    ],
)
def test_a_file_that_is_no_graph_is_named(
    text: bytes, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other.txt"
    path.write_bytes(text)
    assert main(["lower", str(path)]) == 2
    assert f"other.txt {said}" in capsys.readouterr().err
    assert main(["lower", str(tmp_path / "none")]) == 2
    assert (
        capsys.readouterr().err == f"kernelmill: {tmp_path / 'none'}: No such file or directory\n"
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--passes", "nope"), "the passes are fold-constants"),
        (("--print", "nope"), "the stages are graph"),
        (("--target", "z80"), "there are: native, x86-64-v2"),
    ],
)
def test_unknown_names_are_refused_with_what_there_is(
    file: str, options: tuple[str, str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lower", file, *options]) == 2
    assert said in capsys.readouterr().err
