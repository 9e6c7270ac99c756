"""Artifacts at rest: written, read, damaged, set aside; manifests, reads and sizes."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelmill.artifact import container
from kernelmill.artifact.container import KMILL, Artifact, SavedKernel, read_artifact
from kernelmill.artifact.guards import ArgumentChecks, ArgumentCode, size_check
from kernelmill.artifact.manifest import (
    FORMAT,
    CallSpec,
    CodeUse,
    Gears,
    Guard,
    Guards,
    Limit,
    Manifest,
    PackedBuffers,
    Parameter,
    Root,
    Source,
    read_manifest,
)
from kernelmill.artifact.paths import Roots
from kernelmill.artifact.program_set import key_of
from kernelmill.artifact.tensors import WeightLayout, held_constants, tensors_of
from kernelmill.core.errors import InputError, StoreError
from kernelmill.core.expr import Sym
from kernelmill.plan.ir import Plan
from kernelmill.store.folder import Folder
from kernelmill.store.sealed import Damaged, FileKind, SealedFile, write_sealed

SELF, X, Y = (("self",),), (("argument", "x"),), (("argument", "y"),)
TENSORS = {"constant.0": torch.arange(6.0).reshape(2, 3)}
LAYOUT = WeightLayout(held_constants(TENSORS.values()))
OBJECTS = {"km_1": b"one", "dims0": b"", "km_2": b"three"}
MANIFEST = Manifest(
    CallSpec(
        name="m.Model.run",
        parameters=(Parameter("x"), Parameter("y", keyword=True)),
        checks=(Guard("same", X, "True", "", Y), Guard("keys", X, "builtins.dict of ['q']")),
        inputs=(Source(X), Source(Y, 1, 2, 3), Source((("tensor", 0),))),
        result={"tuple": [{"result": 0}, {"constant": None}]},
        limits=(Limit("s0", 2, None, "dim 0 of argument 'x'"), Limit("s1", 3, 3, "dim 1")),
        conditions=(("==", "s0 % 8", "0"),),
    ),
    Guards(
        roots=(Root(SELF), Root((*SELF, ("attribute", "flags")), "class")),
        lines=("self: #1", "m.Model; scale: float 1.0"),
        code=(CodeUse("m", "Model.run", "abc", {"G": "int 3"}),),
        names=("relu", "scale"),
        settings={"autocast": "off"},
        packages={"a": "1"},
    ),
    Gears(((0, 0),), ("s0",), (((2,), 0), ((4,), 1)), (0, 1), 2, -1),
    tensors=LAYOUT.weights,
    packed=(PackedBuffers("panels", (0,), ((0, 64),)),),
    objects=(("km_1", 0, 3), ("dims0", 3, 0), ("km_2", 3, 5)),
    options={"mode": "reduce-overhead"},
    ingredients={"torch": "2"},
)
KERNELS = (
    SavedKernel("km_1", "Map", "kernel _()"), SavedKernel("dims0", "Dims", "(s0) -> (s0)"),
    SavedKernel("driver0 sk_a", "sk_a", "ir"), SavedKernel("km_2", "Map", "kernel _()", "other"),
)  # fmt: skip
PLANS = 'plan "a"\nplan "b"\n'
ARTIFACT = Artifact(
    MANIFEST, PLANS, "graph a\n", KERNELS, OBJECTS, tuple(TENSORS.values()),
    {"weights": LAYOUT.pieces, "packed": [bytes(64)]},
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path):
    container.save(Folder(tmp_path / "entries"), ARTIFACT)
    return Folder(tmp_path / "entries")


def test_an_artifact_reads_back(folder: Any):
    ((name, found),) = container.entries(folder)
    assert (found.manifest, found.plans, found.graphs) == (MANIFEST, PLANS, "graph a\n")
    assert (found.kernels, found.objects) == (KERNELS, OBJECTS)
    (tensor,) = tensors_of(found)
    assert torch.equal(tensor, TENSORS["constant.0"])
    assert container.names(folder) == [name]
    assert container.save(folder, ARTIFACT) == name  # named after its contents


def test_a_manifest_reads_back_and_other_text_does_not():
    again = read_manifest(MANIFEST.text())
    assert again == MANIFEST
    assert [again.tree.paths()[source.place] for source in again.spec.inputs] == [
        source.path for source in MANIFEST.spec.inputs
    ]
    for text in ("", "[]", MANIFEST.text().replace('"guards"', '"gards"')):
        with pytest.raises(StoreError, match="no manifest"):
            read_manifest(text)
    for text in ("{}", MANIFEST.text().replace(f'"format": {FORMAT}', f'"format": {FORMAT - 1}')):
        with pytest.raises(StoreError, match=f"this kernelmill reads {FORMAT}"):
            read_manifest(text)


@pytest.mark.parametrize("part", ["header", *ARTIFACT.sections()])
def test_a_changed_file_is_noticed_and_set_aside(folder: Any, part: Any):
    (name,) = container.names(folder)
    path = os.path.join(folder.path, f"{name}.kmill")
    place = 60 if part == "header" else SealedFile(path, KMILL).sections[part][0]
    with open(path, "r+b") as file:
        file.seek(place)
        file.write(b"~")
    with pytest.raises(Damaged, match=part):
        container.load(folder, name)
    assert list(container.entries(folder)) == []
    assert container.names(Folder(folder.path)) == []
    assert any(".bad-" in name for name in folder.files())


def test_a_file_of_an_older_format_is_refused_by_name(tmp_path: Path):
    path = str(tmp_path / "old.kmill")
    write_sealed(path, FileKind(b"kernelmill aot\n", ""), {"manifest": [b"{}"]})
    with pytest.raises(StoreError, match=r"old\.kmill is no file .* but of 'kernelmill aot'"):
        SealedFile(path, KMILL)
    sections = {**ARTIFACT.sections(), "manifest": [b'{"format": 5}']}
    write_sealed(path, KMILL, sections)
    with pytest.raises(StoreError, match=r"old\.kmill: it is of the format 5"):
        read_artifact(SealedFile(path, KMILL))


def test_an_entry_behind_a_link_is_refused(folder: Any):
    (name,) = container.names(folder)
    path = os.path.join(folder.path, f"{name}.kmill")
    os.rename(path, f"{path}.elsewhere")
    os.symlink(f"{path}.elsewhere", path)
    with pytest.raises(StoreError, match="is a symbolic link"):
        list(container.entries(folder))


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM, errno.EIO, errno.EACCES])
@pytest.mark.parametrize("call", ["os.open", "os.listdir", "mmap.mmap"])
def test_an_entry_that_cannot_be_read_now_is_left_alone(
    folder: Any, monkeypatch: pytest.MonkeyPatch, call: str, number: int
):
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    before = folder.files()
    with monkeypatch.context() as patch:
        patch.setattr(call, fail)
        assert list(container.entries(folder)) == []
    assert folder.files() == before
    assert len(list(container.entries(folder))) == 1


def test_what_decides_the_bytes_of_an_object_is_in_its_key():
    parts = {f"kernel.{n}": n for n in ("isa", "generator", "llvm", "abi")}
    keys = [key_of(kernel, parts) for kernel in KERNELS]
    assert len({key.digest for key in keys}) == len(keys)
    named = [dict(key.ingredients) for key in keys]
    assert [("kernel" in n, "dims" in n, "driver" in n) for n in named] == [
        (True, False, False), (False, True, False), (False, False, True), (True, False, False),
    ]  # fmt: skip
    assert named[3]["isa"] == "other"


def test_checks_of_arguments_say_what_has_changed():
    x, manifest = {"q": 1}, read_manifest(MANIFEST.text())

    def changed(x: Any, y: Any):
        values = manifest.tree.values(Roots(None, {"x": x, "y": y}, {}))
        checks = ArgumentChecks(manifest.spec.checks, range(len(values)), ArgumentCode(()))
        return checks.difference(values)

    assert changed(x, x) == ""
    assert changed({"r": 1}, object()) == "argument 'x': expected True, got False"
    other = {"r": 1}
    assert changed(other, other) == "argument 'x': expected dict of ['q'], got dict of ['r']"


SYMBOLS = (Sym("s0", 1), Sym("s1", 1))
PLAN = Plan("p", SYMBOLS, (), (), (), (), (), ())


@pytest.mark.parametrize(
    ("condition", "good", "bad"),
    [
        (("==", "s0 % 8", "0"), 16, 12),
        (("!=", "s0", "3"), 2, 3),
        (("<", "s0", "s1"), 5, 6),
        (("<=", "2*s0", "s1 + 6"), 6, 7),
    ],
)
def test_conditions_on_sizes(condition: Any, good: Any, bad: Any):
    check = size_check(CallSpec("f", (), (), (), {}, (), (condition,)), PLAN)
    assert check is not None
    check({"s0": good, "s1": 6})
    with pytest.raises(InputError, match="sizes do not fit"):
        check({"s0": bad, "s1": 6})


def test_limits_of_sizes():
    limits = (Limit("s0", 2, 9, "dim 0 of argument 'x'"), Limit("s1", 3, 3, "dim 1"))
    check = size_check(CallSpec("f", (), (), (), {}, limits), PLAN)
    assert check is not None
    check({"s0": 2, "s1": 3})
    with pytest.raises(InputError, match="argument 'x' is 10, and has to be at least 2 and at mos"):
        check({"s0": 10, "s1": 3})
    with pytest.raises(InputError, match="dim 1 is 4, and has to be 3"):
        check({"s0": 2, "s1": 4})
    assert size_check(CallSpec("f", (), (), (), {}), PLAN) is None
