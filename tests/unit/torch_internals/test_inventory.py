"""Every private part has a probe that passes here, and says what happens without it."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kernelmill import aot
from kernelmill.core import knobs
from kernelmill.core.errors import ConfigError, UnsupportedError
from kernelmill.torch_internals import failed, forced, registry, state

registry.register_all()
NAMES = sorted(registry.known())

needs_all = pytest.mark.skipif(
    bool(knobs.WITHOUT_INTERNALS.get()), reason="some are left out of this run"
)


@needs_all
@pytest.mark.parametrize("name", NAMES)
def test_its_probe_passes_with_this_torch(name: str) -> None:
    assert registry.known()[name].works, registry.outcomes()[name].problem


@pytest.mark.parametrize("name", NAMES)
def test_it_says_why_it_is_there_and_what_happens_without_it(name: str) -> None:
    part = registry.known()[name]
    subject, _, rest = name.partition(".")
    assert subject in registry.SUBJECTS and rest
    assert part.probe.__module__ == f"kernelmill.torch_internals.{subject}"
    assert part.reason and part.fallback and part.reason[-1] != "."


@pytest.mark.parametrize("name", NAMES)
def test_a_failed_probe_is_one_log_line_and_in_the_reports(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    part = registry.known()[name]
    with forced([name]), caplog.at_level(logging.WARNING, "kernelmill"):
        assert part.get() is None and not part.works
        (line,) = [r.getMessage() for r in caplog.records if name in r.getMessage()]
        assert part.fallback in line
        (one,) = [one for one in failed() if one.name == name]
        assert (one.works, one.problem) == (False, "it is not to be used")
        with pytest.raises(UnsupportedError, match=f"torch .* is not supported: {name}"):
            part.require()
    assert not part.works or name not in [one.name for one in failed()]


def test_a_probe_that_raises_has_failed_and_says_how(caplog: pytest.LogCaptureFixture) -> None:
    def probe() -> object:
        raise AttributeError("module 'torch' has no attribute 'inner'")

    part = registry.Internal("test.raises", "a test", "nothing happens", probe)
    outcome = registry._run(part)
    registry._outcomes.pop("test.raises")
    assert outcome.found is None and "no attribute 'inner'" in outcome.problem
    assert "test.raises does not work (AttributeError" in caplog.text


def test_the_environment_leaves_parts_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELMILL_WITHOUT_INTERNALS", "sizes.functions, llvm.functions")
    part = registry.known()["sizes.functions"]
    before = registry._outcomes.pop(part.name, None)
    try:
        assert not part.works
    finally:
        registry._outcomes.pop(part.name)
        if before is not None:
            registry._outcomes[part.name] = before


def test_what_is_asked_for_is_recorded_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KERNELMILL_RECORD_INTERNALS", str(tmp_path / "asked"))
    names = ["sizes.functions", "llvm.functions"]
    with forced(names):
        for name in (*names, *names):
            registry.known()[name].get()
    assert (tmp_path / "asked").read_text().split() == names


def test_the_state_lists_all_parts_by_name() -> None:
    rows = state()
    assert [row.name for row in rows] == NAMES
    assert all(row.works == (not row.problem) and row.seconds >= 0 for row in rows)


def test_a_name_that_is_not_known_cannot_be_forced() -> None:
    with (
        pytest.raises(ConfigError, match=r"no internal sizes\.nothing; known: .*sizes\.functions"),
        forced(["sizes.nothing"]),
    ):
        pass


def test_what_has_failed_is_in_the_reports_of_programs(tmp_path: Path) -> None:
    x = torch.ones(2, 3)
    program = aot.load(aot.compile(torch.relu, (x,), path=tmp_path / "f.kmill"))
    with forced(["sizes.functions"]):
        assert not registry.known()["sizes.functions"].works
        assert program.report()["without_sizes_functions"] == 1
    left_out = "sizes.functions" in knobs.WITHOUT_INTERNALS.get()
    assert ("without_sizes_functions" in program.report()) == left_out


def test_what_needs_no_torch_does_not_import_it() -> None:
    code = (
        "import sys\n"
        "import kernelmill, kernelmill.codegen.compile, kernelmill.kernel, kernelmill.plan\n"
        "from kernelmill.torch_internals import llvm, registry\n"
        "assert llvm.unlocked_emit.works\n"
        "assert 'torch' not in sys.modules\n"
    )
    others = {k: v for k, v in os.environ.items() if k != knobs.WITHOUT_INTERNALS.name}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=others)
    assert done.returncode == 0, done.stderr
