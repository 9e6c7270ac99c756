"""Torch's settings that change what is traced, or what the traced code computes.

`SETTINGS` is the table of them: for the state that an entry keeps, for the check at a call, and for
the table in docs/cache.md, which `python -m tools.reference` writes. A call compares one word from
the native executor; if it differs, or is inconclusive, the settings themselves are compared. A
setting without bits in the word is read in Python at each call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch

from kernelmill.artifact.fingerprint import name_of
from kernelmill.core.dataclass import dataclass
from kernelmill.runtime import quick
from kernelmill.runtime.calls.engine import supported
from kernelmill.runtime.executor import ask_for_flags
from kernelmill.runtime.layout import SettingBits
from kernelmill.torch_internals.dispatch import active_modes, float32_precision
from kernelmill.torch_internals.native import context_switch

_TINY, _ONE = 5e-324, 1.0  # the smallest denormal


@dataclass(frozen=True)
class TorchSwitch:
    """An on/off setting: `get` and `set` are torch's public functions, `native` is the getter of
    at::Context that the native executor calls."""

    native: str
    get: Callable[[], bool]
    set: Callable[[bool], None]


@dataclass(frozen=True)
class Setting:
    """A setting of torch: `read` gives it as text, the same in every process; `how` it is set, for
    people. `bits` are those of the native executor's word, besides one for each of `switches`."""

    name: str
    how: str
    bits: int
    read: Callable[[], str]
    switches: tuple[TorchSwitch, ...] = ()


def switched(name: str, *switches: TorchSwitch) -> Setting:
    """Return a setting made of switches."""
    how = ", ".join(f"`{switch.set.__module__}.{switch.set.__name__}`" for switch in switches)
    read = lambda: ", ".join(f"{switch.get.__name__} {switch.get()}" for switch in switches)  # noqa: E731
    return Setting(name, how, 0, read, switches)


def _autocast() -> str:
    dtype = torch.get_autocast_dtype("cpu")
    if torch.is_autocast_enabled("cpu"):
        return str(dtype)
    # Code that switches it on without a dtype gets this one.
    return "off" if dtype == torch.bfloat16 else f"off, {dtype}"


def _default_device() -> str:
    device = torch.get_default_device()
    return "cpu" if device.type == "cpu" else str(device)


def _precision() -> str:
    operators = ("matmul", "conv", "rnn")
    found = map(float32_precision, operators)
    return ", ".join("ieee" if text == "none" else text for text in found)


def _flushes() -> str:
    return str(_TINY * _ONE == 0.0)


_sdp: Any = torch.backends.cuda  # whose switches are those of the CPU's attention too

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
    switched(
        "attention",
        TorchSwitch("userEnabledFlashSDP", _sdp.flash_sdp_enabled, _sdp.enable_flash_sdp),
        TorchSwitch("userEnabledMathSDP", _sdp.math_sdp_enabled, _sdp.enable_math_sdp),
        TorchSwitch(
            "allowFP16BF16ReductionMathSDP", _sdp.fp16_bf16_reduction_math_sdp_allowed,
            _sdp.allow_fp16_bf16_reduction_math_sdp,
        ),
    ),
)  # fmt: skip

_UNSURE = SettingBits.FUNCTION_MODES
_LOWEST = SettingBits.FLAGS & -SettingBits.FLAGS


@cache
def native_bits() -> Mapping[str, int]:
    """Return the bits of each setting in the word, by name; 0 for one that Python must read."""
    find = context_switch.get() if supported() else None
    asked: list[int] = []
    found: dict[str, int] = {}
    for setting in SETTINGS:
        places = [(0, False) if find is None else find(s.native) for s in setting.switches]
        right = [
            bool(a) and now == s.get() for s, (a, now) in zip(setting.switches, places, strict=True)
        ]
        found[setting.name] = setting.bits
        if setting.switches and all(right):
            found[setting.name] |= sum(_LOWEST << len(asked) + n for n in range(len(places)))
            asked += [address for address, _ in places]
    ask_for_flags(asked)
    return found


def state() -> dict[str, str]:
    """Return all settings by name."""
    return {setting.name: setting.read() for setting in SETTINGS}


def difference(expected: Mapping[str, str]) -> str:
    """Describe the first setting that is not as expected; "" when all are."""
    now = state()
    for name, value in expected.items():
        if now.get(name) != value:
            return f"{name}: was {value}, is {now.get(name)}"
    return ""


class SettingsCheck:
    """A check of the settings against `expected` at each call. `unseen_fit` checks the settings
    without bits in the word, which a fast call compares; it is None where all have bits."""

    def __init__(self, expected: Mapping[str, str]) -> None:
        self._expected = expected
        self._right: Any = None
        bits = native_bits()
        self._bits = sum(bits.values())
        unseen = [(s.read, expected.get(s.name)) for s in SETTINGS if not bits[s.name] and expected]
        fit = lambda: all(read() == value for read, value in unseen)  # noqa: E731
        self.unseen_fit: Callable[[], bool] | None = fit if unseen else None

    def difference(self) -> str:
        """Describe the first setting that is not as expected; "" when all are."""
        if not self._expected:
            return ""
        now = quick.settings() & self._bits if supported() else _UNSURE
        if now == self._right and (self.unseen_fit is None or self.unseen_fit()):
            return ""
        found = difference(self._expected)
        if not found and not now & _UNSURE:
            self._right = now
        return found


def modes() -> list[str]:
    """Return the class names of the active modes that see each operator: function modes except that
    of a default device, then dispatch modes; ["unknown modes"] if modes cannot be read."""
    found = active_modes()
    if found is None and supported():
        bits = SettingBits.FUNCTION_MODES | SettingBits.DISPATCH_MODES
        found = None if quick.settings() & bits else []
    return ["unknown modes"] if found is None else [name_of(type(mode)) for mode in found]
