"""Each example below a command's --help runs in a folder that has what it names."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from torch import nn

import kernelmill
from kernelmill.cli import bench, race
from kernelmill.cli.main import build_app, main
from kernelmill.core.digest import Key
from kernelmill.store import Store
from tests.fresh import FreshProcesses
from tests.unit.store.samples import compiled

GRAPHS = Path(__file__).parents[1] / "golden" / "lower"

MODEL = """
import torch

class Embedder(torch.nn.Linear):
    pass

def make():
    return Embedder(16, 16).eval(), (torch.ones(2, 16),)

small = ranker = embedder = make
"""

SHARED = "redis://host:6379/0"
"""A host that no test has: a folder stands there."""


def examples() -> Iterator[str]:
    """Of all commands, those of groups too."""
    waiting: list[Any] = [typer.main.get_command(build_app())]
    while waiting:
        command = waiting.pop()
        waiting += getattr(command, "commands", {}).values()
        title, *lines = (command.epilog or "").splitlines() or [""]
        if title == "Examples:":
            yield from (line.strip().replace(r"\[", "[") for line in lines)


EXAMPLES = sorted(set(examples()))


def test_every_command_has_examples() -> None:
    def names(command: Any, path: str) -> Iterator[str]:
        for name, each in getattr(command, "commands", {}).items():
            yield from names(each, f"{path} {name}")
        if not getattr(command, "commands", {}):
            yield path

    shown = {" ".join(example.split()[:n]) for example in EXAMPLES for n in (2, 3)}
    assert [
        n for n in names(typer.main.get_command(build_app()), "kernelmill") if n not in shown
    ] == []


def key_of(beginning: str) -> Key:
    """One whose digest begins so."""
    keys = (Key.of({"kernel": f"number {number}"}) for number in count())
    return next(key for key in keys if key.digest.startswith(beginning))


def at_home(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """As a user works there: the home is in the folder, and nothing is set but a shared store."""
    patch.chdir(folder)
    patch.syspath_prepend(folder)
    for name in [name for name in os.environ if name.startswith(("KERNELMILL_", "XDG_"))]:
        patch.delenv(name)
    patch.setenv("HOME", str(folder / "home"))
    patch.setenv("KERNELMILL_REMOTE", f"file://{folder}/shared")
    patch.setenv("KERNELMILL_REMOTE_KEY", "k" * 32)
    patch.setenv("KERNELMILL_REMOTE_ACCESS", "write")


class Model(nn.Linear):
    def run(self, x: torch.Tensor) -> torch.Tensor:
        return self(x).relu()


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that examples name."""
    folder = tmp_path_factory.mktemp("examples")
    (folder / "model.py").write_text(MODEL)
    for package in ("package", "shop"):
        (folder / package).mkdir()
        (folder / package / "models.py").write_text(MODEL)
    for script in ("script.py", "serve.py"):
        (folder / script).write_text("import torch\nprint(torch.ones(2).sum())\n")
    (folder / "fleet.toml").write_text('[[job]]\nmodel = "model.py:embedder"\n')
    shutil.copy(GRAPHS / "softmax.graph", folder)
    shutil.copy(GRAPHS / "small_product.graph", folder / "product.graph")
    with pytest.MonkeyPatch.context() as patch:
        at_home(folder, patch)
        model, x = Model(4, 4).eval(), torch.ones(2, 4)
        kernelmill.aot.compile(model, (x,), path="model.kmill")
        call = torch.compile(model, backend="kernelmill")
        with torch.no_grad(), kernelmill.static_kernels.record("operators.log"):
            with kernelmill.inference.record_shapes(model, "shapes.jsonl"):
                for size in (1, 2, 3):
                    call(torch.ones(size, 4))
            kernelmill.inference.cache_compile(model.run)(x)
        kernels = Store(folder / "home" / ".cache" / "kernelmill" / "kernel_meta")
        for number, beginning in enumerate(("3f2a", "91c0")):
            kernels.put(key_of(beginning), "Map", compiled(number))
        with torch.no_grad():
            report = kernelmill.explain(model, x, measure=False)
        (folder / "before.json").write_text(json.dumps(report.as_dict()))
        assert main(["cache", "export", "kernels.tar"]) == 0
        assert main(["precompile", "fleet.toml"]) == 0
    return folder


@pytest.fixture
def place(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it to work in, where nothing takes long."""
    folder = tmp_path / "place"
    shutil.copytree(prepared, folder)
    at_home(folder, monkeypatch)
    _, *others = bench.bench.__defaults__ or ()
    monkeypatch.setattr(bench.bench, "__defaults__", (0.05, *others))
    monkeypatch.setattr(race, "why_no_inductor", lambda: "not in a test")
    return folder


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs(example: str, place: Path, fresh: FreshProcesses) -> None:
    program, *words = shlex.split(example.replace(SHARED, f"file://{place}/shared"))
    words = [os.path.expanduser(word) for word in words]
    assert program == "kernelmill"
    if words[0] == "run":  # replaces modules of its process
        fresh.output("-m", "kernelmill", *words, cwd=place)
    else:
        assert main(words) in ((0, 1) if words[0] == "doctor" else (0,))
