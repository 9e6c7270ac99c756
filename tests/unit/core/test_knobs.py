"""Environment variables: read when asked for, and refused with their name."""

import os

import pytest

from kernelmill.core import knobs
from kernelmill.core.errors import ConfigError


def test_unset_and_empty_give_the_default(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    assert knobs.RANK.get() == 0
    monkeypatch.setenv("RANK", "")
    assert knobs.RANK.get() == 0


def test_values_are_typed_and_read_each_time(monkeypatch):
    monkeypatch.setenv("RANK", "3")
    assert knobs.RANK.get() == 3
    monkeypatch.setenv("KERNELMILL_KERNEL_META", f"/opt/shipped{os.pathsep}/var/own")
    assert knobs.KERNEL_META.get() == ("/opt/shipped", "/var/own")


@pytest.mark.parametrize(("name", "value"), [("RANK", "-1"), ("KERNELMILL_DEBUG", "maybe")])
def test_a_bad_value_is_refused_by_name(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    knob = next(knob for knob in knobs.KNOBS if knob.name == name)
    with pytest.raises(ConfigError, match=name):
        knob.get()


def test_names_that_nearly_begin_like_ours_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    before = knobs.unknown()
    for name in ("KERNELMIL_LOGS", "KERNELMILL_LOG", "LOCAL_RANK", "KERNEL_META"):
        monkeypatch.setenv(name, "all")
    assert set(knobs.unknown()) - set(before) == {"KERNELMIL_LOGS", "KERNELMILL_LOG"}
