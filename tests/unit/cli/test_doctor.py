"""`kernelmill doctor`: what it finds, that each finding says what to do, and its exit codes."""

from __future__ import annotations

import compileall
import importlib.util
import json
import os
import py_compile
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from kernelmill.cli.checks import storage, system, threads, versions
from kernelmill.cli.checks.finding import Section
from kernelmill.cli.checks.trial import trial
from kernelmill.cli.checks.versions import internals
from kernelmill.cli.main import main
from kernelmill.core.target.cpus import Cpus
from kernelmill.store import Store
from kernelmill.torch_internals import forced
from tests.unit.store.samples import compiled, key

EIGHT = Cpus(online=16, allowed=16, cores=8, quota=None)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "kernels"
    monkeypatch.setenv("KERNELMILL_KERNEL_META", str(folder))
    for name in threads.SETTINGS:
        monkeypatch.delenv(name, raising=False)
    return folder


def said(section: Section, level: str) -> str:
    assert all(finding.do for finding in section.findings)
    return "\n".join(f"{x.what} -> {x.do}" for x in section.findings if x.level == level)


def test_everything_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    facts = {section["name"]: section["facts"] for section in told["sections"]}
    assert facts["versions"]["torch"] == torch.__version__
    assert facts["threads"]["torch's threads"] == torch.get_num_threads()
    assert facts["processor"]["figures of the cost model"] == "committed"
    assert facts["trial"]["kernels compiled"] == 1 and facts["trial"]["ATen calls"] == 0
    assert told["wrong"] == 0


def test_the_text_has_facts_findings_and_what_to_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("KERNELMILL_KERNEL_MTEA", "x")
    assert main(["doctor", "--quick"]) == 1
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 60
    words = " ".join(out.split())
    assert "wrong: environment variable KERNELMILL_KERNEL_MTEA is not known" in words
    assert "do: write KERNELMILL_KERNEL_META, or unset it" in words
    assert "1 wrong," in words


def test_private_parts_of_torch_that_are_not_as_expected() -> None:
    assert internals().findings == []
    with forced(["sizes.functions", "dispatch.mode_stacks"]):
        told = said(internals(), "slow")
    assert "sizes.functions is not as expected" in told
    assert "methods behind cache_compile are called as under a mode" in told


def test_variables_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELMILL_STRICT", "perhaps")
    monkeypatch.setenv("KERNELMILL_REMOTE_KEY", "k" * 40)
    monkeypatch.setenv("KERNELMILL_REMOTE", "redis://user:hush@host:port/0")
    section = storage.environment()
    assert "KERNELMILL_STRICT='perhaps': expected 1 or 0" in said(section, "wrong")
    assert "KERNELMILL_REMOTE='redis://...@host:port/0': its port" in said(section, "wrong")
    assert section.facts["KERNELMILL_REMOTE"] == "redis://...@host:port/0"
    assert section.facts["KERNELMILL_REMOTE_KEY"] == "(secret)"
    assert storage.store(None).facts["remote"] == "yes"


def test_the_store(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    Store(folder).put(key(1), "Square", compiled(1))
    (folder / "Square_0.o.bad-1").write_bytes(b"")
    section = storage.store(None)
    facts = section.facts[str(folder)]
    assert (facts["kernels"], facts["trusted"], facts["writable"]) == (1, True, True)
    assert "1 damaged files" in said(section, "note")
    monkeypatch.setenv("KERNELMILL_KERNEL_META", f"{tmp_path}/none:{folder}")
    assert f"there is no folder {tmp_path}/none" in said(storage.store(None), "wrong")
    folder.chmod(0o777)
    assert "chmod -R go-w" in said(storage.store(None), "wrong")


def test_a_store_that_cannot_be_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "cannot be written" in said(storage.store(None), "slow")


@pytest.mark.parametrize(
    ("count", "found", "level", "what"),
    [
        (8, EIGHT, "", ""),
        (16, EIGHT, "slow", "torch runs 16 threads, and there are 8 cores"),
        (8, Cpus(16, 16, 8, 2.0), "slow", "the cgroup grants 2: kernels run on 2 at most"),
        (1, EIGHT, "note", "torch runs 1 thread,"),
    ],
)
def test_threads_against_cores_and_quota(count: int, found: Cpus, level: str, what: str) -> None:
    section = Section("threads")
    threads.team(section, SimpleNamespace(get_num_threads=lambda: count), found)
    findings = [one for one in section.findings if "OpenMP" not in one.what]
    assert [one.level for one in findings] == ([level] if level else [])
    assert all(what in one.what for one in findings)
    assert all(f"OMP_NUM_THREADS={found.usable}" in one.do for one in findings)


def test_settings_of_openmp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    monkeypatch.setenv("OMP_PROC_BIND", "true")
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    section = threads.processors(Cpus(4, 4, 4, 2.0))
    assert "OMP_NUM_THREADS=many is no number" in said(section, "wrong")
    assert "OMP_PROC_BIND=true binds threads" in said(section, "note")
    assert "OMP_WAIT_POLICY=PASSIVE" in said(section, "slow")
    assert section.facts["settings"]["OMP_NUM_THREADS"] == "many"


def test_a_second_openmp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_openmp_runtimes", lambda: ["libgomp.so.1", "libiomp5.so"])
    section = Section("threads")
    threads.team(section, SimpleNamespace(get_num_threads=lambda: 8), EIGHT)
    assert "2 OpenMP libraries are loaded" in said(section, "slow")


def test_large_pages(tmp_path: Path) -> None:
    file = tmp_path / "enabled"
    for text, slow in (("always [madvise] never", ""), ("always madvise [never]", "4 KiB")):
        file.write_text(text)
        found = said(system.system(file), "slow")
        assert slow in found and bool(found) == bool(slow)
    assert "4 KiB" in said(system.system(tmp_path / "none"), "slow")


def test_a_system_that_refuses_code(monkeypatch: pytest.MonkeyPatch) -> None:
    assert system.why_no_code() == ""
    monkeypatch.setattr(system, "why_no_code", lambda: "Permission denied")
    assert "code that it made: Permission denied" in said(system.system(), "wrong")


def test_packages_that_are_missing_or_old(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"torch": "2.10.1+cpu", "llvmlite": "0.45.0"}
    monkeypatch.setattr(versions, "_version", lambda name: there.get(name, ""))
    monkeypatch.setattr(versions, "_least", lambda: {"torch": "2.11", "llvmlite": "0.45"})
    found = said(versions.versions(), "wrong")
    assert "torch 2.10.1+cpu is older than 2.11" in found and "pip install 'torch>=2.11'" in found
    assert "numpy is not installed" in found and "llvmlite" not in found


def test_modules_without_bytecode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "one.py"
    source.write_text("x = 1\n")
    (tmp_path / "empty.py").touch()

    def found() -> str:
        section = Section("versions")
        versions._bytecode(section, tmp_path)
        return said(section, "slow")

    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    assert not found()  # the next import writes it
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert "2 of 2 modules" in found() and f"compileall -q {tmp_path}" in found()
    for mode in py_compile.PycInvalidationMode:
        compileall.compile_dir(tmp_path, quiet=1, force=True, invalidation_mode=mode)
        assert not found()
        source.write_text(f"x = '{mode.name}'\n")
        unchecked = mode is py_compile.PycInvalidationMode.UNCHECKED_HASH
        assert bool(found()) != unchecked
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    cached = Path(importlib.util.cache_from_source(str(source)))
    cached.unlink()
    assert "1 of 2 modules" in found()


def test_less_than_the_processor_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELMILL_TARGET", "x86-64-v2")
    assert "unset KERNELMILL_TARGET" in said(system.processor(), "slow")
    monkeypatch.setenv("KERNELMILL_TARGET", "z80")
    assert "z80" in said(system.processor(), "wrong")
    monkeypatch.delenv("KERNELMILL_TARGET")
    monkeypatch.setattr(system, "withheld", lambda: "amx may not be used: forbidden")
    assert "seccomp" in said(system.processor(), "slow")


def test_a_torch_that_does_not_compile() -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise RuntimeError("no compiler here")

    broken = SimpleNamespace(**{name: getattr(torch, name) for name in ("arange", "eye")})
    broken.no_grad, broken.compile = torch.no_grad, refuse
    assert "RuntimeError: no compiler here" in said(trial(broken), "wrong")
