"""Which code an entry compares, and which versions stand for the rest."""

import importlib
import operator
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelmill.artifact import code, versions
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
    monkeypatch.setattr(code, "_TORCH", str(tmp_path / "torch"))
    function = importlib.import_module("torchextra.inner").function

    yield function
    for name in ("torchextra", "torchextra.inner"):
        del sys.modules[name]
    versions.version_of.cache_clear()


@pytest.mark.parametrize("known", ["_TORCH", "_OURS"])
def test_a_package_whose_folder_begins_as_torchs_or_ours_is_compared(
    beside: Any, monkeypatch: pytest.MonkeyPatch, known: Any
):
    monkeypatch.setattr(code, known, beside.__code__.co_filename.partition("extra/")[0])
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


def test_code_of_torch_and_of_ours_is_known_by_version():
    inside = [torch.nn.Linear.forward.__code__, evaluate_guards.__code__]
    assert uses_of(inside) == ()
    assert modules_of(inside) == []


def test_the_version_of_a_package_is_a_condition(beside: Any):
    found = versions.packages_of(modules_of([beside.__code__]))
    assert found == {"torch-extra": "1.5"}
    target = Target.of(beside)
    spec = CallSpec(name_of(beside), (Parameter("x"),), (), (), {})

    def reason(packages: Any):
        guards = Guards(packages=packages, function=code_digest([target.code]))
        return evaluate_guards(Manifest(spec, guards), target).reason

    assert reason(found) == ""
    assert reason({"torch-extra": "1.4"}) == "version of torch-extra: was 1.4, is 1.5"
    assert reason({"torch-more": "1.4"}) == "version of torch-more: was 1.4, is absent"


def test_code_that_nobody_installed_has_no_package(tmp_path: Path):
    module = types.ModuleType("own")
    module.__file__ = str(tmp_path / "own.py")
    assert versions.packages_of([module, types.ModuleType("none")]) == {}


def of_variables(a, b):
    return a is b


def of_an_attribute(a, b):
    return a.x is b.y


def of_one_attribute(a, b):
    return a is b.y


def behind_another_attribute(a, b):
    return max(a.other, a is b)


def of_an_element(a, b, self):
    return a is b[self.place]


def of_a_call(a, b, self):
    return a is b(self.place)


def of_a_global(a):
    return a is pytest


def of_one_of_two(a, b, c):
    return max((a if c else b.x) is b, c)


def with_one_of_two(a, b, c):
    return max(a is (b if c else None), c)


def with_an_attribute_of_one_of_two(a, b):
    return a is (b or pytest).x


def by_a_function(a, b):
    return operator.is_not(a, b)


def of_constants(a):
    return a is None, a is not False, all(x for x in a)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (of_variables, {()}),
        (of_an_attribute, {("y", "x")}),
        (of_one_attribute, {("y",)}),
        (behind_another_attribute, {()}),
        (of_an_element, {()}),
        (of_a_call, {()}),
        (of_a_global, {code.WITH_GLOBAL}),
        (of_constants, set()),
    ],
)
def test_what_code_compares_by_identity(function, expected):
    assert code.compared_by_identity([function.__code__]) == expected


@pytest.mark.parametrize(
    "function", [of_one_of_two, with_one_of_two, with_an_attribute_of_one_of_two, by_a_function]
)
def test_what_cannot_be_told_counts_as_variables(function):
    """Python 3.12 and newer write a comparison twice, once for each of two sides."""
    assert () in code.compared_by_identity([function.__code__])
