"""The installer inside a static_kernel_*.run file: it installs the package that contains it.

It is copied into each package as its `__main__` and runs there by itself, so it uses Python's
standard library only and knows nothing of kernels: a package is files with checksums, and the
processor they are for.

    FOLDER/active.json     the packages that programs use, newest first; replaced by one rename
    FOLDER/NAME/           an installed package: its files, and manifest.json; comes by one rename
    FOLDER/.lock           held while one of the two is changed
    FOLDER/.new-*, .old-*  files being written or removed; the next change removes leftovers

So readers see a package complete or not at all, even if the installing process is killed.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import sys
import zipfile
import zlib
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

DEFAULT_FOLDER = "~/.local/share/kernelmill/static_kernels"
FORMAT = 1
MANIFEST = "manifest.json"
ACTIVE = "active.json"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,120}")
FILE = re.compile(r"[A-Za-z0-9_]{1,200}\.(o|info|json)")
_FILES = "kernels/"


class Refused(Exception):
    """An invalid package or folder; the text names the fault, and a remedy."""


# ---- packages -----------------------------------------------------------------------------------


def seal(manifest: dict[str, Any]) -> bytes:
    """Return the text of a manifest, with a checksum over all of it."""
    body = {name: value for name, value in manifest.items() if name != "checksum"}
    text = json.dumps(body, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return json.dumps({**body, "checksum": digest}, sort_keys=True, indent=1).encode() + b"\n"


def unseal(text: bytes, where: str) -> dict[str, Any]:
    """Return the manifest in a text. Refused when it is damaged or of another format."""
    try:
        manifest: dict[str, Any] = json.loads(text)
        intact = seal(manifest) == text
    except (ValueError, TypeError, AttributeError):
        raise Refused(f"{where}: the manifest is damaged") from None
    if not intact:
        raise Refused(f"{where}: the manifest is damaged: its checksum does not match")
    if manifest.get("format") != FORMAT:
        raise Refused(f"{where}: format {manifest.get('format')} is not {FORMAT}; build it anew")
    if not NAME.fullmatch(str(manifest.get("name"))):
        raise Refused(f"{where}: {manifest.get('name')!r} is no name for a package")
    for filename in manifest["files"]:
        if not FILE.fullmatch(filename):
            raise Refused(f"{where}: {filename!r} would lie outside the package's folder")
    return manifest


def read_package(path: str) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return (manifest, files) of a package, every checksum compared. Refused names the fault."""
    try:
        with zipfile.ZipFile(path) as archive:
            manifest = unseal(archive.read(MANIFEST), path)
            there = {n for n in archive.namelist() if n not in (MANIFEST, "__main__.py")}
            for name in sorted(there ^ {_FILES + name for name in manifest["files"]}):
                raise Refused(f"{path}: {name} is missing, or does not belong to the package")
            files = {name: archive.read(_FILES + name) for name in manifest["files"]}
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror or error}") from None
    except (zipfile.BadZipFile, KeyError, EOFError, zlib.error) as error:
        raise Refused(f"{path} is damaged: {error}; build or copy it anew") from None
    _compare(manifest, files, path)
    return manifest, files


def _compare(manifest: dict[str, Any], files: dict[str, bytes], where: str) -> None:
    for name, digest in manifest["files"].items():
        if hashlib.sha256(files[name]).hexdigest() != digest:
            raise Refused(f"{where}: {name} is damaged: its checksum does not match")


def misfit(manifest: dict[str, Any]) -> str:
    """Return the reason why this machine cannot run a package; "" if it can."""
    machine = os.uname().machine
    if machine != manifest["machine"]:
        return f"it is for {manifest['machine']} processors, and this is {machine}"
    missing = sorted(set(manifest["cpu_flags"]) - _cpu_flags())
    if missing:
        return f"it is for processors with {', '.join(missing)}, which this one has not"
    return ""


def _cpu_flags() -> set[str]:
    try:
        with open("/proc/cpuinfo") as file:
            lines = file.readlines()
    except OSError:
        return set()
    # The one of x86-64, the other of AArch64.
    line = next((line for line in lines if line.startswith(("flags", "Features"))), ":")
    return set(line.partition(":")[2].split())


# ---- folders ------------------------------------------------------------------------------------


def check_folder(path: str) -> None:
    """Raise Refused unless `path` is a folder of this user's that no other user can write to."""
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode):
        raise Refused(f"{path} is no folder (or a link to one); name the folder itself")
    if status.st_uid not in (os.geteuid(), 0):
        raise Refused(f"{path} belongs to user {status.st_uid}; choose another with --path")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise Refused(f"{path} can be written by other users. Fix: chmod go-w {path}")


def active(folder: str) -> list[str]:
    """Return names of the packages that programs use, newest first; none without the file."""
    try:
        names = json.loads(Path(folder, ACTIVE).read_bytes())["packages"]
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError):
        raise Refused(
            f"{os.path.join(folder, ACTIVE)} is damaged; remove it and install anew"
        ) from None
    return [name for name in names if NAME.fullmatch(str(name))]


def installed_manifest(folder: str, name: str) -> dict[str, Any]:
    """Return the manifest of an installed package. Refused if it is missing or damaged."""
    path = os.path.join(folder, name, MANIFEST)
    try:
        return unseal(Path(path).read_bytes(), path)
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from None


def check_installed(folder: str, name: str) -> dict[str, Any]:
    """Return the manifest of an installed package, all files compared. Refused names the fault."""
    manifest = installed_manifest(folder, name)
    files: dict[str, bytes] = {}
    for filename in manifest["files"]:
        path = os.path.join(folder, name, filename)
        try:
            files[filename] = Path(path).read_bytes()
        except OSError as error:
            raise Refused(f"{path}: {error.strerror}") from None
    _compare(manifest, files, os.path.join(folder, name))
    return manifest


@contextmanager
def _changing(folder: str) -> Generator[None, None, None]:
    """Hold the folder's lock; remnants of an interrupted change are removed first."""
    with open(os.path.join(folder, ".lock"), "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name in os.listdir(folder):
            if name.startswith((".new-", ".old-")):
                _remove(os.path.join(folder, name))
        yield


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)


def _write(path: str, data: bytes) -> None:
    with open(path, "xb") as file:
        os.fchmod(file.fileno(), 0o644)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _point(folder: str, names: Sequence[str]) -> None:
    fresh = os.path.join(folder, f".new-{ACTIVE}-{os.getpid()}")
    _write(fresh, json.dumps({"packages": list(names)}).encode() + b"\n")
    os.replace(fresh, os.path.join(folder, ACTIVE))
    _sync(folder)


def _away(folder: str, name: str) -> None:
    """Rename a package, so that it disappears at once, then remove it."""
    old = os.path.join(folder, f".old-{name}-{os.getpid()}")
    os.rename(os.path.join(folder, name), old)
    shutil.rmtree(old)


# ---- actions ------------------------------------------------------------------------------------


def install(package: str, folder: str) -> str:
    """Install a package as the first that programs search; return its folder. Refused for a damaged
    package, one that this machine cannot run, and a folder that others can write to; nothing is
    changed then."""
    manifest, files = read_package(package)
    reason = misfit(manifest)
    if reason:
        raise Refused(f"{package} cannot be used here: {reason}")
    os.makedirs(folder, mode=0o755, exist_ok=True)
    check_folder(folder)
    name = manifest["name"]
    with _changing(folder):
        fresh = os.path.join(folder, f".new-{name}-{os.getpid()}")
        os.mkdir(fresh, 0o755)
        for filename, data in files.items():
            _write(os.path.join(fresh, filename), data)
        _write(os.path.join(fresh, MANIFEST), seal(manifest))
        _sync(fresh)
        if not _is_there(folder, name, manifest):
            if os.path.lexists(os.path.join(folder, name)):
                _away(folder, name)
            os.rename(fresh, os.path.join(folder, name))
            _sync(folder)
        else:
            shutil.rmtree(fresh)
        _point(folder, [name, *(other for other in active(folder) if other != name)])
    return os.path.join(folder, name)


def _is_there(folder: str, name: str, manifest: dict[str, Any]) -> bool:
    try:
        return check_installed(folder, name) == manifest
    except Refused:
        return False


def uninstall(name: str, folder: str) -> bool:
    """Remove a package; return False if it was not installed."""
    if not os.path.isdir(folder):
        return False
    check_folder(folder)
    with _changing(folder):
        names = active(folder)
        if name in names:
            _point(folder, [other for other in names if other != name])
        there = os.path.lexists(os.path.join(folder, name))
        if there:
            _away(folder, name)
    return there


# ---- the command --------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None, package: str = "") -> int:
    """Run the command line of a package; return 0, or 2 when something is refused."""
    package = package or sys.argv[0]
    options = _parser(package).parse_args(arguments)
    folder = os.path.abspath(os.path.expanduser(options.path))
    try:
        for line in options.run(package, folder):
            print(line)
    except (Refused, OSError) as error:
        print(f"{os.path.basename(package)}: {error}", file=sys.stderr)
        return 2
    return 0


def _parser(package: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=os.path.basename(package), description="Static kernels for kernelmill, as a package."
    )
    actions = parser.add_mutually_exclusive_group(required=True)
    for flag, run, summary in (
        ("--install", _install, "install for programs that start from now on"),
        ("--uninstall", _uninstall, "remove it again"),
        ("--verify", _verify, "compare all checksums, of an installed copy too"),
        ("--list", _list, "list its kernels"),
        ("--info", _info, "say what it is for"),
    ):
        actions.add_argument(flag, dest="run", action="store_const", const=run, help=summary)
    parser.add_argument(
        "--path", metavar="DIR", default=DEFAULT_FOLDER, help="where packages are: %(default)s"
    )
    return parser


def _install(package: str, folder: str) -> Iterator[str]:
    yield f"installed {install(package, folder)}"


def _uninstall(package: str, folder: str) -> Iterator[str]:
    name = read_package(package)[0]["name"]
    there = uninstall(name, folder)
    yield f"uninstalled {name}" if there else f"{name} is not installed in {folder}"


def _verify(package: str, folder: str) -> Iterator[str]:
    manifest = read_package(package)[0]
    yield f"{package}: {len(manifest['files'])} files are as they were built"
    if os.path.isdir(os.path.join(folder, manifest["name"])):
        check_installed(folder, manifest["name"])
        used = manifest["name"] in active(folder)
        yield f"{os.path.join(folder, manifest['name'])}: the same, {'' if used else 'not '}in use"


def _list(package: str, folder: str) -> Iterator[str]:
    manifest = read_package(package)[0]
    for kernel in manifest["kernels"]:
        yield f"{kernel['kernel']}  {kernel['operator']}"


def _info(package: str, folder: str) -> Iterator[str]:
    manifest = read_package(package)[0]
    for name in ("name", "created", "target", "machine"):
        yield f"{name}: {manifest[name]}"
    yield f"cpu flags: {' '.join(manifest['cpu_flags'])}"
    yield f"operators: {len(manifest['kernels'])}, files: {len(manifest['files'])}"
    yield f"this machine: {misfit(manifest) or 'can use it'}"
    names = active(folder) if os.path.isdir(folder) else []
    yield f"installed in {folder}: {'yes' if manifest['name'] in names else 'no'}"


if __name__ == "__main__":
    sys.exit(main())
