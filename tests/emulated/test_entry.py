"""The native entry, whose text is the same for all processors, on the emulated one."""

from __future__ import annotations

import llvmlite.binding as llvm

from kernelmill.core.machine import host
from kernelmill.runtime import executor
from kernelmill.runtime.layout import SettingBits
from tests.emulation import Emulator


def test_the_entry_notes_changes_and_sees_how_floats_are_computed(emulated: Emulator) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(host().isa.triple).create_target_machine(
        opt=0, reloc="pic", codemodel="small"
    )
    image = machine.emit_object(llvm.parse_assembly(executor._source().decode()))
    symbols = [*executor._ENTRIES, *executor._WATCHERS]
    # A dict at 4096 and a class at 8192 have changed; each is told so that it is watched no more.
    found = emulated.entry(image, symbols, 4096, 8192)
    usual, to_zero = found.pop("settings")
    assert found == {
        "count": 2, "noted": [4096, 8192], "unwatched": [[1, 4096], [2, 8192]],
    }  # fmt: skip
    # Another way of rounding is another way of computing.
    assert usual & SettingBits.FLOAT_MODE == 0 and to_zero & SettingBits.FLOAT_MODE
