"""Processors with a tile unit that are not there, and the system's answers: for tests of all that
happens around the permission, on any machine. Tests that run tiles are marked `REAL`."""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kernelmill.core.target import isa, machine
from kernelmill.core.target.isa import NAMED, cpuinfo_flags
from kernelmill.store import installer

AMX = NAMED["x86-64-v4-amx"]

REAL = pytest.mark.skipif(not set(AMX.cpu_flags) <= cpuinfo_flags(), reason="no AMX")
"""For tests that run where the processor has the unit."""

GET_PERMITTED, REQUEST, TILE_DATA = 0x1022, 0x1023, 18
"""Codes of arch_prctl, and the number of the feature. Source: Linux, uapi/asm/prctl.h."""


class System:
    """What Linux answers to arch_prctl. `asked` has the codes of all calls.

    error   the answer to a request; 0: yes
    lies    the answer is yes, and nothing is permitted
    knows   it knows these codes at all
    """

    def __init__(self, error: int = 0, lies: bool = False, knows: bool = True) -> None:
        self.error, self.lies, self.knows = error, lies, knows
        self.permitted = 0b111
        self.asked: list[int] = []

    def arch_prctl(self, code: int, argument: int) -> int:
        """In the place of the one that asks Linux."""
        self.asked.append(code)
        if not self.knows:
            return errno.EINVAL
        if code == GET_PERMITTED:
            ctypes.c_uint64.from_address(argument).value = self.permitted
            return 0
        assert (code, argument) == (REQUEST, TILE_DATA)
        if not self.error and not self.lies:
            self.permitted |= 1 << TILE_DATA
        return self.error


@contextmanager
def machine_with_tiles(system: System) -> Iterator[None]:
    """Inside, this machine's processor has the tile unit, and the system answers so."""
    flags = frozenset(AMX.cpu_flags)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(isa.platform, "machine", lambda: "x86_64")
        patch.setattr(isa, "cpuinfo_flags", lambda: flags)
        patch.setattr(installer, "_cpu_flags", lambda: set(flags))
        patch.setattr(isa, "_arch_prctl", system.arch_prctl)
        _forget()
        yield
    _forget()


def _forget() -> None:
    """What this process has found out about its machine."""
    for known in (isa.refusal, isa.machine_isa, isa._forced, machine._host):
        known.cache_clear()
