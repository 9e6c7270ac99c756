"""The permission to use tiles: asked once, refused in words, kept out of the ISA where it is."""

from __future__ import annotations

import errno
import logging
import subprocess
import sys
from dataclasses import replace

import pytest

from kernelmill.core.dtype import BF16
from kernelmill.core.errors import ConfigError
from kernelmill.core.target import isa
from kernelmill.core.target.dot_units import BF16_PAIRS, MULTIPLY_ADD
from kernelmill.core.target.isa import (
    NAMED,
    host_isa,
    machine_isa,
    target_isa,
    why_not_here,
    withheld,
)
from kernelmill.core.target.machine import PROFILES, host, profile
from tests.tile_unit import AMX, GET_PERMITTED, REAL, REQUEST, TILE_DATA, System, machine_with_tiles

REFUSED = {
    "filters of system calls": System(errno.EPERM),
    "does not switch it on": System(errno.EOPNOTSUPP),
    "signal stack is too small": System(errno.ENOSPC),
    "did not permit it": System(lies=True),
    "Linux can from 5.16": System(knows=False),
    "Bad address": System(errno.EFAULT),
}


def test_what_is_permitted_is_part_of_the_machine() -> None:
    system = System()
    with machine_with_tiles(system):
        assert machine_isa() == host_isa() == AMX
        assert (withheld(), why_not_here(AMX)) == ("", "")
    assert system.asked == [GET_PERMITTED, REQUEST, GET_PERMITTED]


def test_what_others_were_permitted_is_not_asked_for() -> None:
    system = System(error=errno.EPERM)
    system.permitted |= 1 << TILE_DATA
    with machine_with_tiles(system):
        assert machine_isa() == AMX
    assert system.asked == [GET_PERMITTED]


@pytest.mark.parametrize("words", REFUSED)
def test_where_it_is_refused_code_goes_without_and_a_warning_says_so_once(
    words: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "kernelmill.core")
    with machine_with_tiles(REFUSED[words]):
        for _ in range(2):
            assert machine_isa() == target_isa("native") == NAMED["x86-64-v4-bf16"]
            assert withheld().startswith("amx_bf16, amx_int8, amx_tile may not be used: ")
        assert words in withheld() and words in why_not_here(AMX)
        with pytest.raises(ConfigError, match="'x86-64-v4-amx': this process may not use the tile"):
            target_isa("x86-64-v4-amx")
    (warning,) = caplog.records
    assert warning.levelname == "WARNING" and words in warning.getMessage()


def test_an_isa_without_tiles_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    system = System()
    with machine_with_tiles(system):
        monkeypatch.setenv("KERNELMILL_TARGET", "x86-64-v4-bf16")
        assert host_isa() == target_isa("x86-64-v4-bf16") == NAMED["x86-64-v4-bf16"]
        assert why_not_here(AMX) == ""
    assert system.asked[0] == GET_PERMITTED
    monkeypatch.setattr(isa, "refusal", lambda: pytest.fail("asked"))
    monkeypatch.setattr(isa, "cpuinfo_flags", lambda: frozenset(NAMED["x86-64-v4"].cpu_flags))
    assert machine_isa.__wrapped__() == NAMED["x86-64-v4"]
    assert withheld() == ""


def test_without_tiles_the_rest_of_the_processor_costs_what_it_did() -> None:
    """Pairs of bf16 do not become the better choice because tiles are forbidden."""
    with machine_with_tiles(System(errno.EPERM)):
        assert host().isa == NAMED["x86-64-v4-bf16"]
        assert host().dot_unit(BF16) == MULTIPLY_ADD
        assert host().dot_rate(MULTIPLY_ADD) == PROFILES["x86-64-v4-amx"].dot_rate(MULTIPLY_ADD)
        assert profile("x86-64-v4-bf16").dot_unit(BF16) == BF16_PAIRS
    with machine_with_tiles(System()):
        assert replace(host(), l1_bytes=0, l2_bytes=0) == replace(
            PROFILES["x86-64-v4-amx"], l1_bytes=0, l2_bytes=0
        )


def test_half_a_unit_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isa.platform, "machine", lambda: "x86_64")
    flags = frozenset(AMX.cpu_flags) - {"amx_int8"}
    monkeypatch.setattr(isa, "cpuinfo_flags", lambda: flags)
    monkeypatch.setattr(isa, "refusal", lambda: pytest.fail("asked"))
    assert machine_isa.__wrapped__() == NAMED["x86-64-v4-bf16"]


BEGIN = """
import errno, os, sys
from kernelmill.core.target import isa
from tests import seccomp
from tests.tile_unit import AMX
isa.platform.machine = lambda: "x86_64"
isa.cpuinfo_flags = lambda: frozenset(AMX.cpu_flags)
"""


def run(text: str) -> subprocess.CompletedProcess[str]:
    """A process of its own whose processor has the unit, as far as it can read."""
    command = [sys.executable, "-c", BEGIN + text]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


needs_linux_on_x86 = pytest.mark.skipif(
    isa.platform.machine() != "x86_64" or sys.platform != "linux", reason="x86-64's system call"
)


@needs_linux_on_x86
@pytest.mark.parametrize(("error", "words"), [("errno.EPERM", "forbids it"), ("0", "did not per")])
def test_a_filter_of_system_calls_refuses(error: str, words: str) -> None:
    done = run(
        f"seccomp.refuse(158, 0x1023, {error})\n"
        "print(isa.machine_isa() == isa.NAMED['x86-64-v4-bf16'])\n"
        "print(isa.withheld())\n"
    )
    if "no filter of system calls" in done.stderr:
        pytest.skip("no filter of system calls")
    same, reason = done.stdout.splitlines()
    assert same == "True" and words in reason, done.stderr
    assert done.stderr.count("code is compiled without tiles") == 1


@needs_linux_on_x86
def test_the_real_system_says_yes_or_no_and_lives() -> None:
    done = run("print(repr(isa.refusal()))\n")
    assert done.returncode == 0 and done.stdout.count("\n") == 1, done.stderr


@REAL
def test_a_forked_child_has_what_its_parent_was_permitted() -> None:
    done = run(
        "assert isa.machine_isa().has_tiles\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    isa.refusal.cache_clear()\n"
        "    seccomp.refuse(158, 0x1023, errno.EPERM)\n"
        "    os._exit(len(isa.refusal()) > 0)\n"
        "print(os.waitpid(child, 0)[1])\n"
    )
    assert done.stdout == "0\n", done.stderr
