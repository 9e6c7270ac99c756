"""Torch's settings that change what is traced, or what the traced code computes.

`SETTINGS` is the one table of them: what an entry keeps, what a later call compares, and the table
in docs/cache.md. A call compares one word, which the native executor makes (`bits` are those of a
setting in it); only when that is another, or cannot tell, the settings themselves are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from kernelmill.artifact.fingerprint import name_of
from kernelmill.runtime import quick
from kernelmill.runtime.layout import SettingBits
from kernelmill.runtime.object_checks import supported
from kernelmill.torch_internals.dispatch import active_modes, float32_precision

_TINY, _ONE = 5e-324, 1.0  # the smallest denormal


@dataclass(frozen=True)
class Setting:
    """`read` gives it as text, the same in every process; `how` it is set, for people."""

    name: str
    how: str
    bits: int
    read: Callable[[], str]


def _autocast() -> str:
    on = torch.is_autocast_enabled("cpu")
    return str(torch.get_autocast_dtype("cpu")) if on else "off"


def _default_device() -> str:
    device = torch.get_default_device()
    return "cpu" if device.type == "cpu" else str(device)


def _precision() -> str:
    operators = ("matmul", "conv", "rnn")
    found = map(float32_precision, operators)
    return ", ".join("ieee" if text == "none" else text for text in found)


def _flushes() -> str:
    return str(_TINY * _ONE == 0.0)


SETTINGS = (
    Setting(
        "autocast", "`torch.autocast(\"cpu\")`, its dtype",
        SettingBits.AUTOCAST | SettingBits.AUTOCAST_DTYPE, _autocast,
    ),
    Setting(
        "deterministic", "`torch.use_deterministic_algorithms`", SettingBits.DETERMINISM,
        lambda: str(torch.are_deterministic_algorithms_enabled()),
    ),
    Setting(
        "default dtype", "`torch.set_default_dtype`", SettingBits.DEFAULT_DTYPE,
        lambda: str(torch.get_default_dtype()),
    ),
    Setting(
        "default device", "`torch.set_default_device`, `with torch.device(...)`",
        SettingBits.FUNCTION_MODES, _default_device,
    ),
    Setting(
        "float32 precision",
        "`torch.set_float32_matmul_precision`, `torch.backends.fp32_precision`, "
        "`torch.backends.mkldnn.*.fp32_precision`", SettingBits.PRECISION, _precision,
    ),
    Setting("flush denormals", "`torch.set_flush_denormal`", SettingBits.FLOAT_MODE, _flushes),
)  # fmt: skip

_BITS = sum(setting.bits for setting in SETTINGS)
_UNSURE = SettingBits.FUNCTION_MODES


def state() -> dict[str, str]:
    """All settings by name."""
    return {setting.name: setting.read() for setting in SETTINGS}


def difference(expected: Mapping[str, str]) -> str:
    """The first setting that is not as expected, in words; "" when all are."""
    now = state()
    for name, value in expected.items():
        if now.get(name) != value:
            return f"{name}: was {value}, is {now.get(name)}"
    return ""


class SettingsCheck:
    """Compares the settings of calls with `expected`."""

    def __init__(self, expected: Mapping[str, str]) -> None:
        self._expected = expected
        self._right: Any = None

    def difference(self) -> str:
        """What is not as expected, in words; "" when all is."""
        if not self._expected:
            return ""
        now = quick.settings() & _BITS if supported() else _UNSURE
        if now == self._right:
            return ""
        found = difference(self._expected)
        if not found and not now & _UNSURE:
            self._right = now
        return found


def modes() -> list[str]:
    """The active modes that see each operator, by the names of their classes: function modes but
    that of a default device, then dispatch modes. One without a class where it cannot be told
    whether there are any."""
    found = active_modes()
    if found is None and supported():
        bits = SettingBits.FUNCTION_MODES | SettingBits.DISPATCH_MODES
        found = None if quick.settings() & bits else []
    return ["unknown modes"] if found is None else [name_of(type(mode)) for mode in found]
