"""Which code an entry compares, and which versions stand for the rest."""

import importlib
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelmill.artifact import bytecode, versions
from kernelmill.artifact.bind import evaluate_guards
from kernelmill.artifact.code import changed_code, modules_of, uses_of
from kernelmill.artifact.fingerprint import code_digest, name_of
from kernelmill.artifact.manifest import CallSpec, Guards, Manifest, Parameter
from kernelmill.artifact.target import Target


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A function of an installed package in the folder that torch is in."""
    folder = tmp_path / "torchextra"
    folder.mkdir()
    (folder / "inner.py").write_text("def function(x):\n    return x + 1\n")
    info = tmp_path / "torch_extra-1.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch-extra\nVersion: 1.5\n")
    (info / "top_level.txt").write_text("torchextra\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(bytecode, "_TORCH", str(tmp_path / "torch"))
    function = importlib.import_module("torchextra.inner").function

    yield function
    for name in ("torchextra", "torchextra.inner"):
        del sys.modules[name]
    versions.version_of.cache_clear()


@pytest.mark.parametrize("known", ["_TORCH", "_OURS"])
def test_a_package_whose_folder_begins_as_torchs_or_ours_is_compared(
    beside: Any, monkeypatch: pytest.MonkeyPatch, known: Any
):
    monkeypatch.setattr(bytecode, known, beside.__code__.co_filename.partition("extra/")[0])
    (use,) = uses_of([beside.__code__])
    assert (use.module, use.name) == ("torchextra.inner", "function")


TAKEN_NAME = """
class Scaled:
    def scale(self, x):
        return x * 2

    double = scale

    def scale(self, x):
        return x * 9


TABLE = {}


def entry(x):
    return x * 2


TABLE["double"] = entry


def entry(x):
    return x * 9
"""


@pytest.mark.parametrize(
    ("where", "named"),
    [("Scaled.double", "Scaled.double"), ("TABLE", "")],  # found by no name: its file
)
def test_a_function_whose_name_another_has_taken_is_told_from_it(
    beside: Any, monkeypatch: pytest.MonkeyPatch, where: str, named: str
):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # edits are too soon for it
    module = sys.modules[beside.__module__]
    file = Path(beside.__code__.co_filename)

    def read() -> Any:
        found: Any = importlib.reload(module)
        function = found.TABLE["double"] if where == "TABLE" else found.Scaled.double
        (use,) = uses_of([function.__code__])
        return use

    file.write_text(TAKEN_NAME)
    before = read()
    assert before.name == named
    file.write_text(TAKEN_NAME.replace("x * 2", "x * 3"))
    read()
    assert changed_code(before)


def test_code_of_ours_is_known_by_version_and_torchs_is_compared():
    inside = [torch.nn.Linear.forward.__code__, evaluate_guards.__code__]
    assert [use.name for use in uses_of(inside)] == ["Linear.forward"]
    assert modules_of(inside) == []


def test_the_version_of_a_package_is_a_condition(beside: Any):
    found = versions.packages_of(modules_of([beside.__code__]))
    assert found == {"torch-extra": "1.5"}
    target = Target.of(beside)
    spec = CallSpec(name_of(beside), (Parameter("x"),), (), (), {})

    def reason(packages: Any):
        guards = Guards(packages=packages, function=code_digest(target.code))
        return evaluate_guards(Manifest(spec, guards), target).reason

    assert reason(found) == ""
    assert reason({"torch-extra": "1.4"}) == "version of torch-extra: was 1.4, is 1.5"
    assert reason({"torch-more": "1.4"}) == "version of torch-more: was 1.4, is absent"


def test_code_that_nobody_installed_has_no_package(tmp_path: Path):
    module = types.ModuleType("own")
    module.__file__ = str(tmp_path / "own.py")
    assert versions.packages_of([module, types.ModuleType("none")]) == {}
