"""The processor's description: text form, lanes, what the host turns out to be."""

from __future__ import annotations

import pytest

from kernelmill.core import target
from kernelmill.core.dtype import BF16, F16, F32, F64, I8, U8
from kernelmill.core.errors import ConfigError
from kernelmill.core.target import (
    Target,
    cpu_flags,
    host,
    machine,
    named_target,
    parse_target,
    x86_64,
)


def test_text_form_is_stable() -> None:
    described = Target(
        "x86_64-unknown-linux-gnu", "x86-64-v4", ("avx512bf16",), 512, 49152, 1048576
    )
    expected = "x86_64-unknown-linux-gnu x86-64-v4 avx512bf16 vector512 l1=49152 l2=1048576"
    assert str(described) == expected
    assert " - vector128" in str(x86_64(2))


@pytest.mark.parametrize(
    ("level", "lanes"), [(2, (2, 4, 4, 4, 16)), (3, (4, 8, 8, 8, 32)), (4, (8, 16, 16, 16, 64))]
)
def test_lanes_are_counted_in_the_type_of_computation(level: int, lanes: tuple[int, ...]) -> None:
    found = tuple(x86_64(level).vector_lanes(dtype) for dtype in (F64, F32, F16, BF16, I8))
    assert found == lanes
    assert x86_64(level).vector_lanes(U8) == lanes[-1]


@pytest.mark.parametrize(
    ("flags", "cpu", "features"),
    [
        ("fpu sse4_2", "x86-64-v2", ()),
        ("abm avx2 bmi1 bmi2 f16c fma movbe avx_vnni", "x86-64-v3", ("avxvnni",)),
        ("abm avx2 bmi1 bmi2 f16c fma movbe avx512f", "x86-64-v3", ()),
        (
            "abm avx2 bmi1 bmi2 f16c fma movbe avx512f avx512bw avx512cd avx512dq avx512vl "
            "avx512_vnni avx512_bf16",
            "x86-64-v4",
            ("avx512bf16", "avx512vnni"),
        ),
    ],
)
def test_the_machine_is_the_highest_level_its_flags_complete(
    monkeypatch: pytest.MonkeyPatch, flags: str, cpu: str, features: tuple[str, ...]
) -> None:
    monkeypatch.setattr(target.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(target, "_cpu_flags", lambda: frozenset(flags.split()))
    found = machine.__wrapped__()
    assert (found.cpu, found.features) == (cpu, features)
    assert found.l1_bytes > 0
    assert found.l2_bytes >= found.l1_bytes


def test_unknown_machine_gets_its_baseline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target.platform, "machine", lambda: "riscv64")
    assert machine.__wrapped__().triple == "riscv64-unknown-linux-gnu"


def test_host_is_asked_once() -> None:
    assert host() is host()
    assert host().vector_lanes(F32) * 32 == host().vector_bits


@pytest.mark.parametrize("described", [host(), x86_64(2), x86_64(3)])
def test_the_text_form_reads_back(described: Target) -> None:
    assert parse_target(str(described)) == described
    with pytest.raises(ValueError, match="no target"):
        parse_target(f"{described} more")


def test_names_of_targets() -> None:
    assert named_target("native") == host()
    assert named_target("x86-64-v3") == x86_64(3)
    with pytest.raises(ValueError, match="there are: native, x86-64-v2"):
        named_target("x86-64-v9")


def test_a_level_needs_the_flags_of_those_below() -> None:
    low, high = set(cpu_flags(x86_64(2))), set(cpu_flags(x86_64(4)))
    assert "ssse3" in low and "avx2" not in low
    assert low < set(cpu_flags(x86_64(3))) < high
    assert set(cpu_flags(host())) <= target._cpu_flags()
    assert cpu_flags(Target("aarch64-unknown-linux-gnu", "generic")) == ()


@pytest.mark.parametrize("level", [2, 3, 4])
def test_a_level_can_be_forced(monkeypatch: pytest.MonkeyPatch, level: int) -> None:
    monkeypatch.setattr(target.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(target, "_cpu_flags", lambda: frozenset(cpu_flags(x86_64(4))))
    target._forced.cache_clear()
    monkeypatch.setenv("KERNELMILL_TARGET", f"x86-64-v{level}")
    assert host() == named_target("native") == x86_64(level)
    assert host() is host()
    monkeypatch.setenv("KERNELMILL_TARGET", "native")
    assert host() is machine()
    target._forced.cache_clear()


def test_a_level_above_the_machine_is_refused_with_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flags = frozenset(cpu_flags(x86_64(4))) - {"avx512bw", "avx512vl"}
    monkeypatch.setattr(target.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(target, "_cpu_flags", lambda: flags)
    monkeypatch.setattr(target, "machine", lambda: x86_64(3))
    target._forced.cache_clear()
    monkeypatch.setenv("KERNELMILL_TARGET", "x86-64-v4")
    text = (
        "KERNELMILL_TARGET='x86-64-v4': this machine is x86-64-v3, which lacks avx512bw, avx512vl"
    )
    with pytest.raises(ConfigError, match=text):
        host()
    monkeypatch.setattr(target.platform, "machine", lambda: "riscv64")
    with pytest.raises(ConfigError, match="this machine is"):
        host()


def test_a_target_without_a_name_is_refused_with_the_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELMILL_TARGET", "skylake")
    with pytest.raises(ConfigError, match=r"KERNELMILL_TARGET.*there are: native, x86-64-v2, x86"):
        host()
