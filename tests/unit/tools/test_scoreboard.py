"""The scoreboard: what is recorded of a row, what a run measures, what the page says of it."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.repo.source import ROOT
from tests.zoo import Case
from tools import graphnet
from tools.bench import harness
from tools.bench.contestants import eager
from tools.bench.limits import FLOATS, HALVES
from tools.bench.subject import Subject, tensors
from tools.libraries.harness import difference
from tools.scoreboard import __main__ as command
from tools.scoreboard import lists, measure, page, records
from tools.scoreboard.lists import Row, UnavailableModel
from tools.scoreboard.measure import Ours, measured
from tools.scoreboard.records import EAGER, INDUCTOR, OURS, TUNED, Result

ONNX, OPENVINO = records.RUNTIMES


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELMILL_CACHE_HOME", str(tmp_path / "methods"))
    monkeypatch.setattr(measure, "TURNS_SECONDS", 0.01)
    monkeypatch.setattr(measure.OtherWork, "share", lambda self: 0.02)


# ---- a row --------------------------------------------------------------------------------------


class Two(nn.Module):
    """A small model with two results."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = torch.relu(self.first(x))
        return self.second(hidden), hidden


def row(model: nn.Module) -> Row:
    def build(batch: int) -> Subject:
        return Subject(Case("small", model.eval(), (torch.randn(batch, 8),), f"{batch} x 8"))

    return Row("list", "small", 4, build)


def off_by(amount: float, of: int = 0, results: int = 2) -> Any:
    """A contestant whose result of that number is off by so much, of so many that it returns."""

    class OffBy:
        def __init__(self, subject: Subject) -> None:
            self.call, self.compiled = eager(subject), self

        def __call__(self) -> tuple[torch.Tensor, ...]:
            found = tensors(self.call())[:results]
            found[of % len(found)] = found[of % len(found)] + amount
            return tuple(found)

        def report(self) -> Namespace:
            return Namespace(programs=[1], captures=[], counters={}, torch={})

    return OffBy


def refuses(subject: Subject) -> Any:
    raise NotImplementedError("no such operator\nand more")


def run(entrants: dict[str, Any], dtype: str = FLOATS, model: nn.Module | None = None) -> Result:
    torch.manual_seed(0)
    return measured(row(model or Two()), 3, dtype, {EAGER: eager, **entrants}, 60.0)


def test_a_row_has_times_first_calls_memory_and_errors_of_all() -> None:
    found = run({OURS: Ours, ONNX: off_by(0.0, results=1)})
    assert found.seconds.keys() == found.first.keys() == found.memory.keys() == {EAGER, OURS, ONNX}
    assert found.shape == "3 x 8" and found.weights == 4 * (8 * 16 + 16 + 16 * 4 + 4)
    assert (found.graphs, found.fallbacks, found.by_torch, found.uncompiled) == (1, 0, [], [])
    assert found.compiled and found.tried and found.best in (EAGER, ONNX) and not found.stopped
    assert 0 < found.errors[OURS] < 1e-5 and not found.wrong and not found.refused


@pytest.mark.parametrize("amount, of", [(0.5, 0), (math.nan, 1), (math.inf, 1)])
def test_a_wrong_result_is_recorded_wherever_it_is(amount: float, of: int) -> None:
    found = run({OURS: off_by(amount, of), INDUCTOR: off_by(0.0)})
    assert found.wrong == [OURS] and not found.errors[OURS] < 0.1
    assert found.best is None and found.seconds == {}
    assert page.figures([found])["wrong"] == 1


def test_rounding_of_bfloat16_is_right_there_alone() -> None:
    entrants = {OURS: off_by(0.01)}
    assert run(entrants).wrong == [OURS]
    assert run(entrants, HALVES).wrong == []


def test_what_magnifies_rounding_is_right_if_eager_is_as_far() -> None:
    class Cancels(nn.Module):
        """Small differences of large numbers: eager is wrong by a part of the result."""

        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.linear(x)
            return (y + 1e6) - 1e6

    found = run({OURS: off_by(0.02)}, model=Cancels())
    assert found.errors[EAGER] > measure.MOST_ERROR[FLOATS] and found.wrong == []


def test_a_contestant_that_fails_does_not_stop_the_row() -> None:
    found = run({OURS: Ours, OPENVINO: refuses})
    assert found.refused == {OPENVINO: "NotImplementedError: no such operator"}
    assert found.seconds.keys() == {EAGER, OURS} and not found.stopped


def test_a_contestant_that_takes_too_long_is_stopped() -> None:
    def goes_on(subject: Subject) -> Any:
        try:
            time.sleep(600.0)
        except Exception:
            time.sleep(600.0)

    entrants = {EAGER: eager, OURS: off_by(0.0), TUNED: goes_on}
    found = measured(row(Two()), 3, FLOATS, entrants, 2.0)
    assert found.refused == {TUNED: "TimeoutError: not ready after 2 s"}
    assert found.seconds.keys() == {EAGER, OURS} and not found.stopped


def test_a_row_without_eager_has_its_reason_and_no_times() -> None:
    found = run({EAGER: refuses, OURS: off_by(0.0)})
    assert found.stopped == "eager: NotImplementedError: no such operator"
    assert found.seconds == {} and found.wrong == []


@pytest.mark.parametrize("shares", [(0.02, 0.4), (0.4, 0.02)])
def test_a_row_beside_other_work_has_no_times(
    shares: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    found_shares = iter(shares)  # of our first call, of the turns
    monkeypatch.setattr(measure.OtherWork, "share", lambda self: next(found_shares))
    found = run({OURS: off_by(0.0)})
    assert found.seconds == {} and found.others == 0.4 and found.is_stale(found.revision, False)
    assert found.stopped == "other work had 40% of the processors: measure again"


def test_a_system_that_does_not_report_other_work_has_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(measure.OtherWork, "share", lambda self: None)
    found = run({OURS: off_by(0.0)})
    assert found.seconds.keys() == {EAGER, OURS} and not found.is_stale(found.revision, False)


def test_fallbacks_and_graphs_in_torch_are_counted() -> None:
    class Sorts(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.svdvals(x) + 1

    assert run({OURS: Ours}, model=Sorts()).fallbacks > 0


def test_a_model_that_is_not_there_is_recorded() -> None:
    def build(batch: int) -> Subject:
        raise UnavailableModel("not in this version of library: small")

    found = measured(Row("list", "small", 4, build), 1, FLOATS, {EAGER: eager}, 60.0)
    assert found.unavailable == "not in this version of library: small"
    assert not found.tried and "compiled, %" not in page.figures([found])


def test_nan_and_infinity_differ_from_numbers_alone() -> None:
    values = torch.tensor([1.0, math.inf, math.nan])
    assert difference([values], [values.clone()]) == 0.0
    for other in (math.nan, math.inf):
        assert difference([values], [torch.tensor([other, math.inf, math.nan])]) == math.inf
    pairs = [torch.ones(2), torch.ones(2)], [torch.tensor([1.0, 1.5]), torch.full((2,), math.nan)]
    assert difference(*pairs) == math.inf


# ---- a run --------------------------------------------------------------------------------------


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the command with three rows, whose figures are made up; returns those measured."""
    (tmp_path / "docs").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "have_bytecode", lambda: None)
    rows = [Row("list", name, 4, lambda batch: None) for name in "abc"]
    monkeypatch.setattr(lists, "all_rows", lambda graphs="": rows)

    def begun(
        *arguments: str, revision: str = "one", most: int = 9, others: float = 0.0
    ) -> list[str]:
        ran: list[str] = []

        def found(key: str, options: Namespace, seconds: float) -> Result | None:
            if len(ran) == most:
                return None
            ran.append(key)
            return result(eager=2.0, ours=1.0, revision=revision, others=others)

        monkeypatch.setattr(command, "revision", lambda: revision)
        monkeypatch.setattr(command, "by_a_child", found)
        monkeypatch.setattr(sys, "argv", ["scoreboard", *arguments])
        command.main()
        return ran

    return begun


def result(eager: float, ours: float, revision: str = "one", **more: Any) -> Result:
    seconds = {EAGER: eager, OURS: ours}
    return Result("Measured.", revision, "1 x 2", 1 << 20, seconds, dict(seconds), **more)


def test_a_run_goes_on_where_it_stopped(begin: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert begin(most=2) == ["list/a", "list/b"]
    assert "goes on with list/c" in capsys.readouterr().out
    assert begin() == ["list/c"]
    assert begin() == []
    assert begin("--again", "--only", "a", "list/b") == ["list/a", "list/b"]
    assert begin("--list") == []
    assert "list/a: 2.00 times eager, one" in capsys.readouterr().out


def test_another_revision_dtype_or_thread_count_is_measured_anew(begin: Any) -> None:
    assert begin("--only", "b") == ["list/b"]
    assert begin("--threads", "7", "--only", "b") == ["list/b"]
    assert begin("--dtype", "bfloat16", "--only", "b") == ["list/b"]
    assert len(records.load()) == 3
    # Those come first that have no figures at all.
    assert begin(revision="two") == ["list/a", "list/c", "list/b"]
    assert begin("--tuned", revision="two", most=1) == ["list/a"]


def test_rows_beside_other_work_are_measured_again_and_replace_none(begin: Any) -> None:
    assert begin("--only", "a") == ["list/a"]
    assert begin("--again", others=0.4) == ["list/b", "list/c", "list/a"]
    (run,) = records.load().values()
    assert [run[f"list/{name}"].others for name in "abc"] == [0.0, 0.4, 0.4]
    assert begin() == ["list/b", "list/c"]
    assert begin() == []


def test_unknown_rows_are_refused(begin: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        begin("--only", "nosuch")
    assert "no rows: nosuch" in capsys.readouterr().err


def options() -> Namespace:
    return Namespace(
        graphs="", batch="1", dtype=FLOATS, threads=1, tuned=False, row_seconds=9.0, seconds=99.0
    )


def test_contestants_have_as_long_where_the_time_of_the_run_is_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def child(call: str, module: str, folder: str, seconds: float, **_: str) -> Any:
        calls.append((call.split(", ")[1], seconds))
        return vars(Result("Measured.", "one"))

    calls: list[tuple[str, float]] = []
    monkeypatch.setattr(command, "child", child)
    for seconds in (9.0, 2.0):
        assert command.by_a_child("list/a", options(), seconds) is not None
    assert calls == [("3.0", 9.0), ("3.0", 2.0)]


def test_a_row_that_takes_too_long_is_stopped_and_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    said = Result("Measured.", "one", first={EAGER: 1.0}, stopped=f"first call of {INDUCTOR}")

    def late(call: str, module: str, folder: str, seconds: float, **_: str) -> Any:
        lines = f"noise\n{json.dumps(vars(said))}\n"
        raise subprocess.TimeoutExpired(call, seconds, output=lines.encode())

    monkeypatch.setattr(command, "child", late)
    found = command.by_a_child("list/a", options(), 9.0)
    assert found is not None and found.first == {EAGER: 1.0}
    assert found.stopped == f"first call of {INDUCTOR}: not done after 9 s"
    # The run's time was up before the row's was.
    assert command.by_a_child("list/a", options(), 8.0) is None


def test_a_row_that_ends_its_process_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    def child(call: str, module: str, folder: str, seconds: float, **own: str) -> Any:
        said = json.dumps(vars(Result("Measured.", "one", stopped="steady calls")))
        ends = f"_exit((print({said!r}, flush=True), 3)[1])"
        return harness.child(ends, "os", folder, seconds, **own)

    monkeypatch.setattr(command, "child", child)
    found = command.by_a_child("list/a", options(), 9.0)
    assert found is not None and found.stopped.startswith("steady calls: ")
    assert "ended with status 3" in found.stopped


def test_a_process_has_so_many_seconds() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        harness.child("sleep(600)", "time", most_seconds=1.0)


# ---- lists --------------------------------------------------------------------------------------


def test_rows_have_names_of_their_own() -> None:
    rows = lists.all_rows()
    assert len({row.key for row in rows}) == len(rows) > 60
    assert {"huggingface/BertForMaskedLM", "own/resnet50"} <= {row.key for row in rows}
    of_each = {row.list for row in rows[:20]}
    assert of_each == {row.list for row in rows}


def test_what_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "find_spec", lambda name: None if name == "timm" else name)
    (sentence,) = lists.lacking()
    assert sentence.startswith("timm is not installed: timm is left out. `make scoreboard`")
    assert not any(row.list == "timm" for row in lists.all_rows())
    monkeypatch.setattr(lists, "find_spec", lambda name: name)
    assert lists.lacking() == [] and any(row.list == "timm" for row in lists.all_rows())


def test_models_of_transformers_have_random_weights_or_a_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = {"vocab_size": 50, "d_model": 16, "d_kv": 4, "d_ff": 32, "num_layers": 1}
    data = {"classes": {"Small": ["T5ForConditionalGeneration", {**sizes, "num_heads": 2}]}}
    monkeypatch.setattr(lists, "_DATA", data)
    subject = lists._hugging_face("Small", 5, 2)
    assert [tuple(arg.shape) for arg in subject.args] == [(2, 5), (2, 5)]
    assert subject.case.run().logits.shape == (2, 5, 50)
    with pytest.raises(UnavailableModel, match="not in this version of transformers: NoSuchModel"):
        lists._hugging_face("NoSuchModel", 5, 2)
    monkeypatch.setattr(lists, "available_memory", lambda: 0)
    with pytest.raises(UnavailableModel, match="10 times its weights"):
        lists._hugging_face("Small", 5, 2)


def test_captured_graphs_are_rows(tmp_path: Path) -> None:
    folder = tmp_path / "samples" / "small"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(
        "import torch\nclass GraphModule(torch.nn.Module):\n"
        "    def forward(self, L_self_weight_, s0, L_x_, L_ids_):\n"
        "        return (L_x_ @ L_self_weight_ * s0 + L_ids_,)\n"
    )

    def meta(name: str, shape: list[int], dtype: str, data: Any) -> str:
        values = {"name": name, "shape": shape, "dtype": dtype, "data": data, "mean": 0.5, "std": 2}
        return f"class M_{name}:\n" + "".join(f"    {n} = {v!r}\n" for n, v in values.items())

    (folder / "weight_meta.py").write_text(
        meta("L_self_weight_", [4, 3], "torch.float32", None)
        + meta("s0", [], "torch.int64", [7])
        + meta("L_x_", [2, 4], "torch.float32", None)
        + meta("L_ids_", [3], "torch.int64", [1, 2, 3])
    )
    model, (x, ids) = graphnet.sample(folder)
    weight = model.get_buffer("L_self_weight_")
    assert weight.shape == (4, 3) and ids.tolist() == [1, 2, 3]
    assert torch.equal(model(x, ids)[0], x @ weight * 7 + ids)
    (row,) = [row for row in lists.all_rows(str(tmp_path)) if row.list == "graphnet"]
    assert row.key == "graphnet/samples/small"
    assert row.build(1).args[0].shape == (2, 4)


# ---- the page -----------------------------------------------------------------------------------

RUN = {
    "own/a": {
        "measured": "Measured on 1.", "revision": "one", "shape": "1 x 2", "weights": 10 << 20,
        "seconds": {EAGER: 4.0, INDUCTOR: 3.0, OPENVINO: 2.0, OURS: 1.0},
        "first": {EAGER: 1.0, INDUCTOR: 32.0, OURS: 2.0}, "memory": {OURS: 11 << 20},
        "graphs": 1, "refused": {ONNX: "no | operator"},
    },
    "timm/b": {
        "measured": "Measured on 1.", "revision": "one", "shape": "1 x 2", "weights": 10 << 20,
        "seconds": {EAGER: 1.0, INDUCTOR: 0.75, OURS: 1.0}, "first": {INDUCTOR: 8.0, OURS: 2.0},
        "memory": {OURS: 13 << 20}, "graphs": 2, "uncompiled": ["a cycle"], "fallbacks": 3,
        "others": 0.06,
    },
    "timm/c": {
        "measured": "Measured on 2.", "revision": "one", "seconds": {EAGER: 1.0},
        "first": {OURS: 1.0}, "graphs": 1, "wrong": [OURS], "errors": {OURS: 0.25},
    },
    "timm/d": {"measured": "Measured on 2.", "revision": "one", "unavailable": "not there"},
}  # fmt: skip


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> records.Records:
    (tmp_path / "docs").mkdir()
    monkeypatch.chdir(tmp_path)
    records.DATA.write_text(json.dumps({"AMD EPYC, family 1; float32, 2 threads": RUN}))
    return records.load()


def test_records_read_back(given: records.Records) -> None:
    records.save(given)
    assert records.load() == given


def test_figures_are_geometric_means_and_counts(given: records.Records) -> None:
    (found,) = given.values()
    every = page.figures(found.values())
    assert every == pytest.approx({
        "rows": 4, "measured": 2, "wrong": 1, "behind": 1, "compiled, %": 200 / 3,
        EAGER: 2.0, INDUCTOR: 1.5, OPENVINO: 2.0, "best peer": math.sqrt(2.0 * 0.75),
        "first calls": 8.0, "memory": 1.2,
    })  # fmt: skip
    assert page.figures([]) == {"rows": 0, "measured": 0, "wrong": 0, "behind": 0}


def test_the_page_shows_them_and_what_is_slowest_first(given: records.Records) -> None:
    text = page.document(given)
    assert "\n## AMD EPYC, family 1; float32, 2 threads\n" in text
    assert (
        "| own | 1 | 1 | 0 | 100.00 | 4.00 | 3.00 | - | - | 2.00 | 2.00 | 0 | 16.00 | 1.10 |"
        in text
    )
    assert (
        "| all | 4 | 2 | 1 | 66.67 | 2.00 | 1.50 | - | - | 2.00 | 1.22 | 1 | 8.00 | 1.20 |" in text
    )
    assert page.document({}).endswith("\n\nNo row has been measured yet.\n")
    slowest = text.partition("### Slowest first")[2]
    assert " | 3 | 6% |\n| own/a |" in slowest
    assert slowest.index("| timm/b | 1 x 2 | 1 s | 750 ms | Inductor | 0.75 |") < slowest.index(
        "| own/a |"
    )
    for note in (
        "- own/a, ONNX Runtime: no / operator", "- timm/b, a graph in torch: a cycle",
        f"- timm/c, {OURS} is wrong by 2.5e-01", "- timm/d, not there", "- 2 rows. Measured on 2.",
    ):  # fmt: skip
        assert note in text


def test_the_picture_has_the_means_then_the_slowest(given: records.Records) -> None:
    (found,) = given.values()
    drawn = page.picture(found)
    titles = ["own, mean of 1<", "timm, mean of 1<", "all, mean of 2<", ">timm/b<", ">own/a<"]
    places = [drawn.index(title) for title in titles]
    assert places == sorted(places)


def test_what_is_recorded_is_what_the_page_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    kept = records.load()
    assert command.DOCUMENT.read_text() == page.document(kept)
    pictures = {path.name for path in Path("docs").glob("scoreboard*.svg")}
    assert pictures == {page.picture_name(name) for name in kept}
    for name, found in kept.items():
        path = command.DOCUMENT.with_name(page.picture_name(name))
        assert path.read_text() == page.picture(found)
