"""The benchmark's figures: kinds of processors side by side, goals, rows by name."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from importlib import import_module
from importlib.util import cache_from_source
from pathlib import Path

import pytest
import torch

from kernelmill.core.target.dot_units import TILE_BF16
from kernelmill.core.target.isa import NAMED, Isa, host_isa
from tests.repo.source import ROOT
from tests.zoo import Case
from tools import machine
from tools.bench import __main__ as command
from tools.bench import contestants, harness, limits, models, report
from tools.bench.harness import Page, Table
from tools.bench.limits import BYTES, FLOATS, HALVES, Limits
from tools.bench.low_precision import quant_matmul
from tools.bench.measure import Error, FixedCost, Standing, race
from tools.bench.models import ROWS, STEADY, TILES
from tools.bench.subject import Subject as Model
from tools.bench.subject import operations, refill

EPYC_4 = "AMD EPYC, family 25, model 17"
EPYC_5 = "AMD EPYC, family 26, model 2"
XEON = "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz, family 6, model 143"


def standing(name: str, ours: float) -> Standing:
    """Ours, and eager at twice the time."""
    limit = Limits({FLOATS: 1e12, HALVES: 2e12, BYTES: 4e12}, 1e11)
    error = Error(1e-6, 1e-7)
    return Standing(
        name, "1 x 2", FLOATS, 10**9, 10**6, False, limit,
        {"kernelmill": ours, "eager": 2 * ours}, {"kernelmill": error, "eager": error},
    )  # fmt: skip


@pytest.fixture
def measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Measures rows on a kind of processor, as the command does, in a folder of the test's own."""
    (tmp_path / "docs").mkdir()
    monkeypatch.chdir(tmp_path)

    def run(kind: str, ours: float, rows: list[str], tiles: bool = False) -> None:
        monkeypatch.setattr(command, "kind", lambda: kind)
        monkeypatch.setattr(report, "description", lambda: f"Measured on {kind} at {ours}.")
        isa = NAMED["x86-64-v4-amx" if tiles else "x86-64-v4"]
        monkeypatch.setattr(report, "host_isa", lambda: isa)
        monkeypatch.setattr(command, "race", lambda subject, names, seconds: standing("", ours))
        for name in rows:
            quick = dataclasses.replace(ROWS[name], build=lambda: None)
            monkeypatch.setitem(ROWS, name, quick)
            monkeypatch.setattr(sys, "argv", ["bench", "--only", name])
            command.main()

    return run


def document() -> dict[str, str]:
    """The sections of docs/performance.md by their headings."""
    title, *rest = Path("docs/performance.md").read_text().split("\n## ")
    assert title.startswith("# Performance\n")
    return {text.partition("\n")[0]: text.partition("\n")[2] for text in rest}


def test_a_run_on_one_kind_of_processor_replaces_its_own_figures_alone(measure) -> None:
    measure(EPYC_4, 0.001, ["bert", "mlp"])
    measure(XEON, 0.002, ["bert"], tiles=True)
    first, kept = document(), json.loads(Path("docs/performance.json").read_text())
    assert list(first) == [EPYC_4, XEON]
    plots = {path.name: path.read_text() for path in Path("docs").glob("*.svg")}
    assert len(plots) == 2
    measure(EPYC_5, 0.003, ["bert"])
    measure(XEON, 0.004, ["bert"], tiles=True)
    second, now = document(), json.loads(Path("docs/performance.json").read_text())
    assert list(second) == [EPYC_4, EPYC_5, XEON]
    assert second[EPYC_4] == first[EPYC_4] and now[EPYC_4] == kept[EPYC_4]
    assert "4 ms" in second[XEON] and "2 ms" in first[XEON]
    assert now[XEON]["steady"]["bert"]["seconds"]["kernelmill"] == 0.004
    assert now[XEON]["measured"]["bert"] == f"Measured on {XEON} at 0.004."
    assert set(now[EPYC_4]["steady"]) == {"bert", "mlp"}
    after = {path.name: path.read_text() for path in Path("docs").glob("*.svg")}
    assert len(after) == 3 and plots.items() <= after.items()
    for kind, text in second.items():
        assert f"]({report.plot_name(kind)})" in text


def test_goals_are_those_of_the_processor(measure) -> None:
    measure(EPYC_5, 0.001, ["bert", "gpt2"])
    assert list(document()) == [EPYC_5]
    measure(XEON, 0.001, ["bert", "gpt2"], tiles=True)
    found = document()
    assert list(found) == [EPYC_5, XEON]
    lines = {kind: row_of(text, "BERT-base 1 x 128") for kind, text in found.items()}
    # Twice as fast as eager, at all of the limit: goals are 1.1 and 88 %, or 1.8.
    assert lines[EPYC_5] == ["eager", "**2.00**", "1.1", "1 ms", "**100%**", "88%"]
    assert lines[XEON] == ["eager", "**2.00**", "1.8", "1 ms", "100%", "-"]
    assert row_of(found[EPYC_5], "GPT-2 (124M)") == row_of(found[XEON], "GPT-2 (124M)")


def row_of(text: str, title: str) -> list[str]:
    """The first line of a table that begins so, from the other contestant's name on."""
    line = next(line for line in text.splitlines() if line.startswith(f"| {title} |"))
    return [cell.strip() for cell in line.split("|")[4:-1]]


def test_what_is_recorded_is_what_the_documents_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    records = report.load()
    assert command.DOCUMENT.read_text() == report.document(records)
    plots = {path.name for path in Path("docs").glob("performance*.svg")}
    assert plots == {report.plot_name(kind) for kind in records}
    for kind, one in records.items():
        assert command.DOCUMENT.with_name(report.plot_name(kind)).read_text() == report.plot(
            one.steady
        )
        assert all(kind in text for text in one.measured.values())


def test_records_read_back(tmp_path: Path) -> None:
    one = report.Record({"bert": standing("bert", 0.5)}, {}, FixedCost({"eager": 1e-6}))
    one.measured["bert"], one.tiles = "Measured.", True
    path = tmp_path / "figures.json"
    assert report.load(path) == {}
    report.save({XEON: one, EPYC_5: report.Record()}, path)
    assert report.load(path) == {XEON: one, EPYC_5: report.Record()}


# ---- other documents ----------------------------------------------------------------------------


def page(path: Path, figure: int) -> Page:
    rows = {
        "call": lambda: [("a call", f"{figure} ms")],
        "other": lambda: [("another", "9 s")],
    }
    return Page("calls", str(path), "Title", [Table("Calls", ("", "time"), rows)])


def test_a_run_replaces_the_tables_of_its_kind_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "document.md"
    monkeypatch.setattr(harness, "have_bytecode", lambda: None)
    for kind, figure in ((XEON, 1), (EPYC_4, 2)):
        monkeypatch.setattr(harness, "kind", lambda kind=kind: kind)
        monkeypatch.setattr(harness, "description", lambda kind=kind: f"Measured on 1: {kind} (x).")
        page(path, figure).run()
    path.write_text(path.read_text().replace("| 2 ms |", "| 2 ms |\n\nA note.\n\n### More"))
    kept = path.read_text().partition("## Intel")[2]
    monkeypatch.setattr(harness, "description", lambda: f"Measured on 2: {EPYC_4} (x).")
    page(path, 3).run(["call"])
    assert "3 ms" not in path.read_text()
    page(path, 3).run()
    assert path.read_text() == (
        f"# Title\n\n## {EPYC_4}\n\n`python -m tools.bench calls`. Measured on 2: {EPYC_4} (x).\n\n"
        "### Calls\n\n|  | time |\n| --- | ---: |\n| a call | 3 ms |\n| another | 9 s |\n\n"
        f"A note.\n\n### More\n| another | 9 s |\n\n## Intel{kept}"
    )


def test_turns_repeat_short_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    now, order = 0.0, ""

    def call(name: str, seconds: float) -> None:
        nonlocal now, order
        now += seconds
        order += name

    monkeypatch.setattr(harness.time, "perf_counter", lambda: now)
    calls = {"a": lambda: call("a", 1.0), "b": lambda: call("b", 3.0)}
    found = harness.in_turns(calls, turns=2, seconds=2.5)
    assert found == {"a": [1.0, 1.0], "b": [3.0, 3.0]}
    assert order == "aaabbb" + 2 * "aab"
    assert harness.race(calls, 3) == {"a": 1.0, "b": 3.0}


def test_children_say_what_they_found_or_why_they_failed() -> None:
    assert harness.child("dumps([1])", "json") == "[1]"
    with pytest.raises(RuntimeError, match="JSONDecodeError"):
        harness.child("loads('{')", "json")


def test_a_checkout_gets_bytecode_where_python_writes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "src" / "package" / "module.py"
    source.parent.mkdir(parents=True)
    source.write_text("x = 1\n")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    harness.have_bytecode(tmp_path)
    assert Path(cache_from_source(str(source))).exists()


@pytest.mark.parametrize("name", command.PAGES)
def test_pages_can_be_measured(name: str) -> None:
    if name in ("tokens", "sentences"):
        pytest.importorskip("transformers")
    own = import_module(f"tools.bench.{name}").PAGE
    assert own.name == name and all(each.subjects for each in own.tables)
    assert len({each.heading for each in own.tables}) == len(own.tables)
    if Path(ROOT / own.path).exists():
        assert (ROOT / own.path).read_text().startswith(f"# {own.title}\n")


@pytest.mark.parametrize("path", sorted((ROOT / "docs").glob("performance-*.md")), ids=str)
def test_committed_documents_have_them(path: Path) -> None:
    text = path.read_text()
    head, *rest = text.split("\n## ")
    assert "\n" not in head.strip()
    for section in rest:
        kind = section.partition("\n")[0]
        assert ", family " in kind and f"{kind} (" in section


# ---- kinds of processors ------------------------------------------------------------------------


def test_processors_of_one_name_are_kept_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "cpuinfo"
    monkeypatch.setattr(machine, "_CPUINFO", file)
    monkeypatch.delenv("KERNELMILL_TARGET", raising=False)
    kinds: list[str] = []
    for family, model in ((25, 17), (26, 2)):
        file.write_text(
            f"processor\t: 0\ncpu family\t: {family}\nmodel\t\t: {model}\n"
            "model name\t: AMD EPYC\nstepping\t: 1\n"
        )
        kinds.append(machine.kind())
    assert kinds == [EPYC_4, EPYC_5]
    monkeypatch.setenv("KERNELMILL_TARGET", "x86-64-v2")
    assert machine.kind() == f"{EPYC_5}, code for x86-64-v2"
    text = machine.description()
    assert f"{EPYC_5}, code for x86-64-v2 (x86-64-v2)" in text and "revision " in text


def test_measurements_name_what_the_environment_sets_about_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    assert "OMP_WAIT_POLICY" not in machine.description()
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    assert machine.description().endswith("OMP_WAIT_POLICY=PASSIVE.")


# ---- rows ---------------------------------------------------------------------------------------


def test_rows_for_tiles_are_a_group() -> None:
    wanted = {
        "bert_bf16", "bert_8_bf16", "resnet50_bf16", "resnet50_8_bf16", "bert", "bert_8",
        "bert_high", "bert_8_high", "minilm_16", "quant_matmul", "product_bf16",
        "decoder_step_bf16",
    }  # fmt: skip
    assert set(TILES) == wanted
    assert len({row.name for row in STEADY}) == len(STEADY)


def test_groups_and_several_rows_run_in_processes_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran: list[list[str]] = []

    class Done:
        returncode = 0

    def run(arguments: list[str]) -> Done:
        ran.append(arguments[7:])
        return Done()

    monkeypatch.setattr(command.subprocess, "run", run)
    monkeypatch.setattr(command, "have_bytecode", lambda: None)
    monkeypatch.setattr(sys, "argv", ["bench", "--only", "tiles", "mlp", "--seconds", "3"])
    command.main()
    assert ran == [["--only", name] for name in (*TILES, "mlp")]


@pytest.mark.parametrize("name", ["product", "quant_matmul", "high"])
def test_subjects_run_and_are_right(name: str) -> None:
    torch.manual_seed(0)
    subject: Model = {
        "product": lambda: models.product_bf16(64),
        "quant_matmul": lambda: quant_matmul(16, 64, 32),
        "high": lambda: models.high(models.product_bf16(64)),
    }[name]()
    found = race(subject, ["eager", "kernelmill"], 0.05)
    assert set(found.seconds) == {"eager", "kernelmill"} and not found.refused
    assert found.errors["kernelmill"].largest <= subject.wrong


def test_a_subject_says_how_exact_products_have_to_be() -> None:
    subject = models.high(models.product_bf16(16))
    assert torch.get_float32_matmul_precision() == "highest"
    with subject.settings():
        assert torch.get_float32_matmul_precision() == "high"
    assert torch.get_float32_matmul_precision() == "highest"
    assert models.product_bf16(16).name != subject.name


def test_the_peak_of_tiles_is_measured_by_their_kernel() -> None:
    plain = Isa(host_isa().triple, host_isa().cpu)  # with vectors in the unit's place
    assert limits.unit_operations(TILE_BF16, plain) > 0


def test_copies_of_arguments_follow_them() -> None:
    halves, whole = torch.zeros(3, dtype=torch.bfloat16), torch.zeros(3)
    copy = halves.float()
    follow = contestants._followed((halves, whole), (copy, whole))
    refill((halves, whole))
    assert not torch.equal(copy, halves.float())
    follow()
    assert torch.equal(copy, halves.float())
    copy.zero_()
    follow()  # nothing was written to what it is a copy of
    assert torch.equal(copy, torch.zeros(3))


@pytest.mark.parametrize("causal, share", [(False, 1.0), (True, 0.5)])
def test_attention_counts_with_both_of_its_products(causal: bool, share: float):
    class Attention(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=causal)

    case = Case("attention", Attention(), (torch.randn(2, 3, 16, 8),))
    assert operations(Model(case)) == share * 2 * 2 * (2 * 3) * (16 * 16 * 8)


def test_documents_name_pages_that_can_be_measured() -> None:
    named = {
        name
        for path in (ROOT / "docs").rglob("*.md")
        for name in re.findall(r"python -m tools\.bench[ .](\w+)", path.read_text())
    }
    assert named and named <= {"models", *command.PAGES}
