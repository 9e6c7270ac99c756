"""Figures of the machine: measured, kept, read back, and refused where they make no sense."""

from __future__ import annotations

import errno
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from kernelmill.cli.main import main
from kernelmill.codegen.compile import assembly
from kernelmill.compiler import calibration
from kernelmill.compiler.calibration import calibration_key, figures, machine_for, recalibrate
from kernelmill.core.dtype import BF16, F32
from kernelmill.core.target.dot_units import (
    BF16_PAIRS,
    MULTIPLY_ADD,
    TILE_BF16,
    TILE_BYTES,
    DotUnit,
)
from kernelmill.core.target.isa import NAMED, withheld
from kernelmill.core.target.machine import PROFILES, Machine, Rates, host, target_machine
from kernelmill.kernel.verifier import verify_kernel
from kernelmill.store.entry import NewEntry
from kernelmill.store.store import Store, open_store
from tests.tile_unit import REAL, System, machine_with_tiles


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
    compiled = NewEntry(text.encode(), {}, {"kernelName": "Machine"})
    store.put(calibration_key(host()), calibration.TYPE, compiled)


def test_tests_have_the_committed_figures() -> None:
    """A run of tests measures nothing that changes what others of it see."""
    assert figures(machine_for(open_store(), "native", measure=True)) == figures(
        target_machine("native")
    )


def test_without_figures_the_committed_ones_serve(store: Store) -> None:
    assert machine_for(store) == host()


@pytest.mark.usefixtures("quick")
def test_what_was_measured_is_found_again(store: Store) -> None:
    measured = recalibrate(store)
    assert measured.isa == host().isa
    units = calibration._units(host())
    assert set(dict(measured.rates.dots)) == {unit.name for unit in units}
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


@pytest.mark.parametrize("unit", [TILE_BF16, *TILE_BYTES], ids=lambda unit: unit.name)
def test_tiles_are_measured_by_two_by_two_of_them(unit: DotUnit) -> None:
    kernel = calibration.tile_kernel(unit)
    verify_kernel(kernel, "calibration")
    text = assembly(kernel, NAMED["x86-64-v4-amx"])
    loops = re.findall(r"^\.LBB\S+:\n((?:\t(?!j).*\n)*)\tj", text, re.MULTILINE)
    (inner,) = (body for body in loops if "\ttdp" in body)
    assert inner.count("\ttdp") == inner.count("tileloadd") == 16
    assert "tilestored" not in inner and "rsp" not in inner


def test_only_units_of_the_machine_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []

    def rate(machine: Machine, unit: DotUnit) -> float:
        measured.append(unit.name)
        return 0.5

    monkeypatch.setattr(calibration, "_dot_rate", rate)
    monkeypatch.setattr(calibration, "_read_rate", lambda machine, level: 8.0)
    monkeypatch.setattr(calibration, "_launch_ns", lambda machine, work: 100.0)
    tiles = {unit.name for unit in (TILE_BF16, *TILE_BYTES)}
    with_tiles = calibration.calibrate(PROFILES["x86-64-v4-amx"])
    assert tiles < set(measured)
    assert set(figures(with_tiles)["dots"]) == set(measured) == set(dict(with_tiles.rates.dots))
    for name in ("x86-64-v4-bf16", "x86-64-v4-amx-emulated"):
        measured.clear()
        calibration.calibrate(PROFILES[name])
        assert measured and not tiles & set(measured)


def test_a_machine_that_was_measured_prefers_what_is_faster() -> None:
    """Pairs of bf16 at half the rate of multiply-adds are not taken, at twice they are."""
    one = replace(PROFILES["x86-64-v4-bf16"], rates=Rates())
    for rate, unit in ((1.1, MULTIPLY_ADD), (8.0, BF16_PAIRS)):
        dots = {**dict.fromkeys((u.name for u in one.isa.dot_units), 4.1), BF16_PAIRS.name: rate}
        text = json.dumps({**figures(one), "dots": dots}).encode()
        assert calibration._with_figures(one, text).dot_unit(BF16) == unit


@REAL
@pytest.mark.usefixtures("quick")
def test_tiles_of_this_machine_are_measured(store: Store) -> None:
    if withheld():
        pytest.skip(withheld())
    dots = dict(recalibrate(store).rates.dots)
    assert {unit.name for unit in (TILE_BF16, *TILE_BYTES)} < set(dots)


def test_the_command_says_what_may_not_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    host()  # which is kept: before the machine becomes another
    with machine_with_tiles(System(errno.EPERM)):
        assert main(["calibrate", "--folder", str(tmp_path / "kernels"), "--show"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].strip().startswith("amx_bf16, amx_int8, amx_tile may not be used: ")
