"""`bisect`: the kernel at fault is named, and shown by itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from kernelmill import codegen
from kernelmill.cli.main import main
from kernelmill.compiler import bisect as one_graph
from kernelmill.compiler.bisect import difference, run_case, write_case
from kernelmill.graph.text import parse_graph, print_graph
from kernelmill.kernel.text import parse_kernel, print_kernel
from kernelmill.report.bisect import bisect
from tests.unit.compiler.bisected_model import make

FACTORY = f"{Path(__file__).parent}/bisected_model.py:make"


@pytest.fixture
def fault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """`fault(mark, old, new)`: kernels whose text has `mark` are compiled with `new` for `old`."""
    compile_kernel = codegen.compile_kernel

    def inject(mark: str, old: str, new: str) -> list[str]:
        names: list[str] = []
        monkeypatch.setenv("KERNELMILL_KERNEL_META", str(tmp_path / "kernels"))

        def altered(kernel, isa):
            text = print_kernel(kernel)
            if mark in text and old in text:
                names.append(kernel.name)
                kernel = parse_kernel(text.replace(old, new))
            return compile_kernel(kernel, isa)

        monkeypatch.setattr(codegen, "compile_kernel", altered)
        return names

    return inject


def test_nothing_differs_in_a_model_that_is_right() -> None:
    model, arguments = make()
    result = bisect(model, arguments)
    assert (result.first, result.graphs, result.torch) == (None, 1, ())
    assert model.calls.count_nonzero() == 0, "the model was written to"


def test_the_first_of_two_wrong_kernels_is_named_with_its_operators(fault, tmp_path) -> None:
    names = fault("erf(", "erf(", "tanh(")
    result = bisect(*make())
    first = result.first
    assert first is not None and first.kernel is not None and first.case is not None
    assert first.stage == "kernel"
    assert [first.kernel.name] == names
    assert "erf" in first.kernel.operators
    assert "elements differ" in first.text
    write_case(tmp_path / "case", first, first.case)
    lines = run_case(tmp_path / "case")
    assert lines and all("elements differ" in line for line in lines)
    assert "erf(" in (tmp_path / "case" / "kernel.txt").read_text()


def test_the_folder_of_a_kernel_that_is_compiled_right_again_shows_no_difference(
    fault, tmp_path, monkeypatch
) -> None:
    right = codegen.compile_kernel
    fault("erf(", "erf(", "tanh(")
    first = bisect(*make()).first
    assert first is not None and first.case is not None
    write_case(tmp_path / "case", first, first.case)
    monkeypatch.setattr(codegen, "compile_kernel", right)
    assert run_case(tmp_path / "case") == []


def test_a_later_kernel_is_named_when_those_before_it_are_right(fault) -> None:
    names = fault("exp2(", "exp2(", "neg(")
    first = bisect(*make()).first
    assert first is not None and first.kernel is not None
    assert first.kernel.name in names, first.text
    assert "erf" not in first.kernel.operators


def test_bfloat16_has_its_tolerance_and_its_files(fault, tmp_path) -> None:
    model, (x,) = make()
    assert bisect(model.bfloat16(), (x.bfloat16(),)).first is None
    fault("erf(", "erf(", "tanh(")
    first = bisect(model, (x.bfloat16(),)).first
    assert first is not None and first.case is not None
    write_case(tmp_path / "case", first, first.case)
    assert run_case(tmp_path / "case")


def test_kernels_that_pack_weights_are_found_by_the_interpreter(fault) -> None:
    model, arguments = make()
    names = fault('type "Panels"', "store b1[", "store b1[0*")
    first = bisect(model, arguments).first
    if not names:
        pytest.skip("this machine's kernels read weights as they lie")
    assert first is not None and first.kernel is not None
    assert first.kernel.name in names, first.text


def test_a_rewrite_that_changes_results_is_told_from_a_kernel(monkeypatch) -> None:
    rewrite = one_graph.optimise

    def wrong(graph, config):
        found, report = rewrite(graph, config)
        return parse_graph(print_graph(found).replace("erf(", "tanh(")), report

    monkeypatch.setattr(one_graph, "optimise", wrong)
    first = bisect(*make()).first
    assert first is not None
    assert (first.stage, first.kernel) == ("passes", None)


def test_the_command_finds_nothing(capsys) -> None:
    assert main(["bisect", FACTORY]) == 0
    assert capsys.readouterr().out == "no kernel differs from eager (1 graph)\n"


def test_the_command_with_a_fault(fault, tmp_path, capsys) -> None:
    fault("erf(", "erf(", "tanh(")
    assert main(["bisect", FACTORY, "--folder", str(tmp_path / "case")]) == 1
    out = capsys.readouterr().out
    assert "differs from eager first" in out and "bisected_model.py:" in out
    assert {path.name for path in (tmp_path / "case").iterdir()} >= {
        "report.txt", "kernel.txt", "plan.txt", "buffer0.npy", "show.py",
    }  # fmt: skip
    assert main(["bisect", FACTORY, "--json"]) == 1
    shown = json.loads(capsys.readouterr().out)
    assert shown["stage"] == "kernel" and "erf" in shown["kernel"]["operators"]


def test_what_counts_as_equal() -> None:
    nan, inf = float("nan"), float("inf")
    assert difference(torch.tensor([nan, inf, 1.0]), torch.tensor([nan, inf, 1.000001])) == ""
    assert "instead of inf" in difference(torch.tensor([-inf]), torch.tensor([inf]))
    assert difference(torch.tensor([1]), torch.tensor([2])).startswith("1 of 1 elements differ")
    assert "int32" in difference(torch.ones(1, dtype=torch.int32), torch.ones(1))


def test_a_model_of_which_nothing_is_compiled_is_told_of(tmp_path, capsys) -> None:
    (tmp_path / "broken.py").write_text(
        "import torch\ndef make():\n    return (lambda x: torch.jit.annotate(int, 3)), (1,)\n"
    )
    assert main(["bisect", f"{tmp_path}/broken.py:make"]) == 1
    assert "nothing of the model was compiled" in capsys.readouterr().out
