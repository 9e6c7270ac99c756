"""Figures of the machine: measured, kept, read back, and refused where they make no sense."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kernelmill.cli.main import main
from kernelmill.compiler import calibration
from kernelmill.compiler.calibration import calibration_key, figures, machine_for, recalibrate
from kernelmill.core.dtype import F32
from kernelmill.core.machine import PROFILES, Machine, host
from kernelmill.store.entry import Compiled
from kernelmill.store.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "kernels")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rounds: what is measured does not matter here."""
    monkeypatch.setattr(calibration, "_MEASURE_NS", 0)
    monkeypatch.setattr(calibration, "_LEAST_ROUNDS", 1)
    monkeypatch.setattr(calibration, "_MEMORY_BYTES", 1 << 20)


def keep(store: Store, text: str) -> None:
    compiled = Compiled(text.encode(), {}, {"kernelName": "Machine"})
    store.put(calibration_key(host()), calibration.TYPE, compiled)


def test_without_figures_the_committed_ones_serve(store: Store) -> None:
    assert machine_for(store) == host()


@pytest.mark.usefixtures("quick")
def test_what_was_measured_is_found_again(store: Store) -> None:
    measured = recalibrate(store)
    assert measured.isa == host().isa
    assert set(dict(measured.rates.dots)) == {unit.name for unit in host().isa.dot_units}
    again = machine_for(Store(store.folder.path))
    assert figures(again) == figures(measured)
    assert measured.dot_unit(F32).name == "multiply_add"


@pytest.mark.usefixtures("quick")
def test_tuning_measures_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    first = machine_for(store, measure=True)

    def never(machine: Machine) -> Machine:
        raise AssertionError("measured a second time")

    monkeypatch.setattr(calibration, "calibrate", never)
    assert figures(machine_for(store, measure=True)) == figures(first)


def test_a_named_isa_has_the_committed_figures(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(store, json.dumps(figures(replace(host(), launch_ns=123.0))))
    assert machine_for(store, "x86-64-v3", measure=True) == PROFILES["x86-64-v3"]
    assert machine_for(store, "native").launch_ns == 123.0
    monkeypatch.setenv("KERNELMILL_TARGET", "x86-64-v2")
    assert machine_for(store, measure=True) == PROFILES["x86-64-v2"]
    assert machine_for(store, "native").launch_ns == 123.0


@pytest.mark.parametrize("wrong", [None, -1.0, 0, 1e12, "8", True])
def test_kept_figures_that_make_no_sense_are_not_used(store: Store, wrong: object) -> None:
    good = figures(replace(host(), launch_ns=123.0))
    keep(store, json.dumps(good))
    assert machine_for(store).launch_ns == 123.0
    keep(store, json.dumps({**good, "operations": wrong} if wrong is not True else []))
    assert machine_for(store) == host()


@pytest.mark.usefixtures("quick")
def test_the_command_measures_and_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path / "kernels")
    assert main(["calibrate", "--folder", folder]) == 0
    measured = capsys.readouterr().out
    assert "multiply_add" in measured and "nanoseconds of a launch" in measured
    assert main(["calibrate", "--folder", folder, "--show"]) == 0
    assert capsys.readouterr().out == measured
