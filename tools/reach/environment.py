"""A Python of another processor, with numpy and llvmlite, that an emulator runs.

Packages come from Debian and PyPI through their own programs, into a folder of this checkout:
nothing is installed, and what the system's dpkg knows about architectures stays as it is. Torch is
not among them: its wheel does not run under an emulator.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "reach"
EMULATOR = "qemu-aarch64-static"
_ARCHITECTURE = "arm64"
_PYTHON = "python3.11"
_DEBIAN = (
    f"{_PYTHON}-minimal", f"lib{_PYTHON}-minimal", f"lib{_PYTHON}-stdlib", "libc6", "libgcc-s1",
    "libstdc++6", "zlib1g", "libexpat1", "libffi8", "libbz2-1.0", "liblzma5",
)  # fmt: skip
_WHEELS = ("llvmlite", "numpy")
_PLATFORMS = ("manylinux_2_28_aarch64", "manylinux_2_27_aarch64", "manylinux2014_aarch64")


class Unavailable(Exception):
    """What cannot be had here, in one line."""


@dataclass(frozen=True)
class Emulated:
    """How to start the Python of the other processor, which has the packages of this checkout."""

    command: tuple[str, ...]
    environment: dict[str, str]


def emulated() -> Emulated:
    """The Python, fetched and unpacked where it is not there yet. Unavailable says what is missing.

    Several processes may ask at once: one fetches.
    """
    emulator = shutil.which(EMULATOR)
    if emulator is None:
        raise Unavailable(f"{EMULATOR} is not installed: apt-get install qemu-user-static")
    system, site = FOLDER / "system", FOLDER / "site"
    versions = _pinned()
    # Renewed when a pinned version changes.
    stamp, wanted = FOLDER / "complete", " ".join((*_DEBIAN, *versions))
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.is_file() or stamp.read_text() != wanted:
            stamp.unlink(missing_ok=True)
            for made in (system, site):
                shutil.rmtree(made, ignore_errors=True)
            _unpack_debian(system)
            _unpack_wheels(site, versions)
            stamp.write_text(wanted)
    command = (emulator, "-L", str(system), str(system / "usr" / "bin" / _PYTHON))
    paths = os.pathsep.join(map(str, (site, ROOT / "src", ROOT)))
    return Emulated(command, {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"})


def _pinned() -> list[str]:
    text = (ROOT / "constraints.txt").read_text()
    lines = [re.search(rf"^{name}==\S+$", text, re.MULTILINE) for name in _WHEELS]
    return [line[0] for line in lines if line is not None]


def _unpack_debian(system: Path) -> None:
    """The packages' files, by apt with lists and an architecture of its own."""
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            raise Unavailable(f"{program} is not here: an {_ARCHITECTURE} Python comes from Debian")
    apt = FOLDER / "apt"
    for folder in ("state/lists/partial", "cache/archives/partial", "packages"):
        (apt / folder).mkdir(parents=True, exist_ok=True)
    (apt / "status").touch()
    settings = (
        f"APT::Architecture={_ARCHITECTURE}", f"APT::Architectures::={_ARCHITECTURE}",
        "APT::Sandbox::User=root", f"Dir::State={apt / 'state'}",
        f"Dir::State::status={apt / 'status'}", f"Dir::Cache={apt / 'cache'}",
    )  # fmt: skip
    options = [part for setting in settings for part in ("-o", setting)]
    packages = apt / "packages"
    _run(["apt-get", *options, "-qq", "update"], apt)
    _run(["apt-get", *options, "-qq", "download", *_DEBIAN], packages)
    for package in sorted(packages.glob("*.deb")):
        _run(["dpkg-deb", "-x", str(package), str(system)], apt)
    shutil.rmtree(apt)


def _unpack_wheels(site: Path, versions: list[str]) -> None:
    wheels = FOLDER / "wheels"
    platforms = [part for name in _PLATFORMS for part in ("--platform", name)]
    _run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet",
         "--no-deps", "--only-binary=:all:", "--python-version", _PYTHON.removeprefix("python"),
         *platforms, "--dest", str(wheels), *versions], FOLDER,
    )  # fmt: skip
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
    shutil.rmtree(wheels)


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no word"])[-1]
        raise Unavailable(f"{' '.join(command[:1] + command[-1:])} failed: {last}")
