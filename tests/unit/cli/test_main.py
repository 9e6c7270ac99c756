"""The `kernelmill` command over a folder with good, damaged, incomplete and left-over files."""

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys

import pytest
import typer

from kernelmill.cli import cache
from kernelmill.cli.main import build_app, main
from kernelmill.core.version import VERSION
from kernelmill.store import Store
from kernelmill.store.entry import encode
from tests.unit.store.samples import compiled, key


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Three kernels, found where they are by default."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("KERNELMILL_KERNEL_META", raising=False)
    folder = tmp_path / "kernelmill" / "kernel_meta"
    for n in range(3):
        Store(folder).put(key(n), "Square", compiled(n))
    return folder


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"kernelmill {VERSION}\n"


def test_ls_lists_every_kernel_and_adds_up(folder, capsys):
    assert main(["cache", "ls"]) == 0
    *rows, total = capsys.readouterr().out.splitlines()
    assert {row.split()[2] for row in rows} == {f"Square_{key(n).digest}" for n in range(3)}
    assert total == f"3 kernels, {3 * 2004} bytes of objects in {folder}"


def test_verify_is_clean_after_good_writes(folder, capsys):
    assert main(["cache", "verify"]) == 0
    assert capsys.readouterr().out == f"3 ok, 0 incomplete, 0 bad, 0 left over in {folder}\n"


def test_verify_names_what_is_damaged_and_changes_nothing(folder, capsys):
    names = [f"Square_{key(n).digest}" for n in range(3)]
    (folder / f"{names[0]}.o").write_bytes(b"")
    (folder / f"{names[1]}.info").unlink()
    (folder / f"{names[2]}.o.tmp-1-1").write_bytes(b"")
    before = sorted(path.name for path in folder.iterdir())
    assert main(["cache", "verify"]) == 1
    out = capsys.readouterr().out
    assert f"bad: {names[0]}.o is damaged" in out
    assert f"may be deleted: {names[2]}.o.tmp-1-1" in out
    assert f"1 ok, 1 incomplete, 1 bad, 1 left over in {folder}" in out
    assert sorted(path.name for path in folder.iterdir()) == before


def test_verify_recomputes_the_digest_from_the_ingredients(folder, capsys):
    name = f"Square_{key(1).digest}"
    Store(folder).folder.save(name, encode(name, key(9), compiled(1)))
    assert main(["cache", "verify"]) == 1
    assert f"its ingredients give the digest {key(9).digest}" in capsys.readouterr().out


@pytest.mark.parametrize("action", ["ls", "verify"])
def test_a_folder_that_is_not_there_is_named(action, capsys, tmp_path):
    assert main(["cache", action, "--folder", str(tmp_path / "none")]) == 2
    assert "no folder" in capsys.readouterr().err


def test_a_folder_not_to_be_trusted_is_an_error_with_the_fix(folder, capsys):
    folder.chmod(0o777)
    assert main(["cache", "ls"]) == 2
    assert "chmod" in capsys.readouterr().err


QUICK = [
    ["--help"],
    ["lower", "--help"],
    ["--nonsense"],
    ["nonsense"],
    ["cache", "gc"],
    ["cache", "ls"],
    ["cache", "verify"],
    ["gears", "suggest", "/nowhere/log"],
]


def test_help_wrong_usage_and_the_folder_do_not_import_torch(folder):
    source = f"""
import sys
from kernelmill.cli.main import main
codes = [main(arguments) for arguments in {QUICK}]
print(codes, [name for name in ("torch", "llvmlite") if name in sys.modules], file=sys.stderr)
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", source], env=environment, capture_output=True, text=True, check=True
    )
    assert run.stderr.splitlines()[-1] == "[0, 0, 2, 2, 2, 0, 0, 2] []"


def _commands(group, path=()):
    """Every command and group below, as the words that are typed."""
    for name, command in group.commands.items():
        yield (*path, name)
        if hasattr(command, "commands"):
            yield from _commands(command, (*path, name))


COMMANDS = list(_commands(typer.main.get_command(build_app())))


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_help_has_examples_that_are_read_on_60_columns(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert main([*command, "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 60
    assert [line for line in lines if "…" in line] == [], "no word is cut"
    examples = [line.strip() for line in lines[lines.index(f"{' Examples:':60}") + 1 :]]
    assert any(line.startswith(" ".join(["kernelmill", *command])) for line in examples)


def test_names_that_are_mistyped_are_refused_with_what_is_near(capsys):
    assert main(["cashe", "ls"]) == 2
    assert "Did you mean 'cache'?" in capsys.readouterr().err
    assert main(["cache", "ls", "--jsn"]) == 2
    assert "--json" in capsys.readouterr().err


def test_json_has_the_facts_of_the_text(folder, tmp_path, capsys):
    (folder / f"Square_{key(0).digest}.o").write_bytes(b"")
    assert main(["cache", "ls", "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert listed["folder"] == str(folder)
    states = {row["name"]: (row["state"], row["bytes"]) for row in listed["kernels"]}
    assert states[f"Square_{key(1).digest}"] == ("ok", 2004)
    assert main(["cache", "verify", "--json"]) == 1
    (checked,) = json.loads(capsys.readouterr().out)
    assert (checked["ok"], checked["bad"]) == (2, 1)
    assert [row["name"] for row in checked["damaged"]] == [f"Square_{key(0).digest}"]
    archive = str(tmp_path / "kernels.tar")
    assert main(["cache", "export", archive, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"exported": 2, "file": archive}
    assert main(["cache", "gc", "--max-size", "0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["left_bytes"] == 0
    assert main(["cache", "import", archive, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["added"] == 2
    assert main(["cache", "why", key(1).digest, key(2).digest, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["differs"] == [
        {"ingredient": "kernel", "first": ["kernel number 1"], "second": ["kernel number 2"]}
    ]


AS_TEXT_ALONE = {("run",), ("on",)}
"""The script's own output is all that it prints."""


def test_every_command_prints_json_too():
    lacking = {
        path for path in COMMANDS
        if not hasattr(_command(path), "commands")
        and not any("--json" in option.opts for option in _command(path).params)
    }  # fmt: skip
    assert lacking == AS_TEXT_ALONE


def _command(path):
    found = typer.main.get_command(build_app())
    for name in path:
        found = found.commands[name]
    return found


def test_colours_are_for_terminals_and_not_where_NO_COLOR_says_so(tmp_path):
    """Help into a pipe, on a terminal, and on one with NO_COLOR."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm-256color"}
    environment.pop("NO_COLOR", None)
    command = [sys.executable, "-m", "kernelmill", "cache", "--help"]
    piped = subprocess.run(command, env=environment, capture_output=True, check=True).stdout
    assert b"\x1b[" not in piped and b"verify" in piped
    assert b"36m" in on_terminal(command, environment)
    assert b"36m" not in on_terminal(command, environment | {"NO_COLOR": "1"})


def on_terminal(command, environment):
    """What a command writes to a terminal."""
    parent, child = pty.openpty()
    with subprocess.Popen(command, env=environment, stdout=child, stderr=child, stdin=child) as run:
        os.close(child)
        written = b""
        with contextlib.suppress(OSError):  # the end of the terminal
            while part := os.read(parent, 65536):
                written += part
    os.close(parent)
    assert run.returncode == 0
    return written


def test_a_reader_that_goes_away_ends_it_quietly(folder):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "kernelmill", "cache", "ls", "--json"]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as run:
        assert run.stdout is not None and run.stderr is not None
        run.stdout.close()
        assert run.stderr.read() == b""
    assert run.returncode == 141


def test_ctrl_c_while_a_model_is_made_leaves_nothing_behind(tmp_path):
    (tmp_path / "slow.py").write_text(
        "import time\ndef make():\n    print('making', flush=True)\n    time.sleep(600)\n"
    )
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": str(tmp_path),
    }
    command = [sys.executable, "-m", "kernelmill", "bench", str(tmp_path / "slow.py:make")]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # Tests that run in the background of a shell ignore it, and so would their children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as run:  # fmt: skip
        assert run.stdout.readline() == "making\n"
        run.send_signal(signal.SIGINT)
        assert run.communicate() == ("", "")
    assert run.returncode == 130
    assert [path.name for path in tmp_path.iterdir()] == ["slow.py"]


def test_ctrl_c_is_exit_code_130(monkeypatch, folder, capsys):
    def interrupted(path):
        raise KeyboardInterrupt

    monkeypatch.setattr(cache, "survey", interrupted)
    assert main(["cache", "ls"]) == 130
    assert capsys.readouterr().out == ""


def test_ctrl_c_while_a_module_is_imported_is_one_too(monkeypatch, folder, capsys):
    def interrupted(path):
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as cause:
            raise ImportError("the C part cannot be imported") from cause

    monkeypatch.setattr(cache, "survey", interrupted)
    assert main(["cache", "ls"]) == 130
    assert capsys.readouterr().err == ""


def test_gc_export_import_and_why(folder, tmp_path, capsys):
    archive = str(tmp_path / "kernels.tar")
    assert main(["cache", "export", archive]) == 0
    assert main(["cache", "gc", "--max-size", "0"]) == 0
    assert list(folder.glob("[!.]*")) == []
    assert main(["cache", "import", archive]) == 0
    assert main(["cache", "verify"]) == 0
    assert main(["cache", "why", key(0).digest, key(1).digest]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"exported 3 kernels to {archive}"
    assert lines[1].startswith("removed 3 kernels, ")
    assert lines[2] == f"imported 3 kernels, 0 already there, 0 refused in {folder}"
    assert lines[4:] == ["kernel differs:", "  - kernel number 0", "  + kernel number 1"]


def test_a_size_that_cannot_be_read(folder, capsys):
    assert main(["cache", "gc", "--max-size", "much"]) == 2
    assert "'much' is no size" in capsys.readouterr().err
