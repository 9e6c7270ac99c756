"""The folders of compiled kernels (where, how large, writable, trusted) and the environment."""

from __future__ import annotations

import difflib
import os
import shutil
from typing import Any

from kernelmill.cli.checks.finding import Section
from kernelmill.cli.output import existing
from kernelmill.core import knobs
from kernelmill.core.cache_home import cache_home
from kernelmill.core.errors import ConfigError, KernelmillError, StoreError
from kernelmill.store import default_folders
from kernelmill.store.folder import Folder
from kernelmill.store.packages import installed

_LEAST_FREE = 1 << 30


def environment() -> Section:
    """Report variables of kernelmill that are set; wrong for an unreadable or unknown one."""
    section = Section("environment")
    for knob in knobs.KNOBS:
        if set_to := knobs.of_others((knob.name,)):
            section.facts[knob.name] = knob.shown(set_to[knob.name])
        try:
            knob.get()
        except ConfigError as error:
            section.wrong(str(error), f"correct or unset {knob.name}")
    names = [knob.name for knob in knobs.KNOBS]
    for name in knobs.unknown():
        near = difflib.get_close_matches(name, names, 1)
        section.wrong(
            f"environment variable {name} is not known and has no effect",
            f"write {near[0]}, or unset it" if near else "unset it",
        )
    return section


def store(folder: str | None) -> Section:
    """Report the folders that are read and the one that is written."""
    section = Section("store")
    paths = [os.path.abspath(path) for path in ((folder,) if folder else default_folders())]
    for path in paths:
        section.facts[path] = _folder(section, path, path == paths[-1])
    home = knobs.CACHE_HOME.get() or cache_home()
    section.facts["compile cache"] = os.path.abspath(home)
    section.facts["remote"] = "yes" if knobs.of_others((knobs.REMOTE.name,)) else "none"
    try:
        section.facts["static kernels"] = [package.name for package in installed("error")]
    except KernelmillError as error:
        section.wrong(f"installed static kernels: {error}", "build them again for this machine")
    return section


def _folder(section: Section, path: str, is_written: bool) -> dict[str, Any]:
    """Return one folder's facts; its entries are counted and not checked."""
    exists, there = os.path.isdir(path), existing(path)
    writable = os.access(there, os.W_OK | os.X_OK)
    facts: dict[str, Any] = {"exists": exists, "writable": writable, "trusted": True}
    try:
        files = [(file, os.path.getsize(os.path.join(path, file))) for file in Folder(path).files()]
    except StoreError as error:
        facts["trusted"] = False
        section.wrong(str(error), "see docs/security.md; nothing of it is used before that")
        return facts
    except OSError as error:
        why = f"{path} cannot be read: {error.strerror}"
        section.wrong(why, "make it readable, or name another folder")
        return facts
    facts["kernels"] = sum(file.endswith(".json") for file, _ in files)
    facts["bytes"] = sum(size for _, size in files)
    facts["free bytes"] = shutil.disk_usage(there).free
    damaged = sum(".bad-" in file for file, _ in files)
    if damaged:
        section.note(
            f"{path} has {damaged} damaged files that were set aside and compiled again",
            "`kernelmill cache gc --max-size 1T` removes them after a day; if more come, check the "
            "disk",
        )
    if is_written and not writable:
        section.slow(
            f"{path} cannot be written: every process compiles what is missing in it for itself",
            f"make it writable, or put a folder that is behind it: {knobs.KERNEL_META.name}="
            f"{path}{os.pathsep}/another/folder",
        )
    if not is_written and not exists:
        section.wrong(
            f"there is no folder {path}, which {knobs.KERNEL_META.name} names",
            "make it, or take it out of the list",
        )
    if is_written and facts["free bytes"] < _LEAST_FREE:
        section.note(
            f"{facts['free bytes'] >> 20} MiB are free for {path}",
            "`kernelmill cache gc --max-size 500M` removes kernels that were not used for long",
        )
    return facts
