"""The native entry, whose text is the same for all processors, on the emulated one."""

from __future__ import annotations

from kernelmill.core.target.machine import host
from kernelmill.runtime import executor
from kernelmill.runtime.layout import SettingBits
from tests.emulation import Emulator


def test_the_entry_notes_changes_and_sees_how_floats_are_computed(emulated: Emulator) -> None:
    _, image = executor.executor_object(host().isa)
    symbols = [*executor._ENTRIES, *executor._WATCHERS]
    # A dict at 4096 and a class at 8192 have changed; each is told so that it is watched no more.
    found = emulated.entry(image, symbols, 4096, 8192)
    usual, to_zero = found.pop("settings")
    assert found == {
        "count": 2, "noted": [4096, 8192], "unwatched": [[1, 4096], [2, 8192]],
    }  # fmt: skip
    # Another way of rounding is another way of computing.
    assert usual & SettingBits.FLOAT_MODE == 0 and to_zero & SettingBits.FLOAT_MODE
