"""The code in the documents: finds it, and runs it."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from kernelmill.backend.replacements import REPLACEMENTS

FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>python|console)(?: title=\"(?P<title>[\w.]+)\")?\n"
    r"(?P<code>.*?)^(?P=indent)```",
    re.DOTALL | re.MULTILINE,
)


def languages(path: Path) -> list[str]:
    """Of the blocks of a document that can be run, in order."""
    return [block["language"] for block in FENCE.finditer(path.read_text())]


def as_reader(patch: pytest.MonkeyPatch, home: Path, folder: Path) -> None:
    """An empty folder, and the environment of who has installed the package and reads on: none of
    its variables but those that say what a run of the tests is for."""
    for each in (home, folder):
        each.mkdir(exist_ok=True)
    patch.chdir(folder)
    for name in set(os.environ) - {"KERNELMILL_TARGET", "KERNELMILL_WITHOUT_INTERNALS"}:
        if name.startswith(("KERNELMILL_", "XDG_", "PYTHONPATH")):
            patch.delenv(name)
    patch.setenv("HOME", str(home))
    patch.setenv("PATH", os.path.dirname(sys.executable), prepend=os.pathsep)


def run_blocks(path: Path) -> None:
    """Run them in order: Python in one namespace, or written into the file that its title names;
    commands in a shell, where "..." in their output stands for anything. What a command exports
    holds for those after it."""
    text = path.read_text()
    exported = dict(os.environ)
    namespace = {"__name__": "__main__"}
    try:
        for block in FENCE.finditer(text):
            line = text.count("\n", 0, block.start("code"))
            source = textwrap.dedent(block["code"])  # that of a tab is indented
            if block["language"] == "console":
                _run_commands(source, f"{path}:{line}", exported)
            elif block["title"]:
                Path(block["title"]).write_text(source)
            else:
                code = compile("\n" * line + source, str(path), "exec")
                exec(code, namespace)  # noqa: S102  # our own documents
    finally:
        REPLACEMENTS.__init__()  # what a document registers is its own


def _run_commands(code: str, where: str, exported: dict[str, str]) -> None:
    matches = doctest.OutputChecker().check_output
    for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", code, re.MULTILINE):
        if exports := re.fullmatch(r"export (\w+)=(\S+)", command):
            exported[exports[1]] = exports[2]
            continue
        done = subprocess.run(
            command,
            env=exported,
            shell=True,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        shown = done.stdout + done.stderr
        assert done.returncode == 0, f"{where}: {command}\n{shown}"
        assert matches(expected, shown, doctest.ELLIPSIS), f"{where}: {command}\n{shown}"
