"""Torch's settings: each row of the table is seen in text and, where there is one, in the word."""

import ctypes

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from kernelmill.artifact.settings import SETTINGS, SettingsCheck, difference, modes, state
from kernelmill.runtime import quick
from kernelmill.runtime.layout import SettingBits
from tests.torch_settings import CHANGES, WAYS


class Mode(TorchFunctionMode):
    pass


def test_every_setting_has_a_way_to_change_it() -> None:
    assert list(CHANGES) == [setting.name for setting in SETTINGS]


@pytest.mark.parametrize(("name", "way"), WAYS)
def test_a_setting_changes_its_text_and_its_bits_and_no_others(name: str, way: int) -> None:
    (setting,) = [setting for setting in SETTINGS if setting.name == name]
    before, word = state(), quick.settings()
    with CHANGES[name][way]():
        changed, other = state(), quick.settings()
    assert [n for n in before if changed[n] != before[n]] == [name]
    assert word != other and (word ^ other) & ~setting.bits == 0
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
