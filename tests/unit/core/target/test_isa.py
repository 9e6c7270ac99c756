"""Instruction sets: text form, dot units, what the machine turns out to have, a forced one."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelmill.core.dtype import BF16, F16, F32, F64, I8, U8
from kernelmill.core.errors import ConfigError
from kernelmill.core.target import dot_units, isa
from kernelmill.core.target.dot_units import (
    BF16_PAIRS,
    MULTIPLY_ADD,
    MULTIPLY_ADD_F64,
    PAIRS_OF_16,
    SDOT,
    VNNI,
)
from kernelmill.core.target.isa import (
    NAMED,
    Isa,
    cpuinfo_flags,
    host_isa,
    machine_isa,
    named_isa,
    parse_isa,
    target_isa,
)

ARM = NAMED["aarch64-neon"]


def test_text_form_is_stable() -> None:
    assert str(NAMED["x86-64-v4-bf16"]) == (
        "x86_64-unknown-linux-gnu x86-64-v4 avx512bf16,avx512vnni"
    )
    assert str(NAMED["x86-64-v2"]).endswith(" -")


@pytest.mark.parametrize("described", [host_isa(), *NAMED.values(), ARM], ids=str)
def test_the_text_form_reads_back(described: Isa) -> None:
    assert parse_isa(str(described)) == described
    with pytest.raises(ValueError, match="no instruction set"):
        parse_isa(f"{described} more")


@pytest.mark.parametrize(
    ("level", "lanes"), [(2, (2, 4, 4, 4, 16)), (3, (4, 8, 8, 8, 32)), (4, (8, 16, 16, 16, 64))]
)
def test_lanes_are_counted_in_the_type_of_computation(level: int, lanes: tuple[int, ...]) -> None:
    found = NAMED[f"x86-64-v{level}"]
    assert tuple(found.lanes(dtype) for dtype in (F64, F32, F16, BF16, I8)) == lanes
    assert found.lanes(U8) == lanes[-1]
    assert found.vector_registers == (32 if level == 4 else 16)


def test_the_best_dot_unit_of_each_type() -> None:
    plain, most = NAMED["x86-64-v4"], NAMED["x86-64-v4-bf16"]
    assert (plain.dot_unit(I8), most.dot_unit(I8)) == (PAIRS_OF_16, VNNI)
    assert (plain.dot_unit(BF16), most.dot_unit(BF16)) == (MULTIPLY_ADD, BF16_PAIRS)
    assert (most.dot_unit(F32), most.dot_unit(F64)) == (MULTIPLY_ADD, MULTIPLY_ADD_F64)
    assert ARM.dot_unit(I8) == MULTIPLY_ADD
    assert BF16_PAIRS in most.dot_units and BF16_PAIRS not in plain.dot_units


def test_a_unit_may_be_there_for_short_vectors_only() -> None:
    found = NAMED["x86-64-v3-vnni"]
    assert found.dot_unit(I8, 256) == VNNI
    assert found.dot_unit(I8, 512) == PAIRS_OF_16


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
    monkeypatch.setattr(isa.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(isa, "cpuinfo_flags", lambda: frozenset(flags.split()))
    found = machine_isa.__wrapped__()
    assert (found.cpu, found.features) == (cpu, features)


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        ("fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid", "aarch64-neon"),
        ("fp asimd crc32 atomics fphp asimdhp asimdrdm dcpop", "aarch64-v8.2"),
        ("fp asimd crc32 atomics asimdrdm dcpop asimddp", "aarch64-v8.2-dotprod"),
        ("fp asimd crc32 atomics asimdrdm dcpop asimddp sve i8mm bf16 svebf16", "aarch64-v8.6"),
    ],
)
def test_an_arm_machine_by_its_flags(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flags: str, name: str
) -> None:
    text = (
        f"processor\t: 0\nBogoMIPS\t: 243.75\nFeatures\t: {flags}\nCPU implementer\t: 0x41\n"
        "CPU architecture: 8\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\n"
    )
    (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(isa.platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(isa, "Path", lambda _: tmp_path / "cpuinfo")
    found = machine_isa.__wrapped__()
    assert found == NAMED[name] and isa.processor_name() == "implementer 0x41, part 0xd0c"
    assert set(found.cpu_flags) <= cpuinfo_flags() and not isa.why_not_here(found)
    assert isa.why_not_here(NAMED["x86-64-v2"]) == "this machine is aarch64"


def test_arm_has_vectors_of_128_bits_and_products_of_bytes() -> None:
    most = NAMED["aarch64-v8.6"]
    assert (most.vector_bits, most.vector_registers, most.outside) == (128, 32, "nearest")
    assert most.has_fma and most.has_half and not most.has_nontemporal
    assert (most.dot_unit(I8), NAMED["aarch64-v8.2"].dot_unit(I8)) == (SDOT, MULTIPLY_ADD)
    assert most.llvm_cpu == "generic" and most.llvm_features == "+v8.2a,+bf16,+dotprod,+i8mm"
    assert most.runs(NAMED["aarch64-neon"]) and not NAMED["aarch64-v8.2"].runs(most)


def test_arm_has_blocks_where_its_extensions_are() -> None:
    most = NAMED["aarch64-v8.6"]
    found = [most.block_unit(*pair) for pair in ((I8, I8), (U8, U8), (U8, I8), (BF16, BF16))]
    assert found == [*dot_units.BLOCK_BYTES, dot_units.BFMMLA]
    assert most.block_unit(I8, U8) is None and most.block_unit(F32, F32) is None
    assert NAMED["aarch64-v8.2-dotprod"].block_units == NAMED["x86-64-v4-amx"].block_units == ()
    halves = Isa(most.triple, most.cpu, ("bf16",))
    assert halves.block_units == (dot_units.BFMMLA,)


def test_a_level_that_its_family_lacks_is_refused() -> None:
    with pytest.raises(ValueError, match="'x86-64-v5' is no level of x86_64"):
        parse_isa("x86_64-unknown-linux-gnu x86-64-v5 -")


def test_unknown_machine_gets_its_baseline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isa.platform, "machine", lambda: "riscv64")
    found = machine_isa.__wrapped__()
    assert (found.triple, found.vector_bits) == ("riscv64-unknown-linux-gnu", 128)
    assert not found.has_nontemporal and found.cpu_flags == ()


def test_tiles_are_there_where_all_of_their_units_are() -> None:
    amx = NAMED["x86-64-v4-amx"]
    assert amx.tile_unit(BF16, BF16) == dot_units.TILE_BF16
    found = {amx.tile_unit(a, b) for a in (I8, U8) for b in (I8, U8)}
    assert found == set(dot_units.TILE_BYTES)
    assert amx.tile_unit(F32, F32) is None
    assert NAMED["x86-64-v4-bf16"].tile_unit(BF16, BF16) is None
    some = Isa(amx.triple, amx.cpu, ("amx-bf16", "amx-tile"))
    assert not some.has_tiles and some.tile_unit(BF16, BF16) is None
    assert {"amx_tile", "amx_bf16", "amx_int8"} < set(amx.cpu_flags)


def test_emulated_tiles_are_no_feature_of_a_processor() -> None:
    """Code for them runs wherever the vectors do, and LLVM is not told of them."""
    amx, emulated = NAMED["x86-64-v4-amx"], NAMED["x86-64-v4-amx-emulated"]
    assert emulated.tile_units == amx.tile_units and not emulated.has_tiles
    assert emulated.cpu_flags == NAMED["x86-64-v4-bf16"].cpu_flags
    assert emulated.llvm_features == NAMED["x86-64-v4-bf16"].llvm_features
    assert not emulated.needs_permission and emulated != NAMED["x86-64-v4-bf16"]


def test_dot_units_have_names_of_their_own() -> None:
    assert all(unit.name == name for name, unit in dot_units.DOT_UNITS.items())
    for described in NAMED.values():
        assert set(described.dot_units) <= set(dot_units.DOT_UNITS.values())
        assert all(unit.rows == 1 for unit in described.dot_units)
        assert all(unit.on_blocks and not unit.on_tiles for unit in described.block_units)
        assert all(unit.on_tiles and not unit.on_blocks for unit in described.tile_units)


def test_names() -> None:
    assert named_isa("native") == host_isa()
    assert named_isa("x86-64-v3").vector_bits == 256
    with pytest.raises(ValueError, match="there are: native, x86-64-v2"):
        named_isa("x86-64-v9")


def test_a_level_needs_the_flags_of_those_below() -> None:
    low, middle, high = (NAMED[f"x86-64-v{level}"] for level in (2, 3, 4))
    assert "ssse3" in low.cpu_flags and "avx2" not in low.cpu_flags
    assert set(low.cpu_flags) < set(middle.cpu_flags) < set(high.cpu_flags)
    assert set(machine_isa().cpu_flags) <= cpuinfo_flags()


@pytest.mark.parametrize("level", [2, 3, 4])
def test_a_level_can_be_forced(monkeypatch: pytest.MonkeyPatch, level: int) -> None:
    flags = frozenset(NAMED["x86-64-v4"].cpu_flags)
    monkeypatch.setattr(isa.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(isa, "cpuinfo_flags", lambda: flags)
    isa._forced.cache_clear()
    monkeypatch.setenv("KERNELMILL_TARGET", f"x86-64-v{level}")
    assert host_isa() == named_isa("native") == NAMED[f"x86-64-v{level}"]
    monkeypatch.setenv("KERNELMILL_TARGET", "native")
    assert host_isa() is machine_isa()
    isa._forced.cache_clear()


def test_a_level_above_the_machine_is_refused_with_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flags = frozenset(NAMED["x86-64-v4"].cpu_flags) - {"avx512bw", "avx512vl"}
    monkeypatch.setattr(isa.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(isa, "cpuinfo_flags", lambda: flags)
    monkeypatch.setattr(isa, "machine_isa", lambda: NAMED["x86-64-v3"])
    isa._forced.cache_clear()
    monkeypatch.setenv("KERNELMILL_TARGET", "x86-64-v4")
    text = (
        "KERNELMILL_TARGET='x86-64-v4': this machine is x86-64-v3, which lacks avx512bw, avx512vl"
    )
    with pytest.raises(ConfigError, match=text):
        host_isa()
    monkeypatch.setattr(isa.platform, "machine", lambda: "riscv64")
    with pytest.raises(ConfigError, match="this machine is"):
        host_isa()


def test_a_config_names_what_this_machine_can_run(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = frozenset(NAMED["x86-64-v3"].cpu_flags)
    monkeypatch.setattr(isa.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(isa, "cpuinfo_flags", lambda: flags)
    monkeypatch.setattr(isa, "machine_isa", lambda: NAMED["x86-64-v3"])
    isa._forced.cache_clear()
    monkeypatch.setenv("KERNELMILL_TARGET", "x86-64-v2")
    assert target_isa(None) == NAMED["x86-64-v2"]
    assert target_isa("native") == target_isa("x86-64-v3") == NAMED["x86-64-v3"]
    text = "config.target='x86-64-v3-vnni': this machine is x86-64-v3, which lacks avx_vnni"
    with pytest.raises(ConfigError, match=text):
        target_isa("x86-64-v3-vnni")
    assert target_isa("x86-64-v3-vnni", to_run=False) == NAMED["x86-64-v3-vnni"]
    isa._forced.cache_clear()


def test_an_isa_runs_what_needs_no_more() -> None:
    low, high, bf16 = (NAMED[f"x86-64-{name}"] for name in ("v2", "v4", "v4-bf16"))
    assert bf16.runs(bf16) and bf16.runs(high) and high.runs(low)
    assert not low.runs(high) and not high.runs(bf16) and not high.runs(ARM)


def test_an_isa_without_a_name_is_refused_with_the_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELMILL_TARGET", "skylake")
    with pytest.raises(ConfigError, match=r"KERNELMILL_TARGET.*there are: native, x86-64-v2, x86"):
        host_isa()
