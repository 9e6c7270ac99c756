"""Each test runs without each private part that its module asks for, and only without these."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.fresh import FreshProcesses
from tools import without_each
from tools.without_each import Found, Runner, State, is_pair, main, rows, run_all, table, updated

SAMPLES = sorted(map(str, Path(__file__).parent.glob("without_each_*sample.py")))
PARTS = [
    "dispatch.precision", "native.packed", "tensors.allocate", "tensors.handle", "tensors.version",
]  # fmt: skip


class Ran:
    """The samples have run, and what was found is in a file."""

    def __init__(self, fresh: FreshProcesses, folder: Path) -> None:
        self.path, runner = folder / "state", Runner(fresh, folder, folder / "kernels")
        self.names = runner.collect(SAMPLES)
        run_all([runner], self.names, PARTS, State(self.path))
        self.state = State(self.path)

    def outcomes(self, name: str) -> dict[str, str]:
        """Of a test by the part that it ran without."""
        found = self.state.found.items()
        return {p: one.outcome for (test, p), one in found if test.endswith(f"::{name}")}

    def text(self, name: str, part: str) -> str:
        (test,) = [test for test in self.names if test.endswith(f"::{name}")]
        return self.state.found[test, part].text


@pytest.fixture(scope="module")
def ran(fresh: FreshProcesses, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return Ran(fresh, tmp_path_factory.mktemp("each"))


PASSED = dict.fromkeys(("", *PARTS), "passed")


def test_a_test_runs_without_what_it_asks_for(ran: Ran) -> None:
    assert ran.outcomes("test_that_asks") == PASSED | {"dispatch.precision": "failed"}
    assert "the precision" in ran.text("test_that_asks", "dispatch.precision")


def test_what_an_earlier_test_has_asked_for_counts_too(ran: Ran) -> None:
    assert ran.outcomes("test_that_asks_for_the_same") == PASSED | {"dispatch.precision": "failed"}


def test_what_imports_ask_for_is_left_out_before_them(ran: Ran) -> None:
    expected = PASSED | {"tensors.allocate": "failed"}
    assert ran.outcomes("test_of_what_imports_have_asked_for") == expected


def test_what_a_module_does_not_ask_for_is_not_left_out(ran: Ran) -> None:
    expected = {"": "passed", "tensors.allocate": "passed"}
    assert ran.outcomes("test_that_asks_for_nothing") == expected


def test_what_needs_a_part_is_skipped_without_it(ran: Ran) -> None:
    expected = PASSED | {"native.packed": "skipped"}
    assert ran.outcomes("test_that_needs_what_it_asks_for") == expected


def test_an_error_that_names_the_part_is_a_refusal(ran: Ran) -> None:
    assert ran.outcomes("test_that_asks_in_vain") == PASSED | {"tensors.handle": "refused"}


def test_a_process_that_ends_is_a_failure_and_the_next_test_runs(ran: Ran) -> None:
    assert ran.outcomes("test_that_ends_its_process") == PASSED | {"tensors.version": "failed"}
    assert ran.text("test_that_ends_its_process", "tensors.version") == "its process ended"
    assert ran.outcomes("test_after_it") == PASSED


def test_what_fails_with_all_parts_does_not_run_without(ran: Ran) -> None:
    assert ran.outcomes("test_that_fails_with_all_parts") == {"": "failed"}


def test_a_run_goes_on_with_what_is_not_settled(ran: Ran) -> None:
    class Again(Runner):
        def __init__(self) -> None:
            self.ran: list[tuple[str, str]] = []

        def record(self, tests: Sequence[str]) -> list[Found]:
            self.ran += [(test, "") for test in tests]
            return []

        def without(self, part: str, tests: Sequence[str]) -> list[Found]:
            self.ran += [(test, part) for test in tests]
            return []

    again = Again()
    run_all([again], ran.names, PARTS, State(ran.path))
    failed = {pair for pair, found in ran.state.found.items() if found.outcome == "failed"}
    assert len(failed) == 5
    assert {pair for pair in again.ran if pair[1]} == {pair for pair in failed if pair[1]}
    modules = {name.partition("::")[0] for name, part in again.ran if not part}
    assert modules == {name.partition("::")[0] for name, part in failed if not part}


def test_the_table_counts_pairs(ran: Ran) -> None:
    found = rows(ran.state, ran.names, PARTS, "today, here")
    assert [*found.values()] == [
        "| dispatch.precision | 7 | 7 | 5 | 2 | 0 | 0 | today, here |\n",
        "| native.packed | 7 | 7 | 6 | 0 | 0 | 1 | today, here |\n",
        "| tensors.allocate | 8 | 8 | 7 | 1 | 0 | 0 | today, here |\n",
        "| tensors.handle | 7 | 7 | 6 | 0 | 1 | 0 | today, here |\n",
        "| tensors.version | 7 | 7 | 6 | 1 | 0 | 0 | today, here |\n",
    ]
    assert "\n36 of 36 pairs" in f"\n{table(found)}"


def test_rows_of_other_parts_stay_in_the_document() -> None:
    begin, end = without_each._BEGIN, without_each._END
    old = {name: f"| {name} | 2 | 1 | 1 | 0 | 0 | 0 | then |\n" for name in ("a", "b", "gone")}
    new = {name: f"| {name} | 3 | 3 | 3 | 0 | 0 | 0 | now |\n" for name in ("b", "c")}
    document = updated(f"before\n{begin}{table(old)}{end}after\n", new, ["a", "b", "c"])
    expected = table({"a": old["a"], "b": new["b"], "c": new["c"]})
    assert document == f"before\n{begin}{expected}{end}after\n"
    assert expected.startswith("7 of 8 pairs")
    with pytest.raises(ValueError, match="no place"):
        updated("nothing", new, ["a"])


@pytest.mark.parametrize("some", [["--share", "1/2"], ["tests/e2e/aot"]])
def test_the_document_is_for_all_tests(some: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--write", *some])
    assert "--write is for all tests" in capsys.readouterr().err


def test_compiling_asks_for_its_parts_in_every_test() -> None:
    state = State(None)
    state.add([Found("a", "", "passed")])
    assert is_pair(state, "a", "llvm.functions") and not is_pair(state, "a", "native.packed")


def test_some_tests_run_without_each_part_before_more_do() -> None:
    class Noting(Runner):
        def __init__(self) -> None:
            self.ran: list[tuple[str, int]] = []

        def without(self, part: str, tests: Sequence[str]) -> list[Found]:
            self.ran.append((part, len(tests)))
            return [Found(test, part, "passed") for test in tests]

    names = [f"{folder}/test.py::{number}" for folder in "ab" for number in range(50)]
    state, runner = State(None), Noting()
    state.add(Found(name, "", "passed", asked=("x.p", "x.q")) for name in names)
    run_all([runner], names, ["x.p", "x.q"], state)
    assert [part for part, _ in runner.ran] == ["x.p", "x.q"] * 4
    assert sorted(runner.ran) == sorted((part, n) for part in ("x.p", "x.q") for n in (40, 10) * 2)


def test_several_run_at_a_time_and_those_that_take_long_last() -> None:
    """Each of two waits in its first group for the other's."""
    both = threading.Barrier(2)

    class Meeting(Runner):
        def __init__(self) -> None:
            self.ran: list[str] = []

        def without(self, part: str, tests: Sequence[str]) -> list[Found]:
            if not self.ran:
                both.wait(60)
            self.ran += tests
            return [Found(test, part, "passed") for test in tests]

    names = [f"{folder}/test.py::{number}" for folder in "abcd" for number in range(3)]
    state, runners = State(None), (Meeting(), Meeting())
    state.add(
        Found(name, "", "passed", asked=("x.p",), seconds=5.0 * name.endswith("1"))
        for name in names
    )
    run_all(runners, names, ["x.p"], state)
    assert sorted(runners[0].ran + runners[1].ran) == sorted(names)
    assert all(state.settled(name, "x.p") for name in names)
    for runner in runners:
        long = [name.endswith("1") for name in runner.ran]
        assert long == sorted(long)
