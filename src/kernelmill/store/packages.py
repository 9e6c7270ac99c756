"""Packages of static kernels: building them, and finding installed ones.

A package is a set of the store's entries with the processor they were compiled for. As a .run file
it installs itself (installer.py); as a wheel it is found by its entry point in the group
"kernelmill.static_kernels". Installed, it is a folder in front of the store's own.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import sys
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from kernelmill.core import knobs
from kernelmill.core.dataclass import dataclass
from kernelmill.core.digest import sha256
from kernelmill.core.errors import ConfigError, StoreError
from kernelmill.core.log import get_logger
from kernelmill.core.target.isa import why_not_here
from kernelmill.core.target.machine import Machine, parse_machine
from kernelmill.store import installer
from kernelmill.store.folder import OnUntrusted

ENTRY_POINTS = "kernelmill.static_kernels"
_HEAD = b"""#!/bin/sh
# Static kernels for kernelmill: a Python program and its data as a zip archive behind this script.
command -v python3 >/dev/null || { echo "$0 needs python3" >&2; exit 2; }
python3 -c 'import sys, zipfile; sys.exit(not zipfile.is_zipfile(sys.argv[1]))' "$0" \\
  && exec python3 "$0" "$@"
echo "$0 is damaged: it ends early; build or copy it anew" >&2
exit 2
"""
"""The head of a .run file, which reports a truncated file better than Python would."""

_log = get_logger("store")


@dataclass(frozen=True)
class Package:
    """An installed package: its folder of entries, and the machine they were compiled for."""

    name: str
    path: str
    machine: Machine


# ---- building -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class PackageContents:
    """Contents of a package.

    files    files of the store's entries, by file name
    kernels  (entry, operator in words), for people
    created  time of the build in words
    """

    name: str
    machine: Machine
    files: Mapping[str, bytes]
    kernels: Sequence[tuple[str, str]]
    created: str

    def manifest(self) -> dict[str, Any]:
        return {
            "format": installer.FORMAT,
            "name": self.name,
            "created": self.created,
            "target": str(self.machine),
            "machine": self.machine.isa.family,
            "cpu_flags": list(self.machine.isa.cpu_flags),
            "files": {name: sha256(data) for name, data in sorted(self.files.items())},
            "kernels": [{"kernel": kernel, "operator": text} for kernel, text in self.kernels],
        }


def check_name(name: str) -> None:
    """Raise ConfigError if a package cannot have this name."""
    if not installer.NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} is no name for a package: up to 121 letters, digits, '_', '-', '.', of "
            "which the first is a letter or digit"
        )


def write_run(contents: PackageContents, folder: str | os.PathLike[str]) -> str:
    """Write `{name}.run`, an executable file that installs itself; return its path."""
    assert installer.__file__ is not None
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as package:
        _add(package, "__main__.py", Path(installer.__file__).read_bytes())
        _add(package, installer.MANIFEST, installer.seal(contents.manifest()))
        for name, data in sorted(contents.files.items()):
            _add(package, f"kernels/{name}", data)
    path = os.path.join(folder, f"{contents.name}.run")
    _write(path, _HEAD + archive.getvalue(), 0o755)
    return path


def write_wheel(contents: PackageContents, folder: str | os.PathLike[str], version: str) -> str:
    """Write a wheel, whose kernels programs find once pip has installed it; return its path. The
    format is that of the Python packaging user guide's "Binary distribution format"."""
    module = contents.name.replace("-", "_").replace(".", "_")
    info = f"{module}-{version}.dist-info"
    machine = contents.machine.isa.family
    tag = f"py3-none-linux_{machine}"
    files: dict[str, bytes] = {
        f"{module}/__init__.py": b'"""Static kernels for kernelmill."""\n',
        f"{module}/{installer.MANIFEST}": installer.seal(contents.manifest()),
        **{f"{module}/{name}": data for name, data in sorted(contents.files.items())},
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {module}\nVersion: {version}\n"
        f"Summary: Static kernels for kernelmill, {contents.machine}\n".encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: kernelmill\nRoot-Is-Purelib: false\n"
        f"Tag: {tag}\n".encode(),
        f"{info}/entry_points.txt": f"[{ENTRY_POINTS}]\n{module} = {module}\n".encode(),
    }
    record = "".join(
        f"{name},sha256={_urlsafe(data)},{len(data)}\n" for name, data in files.items()
    )
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    wheel = io.BytesIO()
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            _add(archive, name, data)
    path = os.path.join(folder, f"{module}-{version}-{tag}.whl")
    _write(path, wheel.getvalue(), 0o644)
    return path


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    """Add a file with a fixed time, so that equal contents give equal bytes."""
    entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    entry.external_attr = 0o644 << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, data)


def _urlsafe(data: bytes) -> str:
    digest = hashlib.sha256(data).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _write(path: str, data: bytes, mode: int) -> None:
    temporary = f"{path}.tmp-{os.getpid()}"
    with open(temporary, "wb") as file:
        os.fchmod(file.fileno(), mode)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


# ---- finding ------------------------------------------------------------------------------------


def installed(on_untrusted: OnUntrusted = "error") -> tuple[Package, ...]:
    """Return the packages that this machine can use, in search order.

    The search is made once in a process: packages installed later are for programs that start
    later. StoreError when a folder of them can be written by others, or a warning with "memory".
    """
    return _installed(knobs.STATIC_KERNELS.get(), on_untrusted)


@cache
def _installed(folder: str, on_untrusted: OnUntrusted) -> tuple[Package, ...]:
    found: list[Package] = []
    try:
        found = packages_in(os.path.expanduser(folder or installer.DEFAULT_FOLDER))
    except StoreError as refused:
        if on_untrusted == "error":
            raise
        _log.warning("not used: %s", refused)
    except OSError as error:
        _log.warning("installed static kernels cannot be looked for (%s)", error)
    return (*found, *_wheels())


def packages_in(folder: str) -> list[Package]:
    """Return the packages in use that are installed in a folder. StoreError as `installed`; OSError
    if it cannot be read now."""
    if not os.path.isdir(folder):
        return []
    try:
        installer.check_folder(folder)
        names = installer.active(folder)
    except installer.Refused as refused:
        raise StoreError(f"installed static kernels: {refused}") from None
    found = (_package(os.path.join(folder, name)) for name in names)
    return [package for package in found if package is not None]


def _wheels() -> list[Package]:
    if not any(map(_has_wheels, sys.path)):
        return []
    points = metadata.entry_points(group=ENTRY_POINTS)
    places = (point.dist.locate_file(point.value) for point in points if point.dist is not None)
    return [package for package in map(_package, map(str, places)) if package is not None]


def _has_wheels(folder: str) -> bool:
    """Return whether a wheel in a folder of modules declares static kernels. `metadata` would know
    too, but it reads and parses several files of each wheel."""
    word = ENTRY_POINTS.encode()
    with suppress(OSError):
        for name in os.listdir(folder or "."):
            if name.endswith((".dist-info", ".egg-info")):
                with suppress(OSError), open(f"{folder or '.'}/{name}/entry_points.txt", "rb") as f:
                    if word in f.read():
                        return True
    return False


def _package(path: str) -> Package | None:
    """Return the package in a folder; None, with a warning, if it cannot be used."""
    folder, name = os.path.split(path)
    try:
        manifest = installer.installed_manifest(folder, name)
        machine = parse_machine(manifest["target"])
        # The installer knows processors alone, the ISA also the system's permissions.
        reason = installer.misfit(manifest) or why_not_here(machine.isa)
        if not reason:
            return Package(manifest["name"], path, machine)
    except (installer.Refused, ValueError) as error:
        reason = str(error)
    _log.warning("static kernels in %s are not used: %s", path, reason)
    return None
