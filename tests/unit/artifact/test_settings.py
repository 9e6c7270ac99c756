"""Torch's settings: each row of the table is seen in text and, where there is one, in the word."""

import ctypes
from dataclasses import replace

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from kernelmill.artifact import settings
from kernelmill.artifact.settings import (
    SETTINGS,
    Setting,
    SettingsCheck,
    TorchSwitch,
    difference,
    modes,
    state,
    switched,
)
from kernelmill.inference import cache_compile
from kernelmill.runtime import quick
from kernelmill.runtime.layout import SettingBits
from kernelmill.runtime.quick import REFUSED
from tests.torch_settings import CHANGES, WAYS


class Mode(TorchFunctionMode):
    pass


KNOB = ["off"]
FILLING = TorchSwitch(
    "deterministicFillUninitializedMemory",
    lambda: torch.utils.deterministic.fill_uninitialized_memory,
    lambda value: setattr(torch.utils.deterministic, "fill_uninitialized_memory", value),
)
NEW_ROWS = {
    "native": (switched("new", FILLING), lambda new: FILLING.set(not new)),
    "without a native function": (
        switched("new", replace(FILLING, native="nobodyHasThis")), lambda new: FILLING.set(not new),
    ),
    "of Python": (
        Setting("new", "nothing", 0, lambda: KNOB[0]),
        lambda new: KNOB.__setitem__(0, "on" if new else "off"),
    ),
}  # fmt: skip


class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1


@pytest.mark.parametrize("kind", NEW_ROWS)
def test_a_row_is_all_that_a_new_setting_takes(kind, monkeypatch, tmp_path) -> None:
    row, turn = NEW_ROWS[kind]
    monkeypatch.setattr(settings, "SETTINGS", (*SETTINGS, row))
    settings.native_bits.cache_clear()
    try:
        turn(False)
        x, call = torch.zeros(3), cache_compile(Model().forward, cache_dir=str(tmp_path))
        for traced, new in enumerate((False, True), start=1):
            turn(new)
            quick = call._quick
            assert traced == 1 or quick((x,)) is REFUSED
            assert call(x).tolist() == [1, 1, 1] and call(x).tolist() == [1, 1, 1]
            assert call._quick((x,)) is not REFUSED
            assert call.statistics["traced"] == traced
        turn(False)
        assert call._quick((x,)) is REFUSED and call(x).tolist() == [1, 1, 1]
        assert call.statistics["traced"] == 2
        assert bool(settings.native_bits()["new"]) == (kind == "native")
    finally:
        turn(False)
        monkeypatch.undo()
        settings.native_bits.cache_clear()
        settings.native_bits()


def test_every_setting_has_a_way_to_change_it() -> None:
    assert list(CHANGES) == [setting.name for setting in SETTINGS]


@pytest.mark.parametrize(("name", "way"), WAYS)
def test_a_setting_changes_its_text_and_its_bits_and_no_others(name: str, way: int) -> None:
    before, word = state(), quick.settings()
    with CHANGES[name][way]():
        changed, other = state(), quick.settings()
    assert [n for n in before if changed[n] != before[n]] == [name]
    assert word != other and (word ^ other) & ~settings.native_bits()[name] == 0
    assert (state(), quick.settings()) == (before, word)


@pytest.mark.parametrize(("name", "way"), WAYS)
def test_a_check_finds_every_change_and_that_it_is_gone(name: str, way: int) -> None:
    check = SettingsCheck(state())
    assert check.difference() == check.difference() == ""
    with CHANGES[name][way]():
        assert check.difference().startswith(f"{name}: was ")
        assert check.difference().startswith(f"{name}: was ")
    assert check.difference() == ""


def test_two_default_devices_are_told_apart() -> None:
    with torch.device("meta"):
        check = SettingsCheck(state())
        assert check.difference() == ""
    with torch.device("cuda:1"):
        assert check.difference() == "default device: was meta, is cuda:1"


def test_what_means_the_same_is_no_difference() -> None:
    expected = state()
    with torch.device("cpu"):
        assert difference(expected) == ""
    torch.set_float32_matmul_precision("highest")  # "none" before
    with torch.no_grad(), torch.inference_mode():
        assert difference(expected) == ""


def test_modes_are_those_that_see_operators() -> None:
    with torch.device("meta"):
        assert modes() == []
        with Mode(), FlopCounterMode(display=False):
            assert [name.rpartition(".")[2] for name in modes()] == ["Mode", "_FlopCounterMode"]
            assert quick.settings() & SettingBits.FUNCTION_MODES
            assert quick.settings() & SettingBits.DISPATCH_MODES
    assert modes() == []


def test_flags_of_past_operations_do_not_count() -> None:
    word = quick.settings()
    assert ctypes.c_float(1e-45 * 1e-300).value == 0.0 and 1.0 / 3.0 > 0.0  # underflow, inexact
    torch.tensor([1.0, -1.0]) / torch.zeros(2)
    assert quick.settings() == word
