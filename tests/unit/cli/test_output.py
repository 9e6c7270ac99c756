"""What commands print is text, whatever names and files say."""

import os
from typing import Any

import pytest

from kernelmill.cli.main import main
from kernelmill.cli.output import print_text, wide_console

HOSTILE = "\x1b]0;title\x07\x1b[2J\r\x9b1A"
ESCAPED = r"\x1b]0;title\x07\x1b[2J\r\x9b1A"


def test_control_characters_are_escaped_and_lines_stay(capfd: Any):
    print_text(f"a\tb\n{HOSTILE} ä … \ud800")
    assert capfd.readouterr().out == f"a\tb\n{ESCAPED} ä … \\ud800\n"


def test_tables_escape_them_too(capfd: Any):
    wide_console().print(f"[{HOSTILE}]", markup=False)
    assert r"[\x1b]0;title" in (out := capfd.readouterr().out) and out[:-1].isprintable()


@pytest.mark.parametrize("command", [["verify"], ["ls"], ["gc", "--max-size", "1G"]])
def test_lists_of_a_folder_escape_names_of_files(tmp_path: Any, capfd: Any, command: Any):
    folder = tmp_path / f"k{HOSTILE}"
    folder.mkdir(mode=0o700)
    (folder / f".{HOSTILE}.tmp-1-1").write_text("")
    main(["cache", *command, "--folder", str(folder)])
    captured = capfd.readouterr()
    assert ESCAPED in captured.out + captured.err
    assert "\x1b" not in captured.out + captured.err


def test_errors_escape_what_they_quote(tmp_path: Any, capfd: Any):
    assert main(["aot", "info", os.fspath(tmp_path / HOSTILE)]) == 2
    assert "\x1b" not in (error := capfd.readouterr().err) and r"\x1b" in error
