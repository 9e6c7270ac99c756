"""Reports of `explain`: facts, JSON, trace, and the page as a browser shows it."""

from __future__ import annotations

import json
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from torch import nn

import kernelmill
from kernelmill.core.errors import InputError
from kernelmill.inference import set_dim_gears
from kernelmill.report import Explanation
from kernelmill.runtime.weights import streaming
from tests.browser import CHROMIUM, FLAGS


class Hostile(nn.Module):
    """A super kernel, an ATen call, and names that would be a script in a careless page."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 96), nn.Linear(96, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with kernelmill.scope.super_kernel("block"):
            x = self.second(torch.tanh(self.first(x)))
        return torch.linalg.qr(x)[0] + 1


Hostile.__name__ = "<script>alert('x')</script>"


def explained(model: nn.Module, *args: torch.Tensor, **options: bool) -> Explanation:
    with torch.inference_mode():
        return kernelmill.explain(model.eval(), *args, **options)


@pytest.fixture
def report() -> Explanation:
    return explained(Hostile(), torch.randn(48, 64))


def test_facts_of_steps(report: Explanation) -> None:
    (facts,) = report.programs
    first, second, qr, last = facts.steps
    (whole,) = facts.supers
    assert [step.kind for step in facts.steps] == ["kernel", "kernel", "aten", "kernel"]
    assert first.scope == second.scope == whole.name and (whole.first, whole.last) == (0, 2)
    assert last.scope == "" and qr.scope == ""
    assert [step.after for step in facts.steps] == [(), (0,), (1,), (2,)]
    assert first.reads[0].what in ("x", "packed weights")
    assert [use.what for use in last.writes] == ["result"]
    assert first.operations is not None and first.operations >= 2 * 48 * 64 * 96
    assert last.bytes == 2 * 48 * 48 * 4 and last.operations == 48 * 48
    assert qr.title == "aten.linalg_qr.default" and qr.reason == "no translation"
    assert re.match(r"test_report\.py:\d+", qr.origin)
    assert facts.fallbacks == (qr,)
    assert all(step.time and step.threads for step in facts.steps)
    assert all(step.limit and step.share for step in (first, second, last))
    assert facts.calls == 1 and whole.time is not None
    names = {kernel.name for kernel in report.reports[0].kernels}
    assert {look.name for look in facts.store} == names
    assert {first.title, second.title, last.title} <= names


def test_the_parts_of_a_call_are_the_call(report: Explanation) -> None:
    call = report.call
    assert call.rounds >= 3 and call.compiled and call.eager and call.recorded
    parts = call.kernels + call.aten + call.between + call.outside
    assert parts == pytest.approx(call.recorded)
    assert {(bar.step, bar.whole) for bar in call.timeline} == {
        (0, True), (0, False), (1, False), (2, False), (3, False),
    }  # fmt: skip
    assert all(0 <= bar.begin <= bar.end <= call.recorded for bar in call.timeline)
    assert call.threads[0] == "caller"


def test_memory_is_that_of_the_plan(report: Explanation) -> None:
    (facts,) = report.programs
    memory = facts.memory
    assert memory.arena == int(report.reports[0].arena_bytes)
    assert max(memory.live) <= memory.arena and len(memory.live) == len(facts.steps)
    assert all(each.offset + each.bytes <= memory.arena for each in memory.placed)
    assert memory.weights == 4 * (64 * 96 + 96 + 96 * 64 + 64)


def test_json_text_and_trace_have_the_same_facts(report: Explanation) -> None:
    data = json.loads(json.dumps(report.as_dict()))
    (program,) = data["programs"]
    titles = [step.title for step in report.programs[0].steps]
    assert [step["title"] for step in program["steps"]] == titles
    assert data["call"]["outcome"] == report.call.outcome
    assert all(title in str(report) for title in titles)
    events = json.loads(json.dumps(report.trace()))["traceEvents"]
    named = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    spans = [event for event in events if event["ph"] == "X"]
    assert list(named.values()) == list(report.call.threads)
    assert {span["name"] for span in spans} == {*titles, report.programs[0].supers[0].name}
    assert {span["tid"] for span in spans} <= named.keys()
    (last,) = (span for span in spans if span["args"].get("step") == 3)
    assert last["args"]["writes"] == ["f32[48, 48]"] and last["args"]["bytes"] == 2 * 48 * 48 * 4


def test_without_measuring_nothing_is_called_again() -> None:
    calls: list[int] = []

    class Counted(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if not torch.compiler.is_compiling():
                calls.append(1)
            return x + 1

    found = explained(Counted(), torch.ones(3), measure=False)
    assert calls == [] and found.call.outcome == "not measured"
    assert found.programs[0].steps[0].time is None


def test_measuring_leaves_arguments_buffers_and_random_numbers_alone() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count += 1
            x += 1
            return x * torch.rand(3)

    model, x = Counting(), torch.zeros(3)
    torch.manual_seed(3)
    found = explained(model, x)
    assert found.call.rounds >= 3
    after = torch.rand(3)
    assert model.count.item() == 2 and x.tolist() == [2, 2, 2]
    torch.manual_seed(3)
    torch.rand(3), torch.rand(3)
    assert torch.equal(after, torch.rand(3))


def test_weights_that_are_packed_for_the_first_time_are_not_written_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streaming, "LEAST_BYTES", 0)
    monkeypatch.setattr(streaming, "SHARE_BYTES", 0)
    layers = [nn.Linear(700, 700) for _ in range(24)]
    model = nn.Sequential(*layers).eval().requires_grad_(False)
    with torch.no_grad():
        report = kernelmill.explain(model, torch.randn(8, 700))
    assert report.call is not None
    assert not [reason.text for reason in report.call.reasons if "packing" in reason.text]


def test_a_model_that_can_be_called_twice_only_is_told_of() -> None:
    class Twice(nn.Module):
        left = 2

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.left == 0:
                raise ValueError("no more calls")
            self.left -= 1
            return x + 1

    found = explained(Twice(), torch.ones(3))
    assert found.call.error == "ValueError: no more calls"
    assert found.call.outcome == "not measured" and "not measured" in str(found)
    assert "no more calls" in found.html()


def test_gears_are_programs_of_their_own() -> None:
    x = torch.randn(20, 8)
    set_dim_gears(x, {0: [16, 20, 32]})
    found = explained(nn.Linear(8, 4), x)
    assert {facts.gear: facts.calls for facts in found.programs} == {(16,): 0, (20,): 1, (32,): 0}


class Page(HTMLParser):
    """Of a page: its elements, its text, and what could load something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def text(self) -> str:
        return " ".join(self.words)


def test_the_page_is_accessible_and_loads_nothing(report: Explanation) -> None:
    page = Page(report.html())
    assert page.all("html") == [{"lang": "en"}] and len(page.all("main")) == 1
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids))
    for attributes in page.all("svg"):
        assert attributes["role"] == "img"
        assert set(str(attributes["aria-labelledby"]).split()) <= set(ids)
    assert all(a.get("scope") in ("col", "row") for a in page.all("th"))
    assert len(page.all("caption")) == len(page.all("table"))
    assert [
        a for a in page.all("a") if str(a["href"])[0] != "#" or str(a["href"])[1:] not in ids
    ] == []
    assert not any(re.match("https?:|//", str(v)) for _, a in page.tags for v in a.values())
    assert len(page.all("script")) == 1  # the name of the model is none
    assert "<script>alert('x')</script>" in page.text
    (policy,) = (a for a in page.all("meta") if a.get("http-equiv"))
    assert str(policy["content"]).startswith("default-src 'none'")


def test_a_notebook_shows_the_page_in_a_frame_of_its_own(report: Explanation) -> None:
    cell = Page(report._repr_html_() * 2)  # type: ignore[reportPrivateUsage]  # what Jupyter calls
    first, second = cell.tags
    assert first == second and first[0] == "iframe", "all that could clash is inside"
    assert first[1]["sandbox"] == "allow-scripts" and "x" in str(first[1]["title"])
    shown, page = Page(str(first[1]["srcdoc"])), Page(report.html())
    assert shown.all("base") == [{"href": "about:srcdoc"}], "its links stay in the frame"
    assert [each for each in shown.tags if each[0] != "base"] == page.tags
    assert shown.text.split() == page.text.split()
    assert page.all("base") == [], "a file's links are to the file"


def test_python_shows_the_text(report: Explanation) -> None:
    assert repr(report) == str(report)


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium")
def test_a_browser_shows_the_report(report: Explanation, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    report.save(path)
    sort = (
        "<script>document.querySelector('#program0 ~ .scroll th button').click();</script></body>"
    )
    path.write_text(path.read_text().replace("</body>", sort))
    command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    done = subprocess.run([*command, path.as_uri()], capture_output=True, text=True, timeout=120)
    page = Page(done.stdout)
    text = " ".join(page.text.split())
    (facts,) = report.programs
    for step in facts.steps:
        assert step.title in text and step.origin in text
    assert facts.supers[0].name in text and "no translation" in text
    assert f"0 of {len(facts.store)} kernels" in text or "kernels were there already" in text
    assert "caller" in text and "Super kernels:" in text
    assert {"none", "ascending"} == {a["aria-sort"] for a in page.all("th") if "aria-sort" in a}
    assert "Steps of graph" in text and "sorted by Step, ascending" in text
    assert len([a for a in page.all("svg") if a["role"] == "img"]) == 3
    assert len(page.all("circle")) == len(facts.steps)


def test_a_capture_of_sizes_is_named_by_them() -> None:
    config = kernelmill.CompilerConfig()
    config.mode = "reduce-overhead"
    with torch.inference_mode():
        found = kernelmill.explain(
            nn.Tanh(), torch.randn(5, 8), compiler_config=config, dynamic=True
        )
    dynamic, capture = found.programs
    assert re.match(rf"{dynamic.name} at .*=5", capture.name)
    assert (dynamic.calls, capture.calls) == (0, 1)
    assert capture.steps[0].bytes == 2 * 5 * 8 * 4


class OfPair(nn.Module):
    def forward(self, pair: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return pair[0] + pair[1]


def test_a_tuple_in_place_of_the_arguments_is_refused_with_what_to_write() -> None:
    x = torch.ones(2, 4)
    with pytest.raises(InputError, match=r"Linear does not take this tuple.*explain\(model, \*"):
        kernelmill.explain(nn.Linear(4, 4), (x,))
    assert explained(OfPair(), (x, x), measure=False).is_compiled


def test_a_measured_call_has_its_shortest(report: Explanation) -> None:
    call = report.call
    assert call.least_compiled <= call.compiled and call.least_eager <= call.eager
    assert "(least " in str(report) and "(least " in report.html()


class Blocks(nn.Module):
    """Layers of equal kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def test_steps_know_their_modules_also_where_they_share_a_kernel() -> None:
    found = explained(Blocks(), torch.randn(32, 64))
    (facts,) = found.programs
    assert [step.module for step in facts.steps] == ["layers.0", "layers.1", "layers.2"]
    data = found.as_dict()
    assert [each["launches"] for each in data["by_kernel"]] == [3]
    modules = {each["path"]: each["steps"] for each in data["by_module"]}
    assert modules == {"layers": 3, "layers.0": 1, "layers.1": 1, "layers.2": 1}
    text = str(found)
    assert "kernels by total time:" in text and "time by module:" in text
    assert re.search(r"3 x MatMul\w+, (nothing left here: )?\d+% of limit by", text)
    assert "do first: " in text or not found.call.reasons


def test_two_reports_are_compared() -> None:
    found = explained(Blocks(), torch.randn(32, 64))
    table = found.changes_since(found.as_dict())
    assert table == found.changes_since(found)
    head, call, step = table.splitlines()
    assert head.split() == ["before", "now", "saved"]
    assert call.endswith("0 ns  a call") and step.endswith("matmul add maximum -> f32[32, 64]"), (
        table
    )


def test_the_code_of_a_step_is_one_click_away(report: Explanation) -> None:
    page = Page(report.html())
    links = {str(a["href"]) for a in page.all("a") if str(a["href"]).startswith("#code-")}
    names = {step.title for step in report.programs[0].steps if step.kind == "kernel"}
    assert links == {f"#code-{name}" for name in names}
    kernels = [a for a in page.all("div") if str(a.get("id")).startswith("code-")]
    assert len(kernels) >= len(names) and len(page.all("pre")) == 2 * len(kernels)
    assert "task_begin" in page.text or "kernel km_" in page.text, "the IR"
    assert ".text" in page.text, "the assembly"


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium")
def test_a_link_to_code_opens_it(report: Explanation, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    report.save(path)
    command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    address = f"{path.as_uri()}#code-{report.programs[0].steps[0].title}"
    done = subprocess.run([*command, address], capture_output=True, text=True, timeout=120)
    assert len([a for a in Page(done.stdout).all("details") if "open" in a]) == 1
