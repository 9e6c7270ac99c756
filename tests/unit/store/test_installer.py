"""A package installs wholly or not at all, and only where and what it should.

The .run files run by themselves here, in processes without kernelmill.
"""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernelmill.core.errors import StoreError
from kernelmill.core.target.isa import NAMED
from kernelmill.core.target.machine import Machine, host, profile
from kernelmill.store import Store, installer, packages
from kernelmill.store.entry import encode, entry_name
from tests.unit.store.samples import compiled, key


def contents(name="static_kernel_1", n=1, target=None):
    """A package with one entry."""
    entry = entry_name("Square", key(n))
    files = {f"{entry}{s}": d for s, d in encode(entry, key(n), compiled(n)).items()}
    return packages.PackageContents(
        name, target or host(), files, [(entry, "Square_float_ND_4")], "now"
    )


def run(package, *arguments, code=0):
    """The package's own command, far from the package's folder."""
    command = [sys.executable, "-I", "-S", str(package), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", env={}, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.fixture
def package(tmp_path):
    built = tmp_path / "built"
    built.mkdir()
    return Path(packages.write_run(contents(), built))


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "installed"


def names(folder):
    return [package.name for package in packages.packages_in(str(folder))]


def test_installed_found_used_and_uninstalled(package, folder):
    assert run(package, "--install", "--path", folder).startswith("installed ")
    (found,) = packages.packages_in(str(folder))
    assert (found.name, found.machine) == ("static_kernel_1", host())
    store = Store(folder / "none", packages=[found])
    entry = store.get_or_compile(key(1), "Square", lambda: pytest.fail("compiled"))
    assert entry.source == "package static_kernel_1"
    assert entry.object == compiled(1).object
    assert run(package, "--uninstall", "--path", folder) == "uninstalled static_kernel_1\n"
    assert names(folder) == []
    assert sorted(os.listdir(folder)) == [".lock", "active.json"]
    assert "not installed" in run(package, "--uninstall", "--path", folder)


def test_it_says_what_it_holds(package, folder):
    assert "Square_float_ND_4" in run(package, "--list")
    assert f"target: {host()}" in run(package, "--info", "--path", folder)
    assert "installed in" in run(package, "--info", "--path", folder)
    assert "as they were built" in run(package, "--verify", "--path", folder)
    run(package, "--install", "--path", folder)
    assert "the same, in use" in run(package, "--verify", "--path", folder)


def test_it_is_executable_by_itself(package, folder):
    assert os.access(package, os.X_OK)
    subprocess.run([package, "--install", "--path", folder], check=True, capture_output=True)
    assert names(folder) == ["static_kernel_1"]


def test_the_same_contents_are_the_same_file(package, tmp_path):
    again = packages.write_run(contents(), tmp_path)
    assert Path(again).read_bytes() == package.read_bytes()


def test_several_stand_side_by_side_the_newest_first(package, folder, tmp_path):
    other = packages.write_run(contents("static_kernel_2", 2), tmp_path)
    for each in (package, other, package):
        run(each, "--install", "--path", folder)
    assert names(folder) == ["static_kernel_1", "static_kernel_2"]
    run(package, "--uninstall", "--path", folder)
    assert names(folder) == ["static_kernel_2"]


def test_another_target_is_refused_with_the_reason(tmp_path, folder):
    arm = Machine(NAMED["aarch64-neon"])
    package = packages.write_run(contents(target=arm), tmp_path)
    assert "aarch64" in run(package, "--install", "--path", folder, code=2)
    assert not folder.exists()


def test_missing_processor_features_are_named(monkeypatch):
    monkeypatch.setattr(installer, "_cpu_flags", lambda: {"ssse3"})
    manifest = contents(target=profile("x86-64-v3")).manifest()
    assert "avx2" in installer.misfit(manifest)


def test_an_arm_machine_has_the_features_of_its_own_names(tmp_path, monkeypatch):
    """Linux has them in another line than those of x86-64."""
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nFeatures\t: fp asimd crc32 atomics asimdrdm dcpop\n")
    monkeypatch.setattr(installer, "open", lambda _: cpuinfo.open(), raising=False)
    monkeypatch.setattr(installer.os, "uname", lambda: SimpleNamespace(machine="aarch64"))
    for name, reason in (("aarch64-v8.2", ""), ("aarch64-v8.6", "asimddp, bf16, i8mm")):
        assert reason in (found := installer.misfit(contents(target=profile(name)).manifest()))
        assert bool(found) == bool(reason)


@pytest.mark.parametrize("suffix", ["manifest.json", ".o", ".info", ".json"])
def test_a_damaged_package_is_refused(package, folder, suffix):
    data = bytearray(package.read_bytes())
    with zipfile.ZipFile(package) as archive:
        member = next(
            each for each in reversed(archive.infolist()) if each.filename.endswith(suffix)
        )
    start = member.header_offset + 30 + len(member.filename)
    data[start + member.compress_size // 2] ^= 0x40
    package.write_bytes(data)
    assert "damaged" in run(package, "--install", "--path", folder, code=2)
    assert not folder.exists()


def test_a_package_cut_short_is_refused(package, folder):
    package.write_bytes(package.read_bytes()[:-100])
    with pytest.raises(installer.Refused, match="damaged"):
        installer.install(str(package), str(folder))


def test_a_package_is_a_command_and_says_when_it_ends_early(package, folder):
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}

    def command(*arguments):
        done = subprocess.run(
            [package, *arguments], capture_output=True, text=True, cwd="/", env=environment
        )
        return done.returncode, done.stdout + done.stderr

    assert command("--install", "--path", folder)[0] == 0
    assert names(folder) == ["static_kernel_1"]
    package.write_bytes(package.read_bytes()[:-100])
    code, text = command("--verify")
    assert code == 2 and "is damaged: it ends early" in text


def repacked(package, change):
    """The package with its manifest and files changed, and the manifest sealed anew."""
    with zipfile.ZipFile(package) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(members["manifest.json"])
    change(manifest, members)
    members["manifest.json"] = installer.seal(manifest)
    with zipfile.ZipFile(package, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def test_a_path_outside_its_folder_is_refused(package, folder):
    def outside(manifest, members):
        manifest["files"]["../evil.o"] = manifest["files"].popitem()[1]

    repacked(package, outside)
    assert "outside" in run(package, "--install", "--path", folder, code=2)


def test_a_name_outside_the_folder_is_refused(package, folder):
    repacked(package, lambda manifest, _: manifest.update(name="../evil"))
    assert "no name" in run(package, "--install", "--path", folder, code=2)


def test_a_file_that_the_manifest_does_not_know_is_refused(package, folder):
    repacked(package, lambda _, members: members.update({"kernels/More_1.o": b"x"}))
    assert "More_1.o" in run(package, "--install", "--path", folder, code=2)


def test_another_content_than_the_manifest_says_is_refused(package, folder):
    def swapped(manifest, members):
        name = next(name for name in members if name.endswith(".o"))
        members[name] = b"something else"

    repacked(package, swapped)
    assert "checksum" in run(package, "--install", "--path", folder, code=2)


def test_a_folder_that_others_can_write_to_is_refused(package, folder):
    folder.mkdir(mode=0o755)
    folder.chmod(0o777)
    assert "chmod go-w" in run(package, "--install", "--path", folder, code=2)
    with pytest.raises(StoreError, match="other users"):
        packages.packages_in(str(folder))


def test_a_link_to_a_folder_is_refused(package, folder, tmp_path):
    folder.symlink_to(tmp_path)
    assert "link" in run(package, "--install", "--path", folder, code=2)


def test_a_damaged_installation_is_not_used_and_mended_by_installing_again(package, folder):
    run(package, "--install", "--path", folder)
    (object_file,) = (folder / "static_kernel_1").glob("*.o")
    object_file.write_bytes(b"bad")
    assert "damaged" in run(package, "--verify", "--path", folder, code=2)
    run(package, "--install", "--path", folder)
    assert "the same, in use" in run(package, "--verify", "--path", folder)


KILL = """
import os, runpy, signal, sys
package, folder, action, steps = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
left = [steps]

def deadly(function):
    def call(*args, **kwargs):
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **kwargs)
    return call

for name in ("mkdir", "rename", "replace", "fsync", "rmdir", "unlink", "fchmod"):
    setattr(os, name, deadly(getattr(os, name)))
sys.argv = [package, action, "--path", folder]
runpy.run_path(package, run_name="__main__")
"""


@pytest.mark.parametrize("action", ["--install", "--uninstall"])
def test_killed_at_any_moment_it_is_the_old_state_or_the_new(action, folder, tmp_path):
    old = packages.write_run(contents("static_kernel_1", 1), tmp_path)
    new = packages.write_run(contents("static_kernel_2", 2), tmp_path)
    first = [old] if action == "--install" else [old, new]
    subject = new
    seen = set()
    for steps in range(100):
        shutil.rmtree(folder, ignore_errors=True)
        for package in first:
            installer.install(package, str(folder))
        command = [sys.executable, "-I", "-S", "-c", KILL, subject, folder, action, str(steps)]
        code = subprocess.run(command, capture_output=True, check=False).returncode
        state = tuple(sorted(names(folder)))
        seen.add(state)
        assert state in {("static_kernel_1",), ("static_kernel_1", "static_kernel_2")}
        for name in state:
            installer.check_installed(str(folder), name)
        if code == 0:
            break
        assert code == -9
    else:
        raise AssertionError("the command never came to its end")
    assert len(seen) == 2 and steps > 5
    installer.install(new, str(folder))
    assert not [n for n in os.listdir(folder) if n.startswith((".new-", ".old-"))]


def test_installed_at_once_by_several(package, folder, tmp_path):
    others = [packages.write_run(contents(f"static_kernel_{n}", n), tmp_path) for n in range(2, 6)]
    command = [sys.executable, "-I", "-S"]
    started = [
        subprocess.Popen([*command, str(each), "--install", "--path", str(folder)])
        for each in (package, *others, *others)
    ]
    assert [process.wait() for process in started] == [0] * 9
    assert sorted(names(folder)) == [f"static_kernel_{n}" for n in range(1, 6)]


def test_a_wheel_is_found_by_its_entry_point(tmp_path, monkeypatch):
    wheel = packages.write_wheel(contents("my-kernels"), tmp_path, "1.0")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
        record = archive.read("my_kernels-1.0.dist-info/RECORD").decode()
    assert all(line.partition(",")[0] in archive.namelist() for line in record.splitlines())
    monkeypatch.syspath_prepend(str(site))
    (found,) = (package for package in packages._wheels() if package.name == "my-kernels")
    store = Store(tmp_path / "none", packages=[found])
    entry = store.get_or_compile(key(1), "Square", lambda: pytest.fail("compiled"))
    assert entry.source == "package my-kernels"
