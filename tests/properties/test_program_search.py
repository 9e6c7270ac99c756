"""The search with random programs: several workers find what one finds, and runs add up."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.programs.check import Checker, Verdict, by_name
from tests.programs.generator import generate
from tools import program_record, program_workers
from tools.program_record import Fault, Record, Run, counts_of, document, recorded
from tools.programs import Search


def test_several_workers_find_what_one_finds() -> None:
    found: list[Any] = []
    for workers in (1, 2):
        search = Search(["default", "gears"], workers)
        found.append(search.run(range(310, 316)))
        search.stop()
    assert found[0] == found[1]
    assert found[0][0].programs == 6 and found[0][0].counts["default"].total() >= 6


class Dying:
    """A connection to a process that sends one verdict and dies, or hangs."""

    def __init__(self, hangs: bool) -> None:
        self.hangs, self.sent = hangs, 0

    def send(self, job: None) -> None:
        raise BrokenPipeError

    def poll(self, seconds: float) -> bool:
        return self.sent == 0 or not self.hangs

    def recv(self) -> Verdict:
        self.sent += 1
        if self.sent > 1:
            raise EOFError
        return Verdict("default", "right")


@pytest.mark.parametrize("kind", ["crash", "hang"])
def test_a_process_that_dies_or_hangs_is_wrong_in_that_mode_and_replaced(kind: str) -> None:
    worker: Any = program_workers.Worker()
    before, pipe = worker._process.pid, worker._pipe
    worker._pipe = Dying(kind == "hang")
    found: list[Verdict] = []
    left = worker._received(["default", "aot", "dynamic"], found)
    pipe.close()
    assert [(one.mode, one.kind) for one in found] == [("default", ""), ("aot", kind)]
    assert left == ["dynamic"]
    assert worker._process.pid != before
    assert [one.status for one in worker.check(310, left)] == ["right"]
    worker.stop()


def test_a_process_that_is_busy_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(used: list[float]) -> list[tuple[str, str]]:
        worker: Any = program_workers.Worker.__new__(program_workers.Worker)
        worker._checks, times = 0, iter(used)
        worker._pipe = Slow(len(used) - 1)
        worker._process = Dead()
        monkeypatch.setattr(worker, "_processor_seconds", lambda: next(times), raising=False)
        monkeypatch.setattr(worker, "stop", lambda: None, raising=False)
        monkeypatch.setattr(worker, "_start", lambda: None, raising=False)
        verdicts: list[Verdict] = []
        worker._received(["default"], verdicts)
        return [(one.status, one.kind) for one in verdicts]

    limit = program_workers.CHECK_SECONDS
    assert found([3.0, 10.0, 20.0, 30.0]) == [("right", "")]
    assert found([3.0, 10.0, 10.1]) == [("wrong", "hang")]
    assert found([3.0, limit, limit + 4.0]) == [("wrong", "hang")]


class Slow:
    """A connection to a process that sends a verdict when it is asked for the nth time."""

    def __init__(self, left: int) -> None:
        self.left = left

    def poll(self, seconds: float) -> bool:
        self.left -= 1
        return self.left < 0

    def recv(self) -> Verdict:
        return Verdict("default", "right")


class Dead:
    """A process that can be killed."""

    def kill(self) -> None:
        pass


def test_modes_share_what_eager_does_and_are_judged_as_alone() -> None:
    names = ["default", "dynamic", "cache-trace", "cache-load", "aot"]
    for seed in (311, 314):
        program = generate(seed)
        modes = [by_name(name) for name in names if by_name(name).takes(program)]
        with Checker(program) as checker:
            together = [checker.verdict(mode) for mode in modes]
        alone: list[Verdict] = []
        for mode in modes:
            with Checker(program) as checker:
                alone.append(checker.verdict(mode))
        assert together == alone


def test_runs_add_up_and_a_fault_stays_until_its_seed_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_record, "DATA", tmp_path / "programs.json")
    monkeypatch.setattr(program_record, "RESULT", tmp_path / "programs.md")
    right = counts_of([Verdict("default", "right", fallback=True), Verdict("aot", "right")])
    wrong = counts_of([Verdict("default", "wrong", "values"), Verdict("aot", "invalid")])
    fault = Fault(30001, "one", "values of result 0", ["default"], "what is wrong")
    record = recorded()
    assert record.next_seed == program_record.FIRST_SEED
    for revision, seed, counts, faults in (
        ("one", 30000, right, []),
        ("one", 30001, wrong, [fault]),
        ("two", 30002, right, []),
    ):
        record.add(Run(revision, [(seed, seed + 1)], counts), faults)
        record.write()
        assert recorded() == record
    assert record.next_seed == program_record.FIRST_SEED
    behind = Record([Run("three", [(program_record.FIRST_SEED, program_record.FIRST_SEED + 2)])])
    assert behind.next_seed == program_record.FIRST_SEED + 2
    assert [(run.revision, run.seeds) for run in record.runs] == [
        ("one", [(30000, 30002)]),
        ("two", [(30002, 30003)]),
    ]
    assert "| default | 3 | 2 | 0 | 0 | 1 | 1 | 2 |" in document(record)
    assert "| aot | 2 | 2 | 0 | 0 | 0 | 0 | 0 |" in document(record)
    assert "| one | 2 | 30000 to 30001 |" in document(record)
    assert "what is wrong" in document(record)
    assert "what is wrong" not in document(Record(record.runs))


def test_the_documents_belong_together() -> None:
    shown = program_record.RESULT.read_text()
    record = recorded()
    for run in record.runs:
        assert f"| {run.revision} | {run.programs:,} |" in shown
    assert all(str(fault).rstrip() in shown for fault in record.faults)
    assert os.path.exists(program_record.DATA)
