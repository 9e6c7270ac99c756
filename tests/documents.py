"""The code in the documents: finds it, and runs it."""

from __future__ import annotations

import doctest
import re
import subprocess
from pathlib import Path

FENCE = re.compile(
    r"^```(?P<language>python|console)(?: title=\"(?P<title>[\w.]+)\")?\n(?P<code>.*?)^```",
    re.DOTALL | re.MULTILINE,
)


def languages(path: Path) -> list[str]:
    """Of the blocks of a document that can be run, in order."""
    return [block["language"] for block in FENCE.finditer(path.read_text())]


def run_blocks(path: Path, folder: Path) -> None:
    """Run them in order: Python in one namespace, or written into the file of `folder` that its
    title names; commands in a shell, where "..." in their output stands for anything."""
    text = path.read_text()
    namespace = {"__name__": "__main__"}
    for block in FENCE.finditer(text):
        line = text.count("\n", 0, block.start("code"))
        if block["language"] == "console":
            _run_commands(block["code"], f"{path}:{line}")
        elif block["title"]:
            (folder / block["title"]).write_text(block["code"])
        else:
            code = compile("\n" * line + block["code"], str(path), "exec")
            exec(code, namespace)  # noqa: S102  # our own documents


def _run_commands(code: str, where: str) -> None:
    matches = doctest.OutputChecker().check_output
    for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", code, re.MULTILINE):
        done = subprocess.run(
            command, shell=True, capture_output=True, text=True, timeout=300, check=False
        )
        shown = done.stdout + done.stderr
        assert done.returncode == 0, f"{where}: {command}\n{shown}"
        assert matches(expected, shown, doctest.ELLIPSIS), f"{where}: {command}\n{shown}"
