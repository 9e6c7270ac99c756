"""Processors of another family than this machine's, and what objects say that they are for."""

from __future__ import annotations

import platform
import struct

ELF_MACHINES = {"x86-64-v3": 62, "aarch64-neon": 183}
"""By an ISA's name, e_machine of its objects. Source: System V ABI, "ELF Header"."""

OTHER = "x86-64-v3" if platform.machine() == "aarch64" else "aarch64-neon"
"""An ISA that this machine cannot run."""


def machine_of(image: bytes) -> int:
    """e_machine of an object."""
    return struct.unpack_from("<H", image, 0x12)[0]
