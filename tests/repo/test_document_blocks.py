"""Blocks of the documents that are not run as Python or in a shell are checked by a rule.

`python` and `console` blocks are run (test_documents.py, e2e/test_tutorials.py). Each line of every
other block has to be a command that a rule below knows how to check; what is not even that is in
SHOWN, with what is compared in place of running it.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import re
import shlex
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelmill.core.knobs import KNOBS
from tests.repo.source import DOCUMENTS, ROOT, relative
from tests.repo.test_documents import test_commands_that_are_shown_are_understood as understood

FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^(?P=indent)```\n",
    re.DOTALL | re.MULTILINE,
)
INDENTED = re.compile(r"(?<=\n\n)(?:    [^\n]*\n)+")
RUN = {"python", "console"}

SHOWN = {
    ("docs/architecture.md", "torch.compile(model)"): "a picture",
    ("docs/architecture.md", "cli"): "compared with the packages by test_architecture.py",
    ("docs/cache.md", "{cache_dir}/"): "a pattern of paths",
    ("docs/static_kernels.md", "aclnn_static_shape_kernel_outputs/"): "a pattern of paths",
    ("docs/serving.md", "kernelmill_calls_total"): "names that tests/e2e/test_serve.py asks for",
    ("docs/tour.md", "%0 = matmul"): "the Python below it compares the operators",
    ("docs/fleet.md", "[[job]]"): "test below",
    ("docs/fleet.md", "from dask.distributed import Client"): "test below: it needs a cluster",
    ("docs/fleet.md", "import ray"): "test below: it needs a cluster",
}
"""Blocks without commands, by how they begin."""

WRITTEN = {"docs/api.md", "docs/programs.md"}
"""Documents that a tool writes: blocks are signatures, or programs that it has found."""


def blocks(path: Path) -> list[str]:
    """Those of a document that are not run."""
    text = path.read_text()
    fenced = [each["code"] for each in FENCE.finditer(text) if each["language"] not in RUN]
    plain = FENCE.sub("\n", text)
    return fenced + [re.sub("^    ", "", each, flags=re.M) for each in INDENTED.findall(plain)]


ALL = [(relative(path), block) for path in DOCUMENTS if relative(path) not in WRITTEN
       for block in blocks(path)]  # fmt: skip


def is_shown(document: str, block: str) -> bool:
    return any(document == of and block.startswith(begin) for of, begin in SHOWN)


COMMANDS = sorted({
    line for document, block in ALL if not is_shown(document, block)
    for line in block.replace("\\\n", " ").splitlines() if line.strip()
})  # fmt: skip


class Parsed(Exception):
    """The arguments of a command were taken."""


def kernelmill(words: list[str]) -> None:
    understood(shlex.join(["kernelmill", *words]))


def make(words: list[str]) -> None:
    assert f"\n{words[0]}:" in (ROOT / "Makefile").read_text()
    assert all(re.fullmatch(r"SHARE=\d+/\d+", word) for word in words[1:])


def python(words: list[str]) -> None:
    if words[0] != "-m":
        assert words == ["script.py"], "a script of the reader's"
    elif words[1] in ("pytest", "venv", "build"):
        named = [word for word in words[2:] if "/" in word]
        assert [word for word in named if not (ROOT / word).exists()] == []
    else:
        module_takes(words[1], words[2:])


def module_takes(name: str, arguments: list[str]) -> None:
    """A module of ours takes these arguments; it is not run further."""

    def parse(parser: argparse.ArgumentParser, *_: object) -> None:
        _, left = parser.parse_known_args(arguments)
        assert left == []
        raise Parsed

    if (ROOT / name.replace(".", "/")).is_dir():
        name += ".__main__"
    found = importlib.util.find_spec(name)
    assert found is not None and found.origin is not None
    if ".parse_args(" in Path(found.origin).read_text():
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Parsed):
            patch.setattr(argparse.ArgumentParser, "parse_args", parse)
            patch.setattr(sys, "argv", [name, *arguments])
            main = importlib.import_module(name).main
            main(*[arguments] * main.__code__.co_argcount)
    else:
        assert arguments == []


def pip(words: list[str]) -> None:
    """`make installed` builds and installs what these do; here it is seen that all is there."""
    options = {
        "install",
        "wheel",
        "build",
        "--no-deps",
        "--wheel-dir",
        "dist",
        "&&",
        "python",
        "-m",
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for word in words:
        extra = re.fullmatch(r"\.(?:\[(\w+)\])?", word)
        wheel = re.fullmatch(rf"{project['name']}-VERSION-py3-none-any\.whl", word)
        assert extra or wheel or word in options, word
        assert not extra or extra[1] is None or extra[1] in project["optional-dependencies"]


def curl(words: list[str]) -> None:
    """e2e/test_serve.py runs these against a server that it starts."""
    assert words[0] == "localhost:8000/embed"


def podman(words: list[str]) -> None:
    """e2e/test_serve.py runs the commands of the Containerfile's first stage, and the service."""
    if words[0] == "build":
        assert (ROOT / words[words.index("-f") + 1]).is_file()
    else:
        assert words == "run --read-only --tmpfs /tmp -p 8000:8000 embeddings".split()


def perf(words: list[str]) -> None:
    """The file that it reads is compared by e2e/test_profiled.py; perf itself needs rights."""
    assert words in (["record", "python", "script.py"], ["report"])


def export(words: list[str]) -> None:
    assert len(words) == 1 and "=" in words[0]


def run(words: list[str]) -> None:
    assert words == ["python", "warm_up.py"], "a script of the reader's"


def numactl(words: list[str]) -> None:
    assert words.pop(0) == "--physcpubind=0-15" and words.pop(0) == "--membind=0"
    python(words[1:])


def taskset(words: list[str]) -> None:
    assert words[:2] == ["-c", "0-15"]
    python(words[3:])


def ruff(words: list[str]) -> None:
    assert words == ["format"]


def ci(words: list[str]) -> None:
    assert (ROOT / ".ci" / "run").is_file() and words == []


RULES: dict[str, Callable[[list[str]], None]] = {
    "kernelmill": kernelmill, "make": make, "python": python, "python3": python, "pip": pip,
    "curl": curl, "podman": podman, "perf": perf, "export": export, "ENV": lambda words: None,
    "RUN": run, "ruff": ruff, ".ci/run": ci, "numactl": numactl, "taskset": taskset,
}  # fmt: skip


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_that_are_not_run_are_right(line: str) -> None:
    words = shlex.split(line, comments=True)
    for variable in re.findall(r"\b(KERNELMILL_\w+)=", line):
        assert variable in {knob.name for knob in KNOBS}
    while words and re.fullmatch(r"\w+=\S*", words[0]):
        words.pop(0)
    if words:
        program = words[0].removeprefix(".venv/bin/")
        assert program in RULES, "run it (```console), or say how it is checked"
        RULES[program](words[1:])


def test_what_is_only_shown_is_there() -> None:
    there = {key for key in SHOWN for document, block in ALL
             if document == key[0] and block.startswith(key[1])}  # fmt: skip
    assert there == set(SHOWN)


def only(document: str, begin: str) -> str:
    (found,) = (block for of, block in ALL if of == document and block.startswith(begin))
    return found


def test_the_file_of_jobs_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kernelmill.fleet import read_jobs

    (tmp_path / "jobs.toml").write_text(only("docs/fleet.md", "[[job]]"))
    (tmp_path / "ranker.kmill").touch()
    monkeypatch.chdir(tmp_path)
    embedder, ranker = read_jobs(tmp_path / "jobs.toml")
    assert embedder.targets == ("native", "x86-64-v3") and ranker.name == "ranker"


@pytest.mark.parametrize("begin", ["from dask.distributed", "import ray"])
def test_clusters_are_given_what_precompile_takes(begin: str) -> None:
    from kernelmill import fleet

    code = ast.parse(only("docs/fleet.md", begin))
    (call,) = (node for node in ast.walk(code) if isinstance(node, ast.Call)
               and ast.unparse(node.func) == "kernelmill.precompile")  # fmt: skip
    assert len(call.args) == 2 and [each.arg for each in call.keywords] == ["store"]
    imported = {name.name for node in ast.walk(code) if isinstance(node, ast.ImportFrom)
                and node.module == "kernelmill.fleet" for name in node.names}  # fmt: skip
    assert [name for name in imported if not hasattr(fleet, name)] == []
