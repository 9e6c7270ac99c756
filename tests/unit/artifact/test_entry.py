"""Entries on disk: written, read, damaged, set aside; manifests and conditions."""

import pytest

from kernelmill.artifact import entry as entries
from kernelmill.artifact.code import CodeUse
from kernelmill.artifact.conditions import Conditions, condition_check
from kernelmill.artifact.entry import Saved, SavedKernel
from kernelmill.artifact.load import key_of
from kernelmill.artifact.manifest import ConstantTensor, Gears, Manifest, read_manifest
from kernelmill.artifact.paths import Roots
from kernelmill.artifact.reads import Read, changes
from kernelmill.core.dim import of_atom
from kernelmill.core.errors import InputError, StoreError
from kernelmill.core.expr import Sym
from kernelmill.plan.ir import Plan
from kernelmill.store.entry import BadEntry
from kernelmill.store.folder import Folder

SELF = (("self",),)
MANIFEST = Manifest(
    function="m.Model.run",
    parameters=("x", "y"),
    inputs=((("argument", "x"),), ("size", (("argument", "y"),), 1)),
    result={"result": 0},
    reads=(
        Read("value", (*SELF, ("attribute", "scale")), "float 0x1.0000000000000p+0"),
        Read("same", (("argument", "x"),), "True", "", (("argument", "y"),)),
        Read("contains", (*SELF, ("attribute", "flags")), "False", "key"),
    ),
    code=(CodeUse("m", "Model.run", "abc", {"G": "int 3"}),),
    conditions=(("==", "s0 % 8", "0"),),
    exact={"s1": 3},
    names=("relu", "scale"),
    state={"autocast": "off"},
    ingredients={"torch": "2"},
    plans=1,
    constants=(ConstantTensor("float32", (2, 3), 0, 24),),
    gears=Gears(((0, 0),), ("s0",), (((2,), 0), ((4,), 1)), (0, 1), 2, -1),
    updates=True,
)
KERNELS = (
    SavedKernel("km_1", "Map", "kernel _()"), SavedKernel("dims0", "Dims", "(s0) -> (s0)"),
    SavedKernel("driver0 sk_a", "sk_a", "ir"), SavedKernel("km_2", "Map", "kernel _()", "other"),
)  # fmt: skip
SAVED = Saved(MANIFEST, 'plan "a"\n', "graph a\n", KERNELS, b"\0" * 24)


@pytest.fixture
def folder(tmp_path):
    folder = Folder(tmp_path / "entries")
    entries.save(folder, SAVED)
    return Folder(tmp_path / "entries")


def test_an_entry_reads_back(folder):
    (found,) = entries.entries(folder)
    assert (found.manifest, found.plans, found.graphs) == (MANIFEST, SAVED.plans, SAVED.graphs)
    assert (found.kernels, found.constants, found.name) == (KERNELS, SAVED.constants, SAVED.name)


def test_a_manifest_reads_back_and_other_text_does_not():
    assert read_manifest(MANIFEST.text()) == MANIFEST
    for text in ("", "{}", '{"format": 0}', MANIFEST.text().replace('"reads"', '"red"')):
        with pytest.raises(StoreError):
            read_manifest(text)


@pytest.mark.parametrize("suffix", [*entries.PARTS, ".json"])
def test_a_changed_file_is_noticed_and_set_aside(folder, suffix):
    path = f"{folder.path}/{SAVED.name}{suffix}"
    with open(path, "r+b") as file:
        file.write(b"~")
    with pytest.raises(BadEntry, match=suffix):
        entries.load(folder, SAVED.name)
    assert list(entries.entries(folder)) == []
    assert entries.names(Folder(folder.path)) == []
    assert any(".bad-" in name for name in folder.files())


def test_the_files_of_another_entry_are_not_taken_for_ones_own(folder):
    text = folder.read(f"{SAVED.name}.json")
    other = "0" * len(SAVED.name)
    folder.save(other, {**SAVED.files(), ".json": text})
    with pytest.raises(BadEntry, match="belongs to"):
        entries.load(folder, other)


def test_what_decides_the_bytes_of_an_object_is_in_its_key():
    parts = {f"kernel.{n}": n for n in ("isa", "generator", "llvm", "abi")}
    keys = [key_of(kernel, parts) for kernel in KERNELS]
    assert len({key.digest for key in keys}) == len(keys)
    named = [dict(key.ingredients) for key in keys]
    assert [("kernel" in n, "dims" in n, "driver" in n) for n in named] == [
        (True, False, False), (False, True, False), (False, False, True), (True, False, False),
    ]  # fmt: skip
    assert named[3]["isa"] == "other"


class Model:
    scale = 1.0
    flags = ("key",)


def test_reads_say_what_has_changed():
    x, manifest = object(), read_manifest(MANIFEST.text())

    def changed(owner, y):
        values = manifest.tree.values(Roots(owner, {"x": x, "y": y}, {}))
        return list(changes(manifest.reads, values, frozenset()))

    assert changed(Model(), x) == ["self.flags.key: was False, is True"]
    found = changed(object(), object())
    assert found[0] == "self.scale is not there" and found[1].startswith("x and y: was True")


SYMBOLS = (Sym("s0", 1), Sym("s1", 1))


@pytest.mark.parametrize(
    ("condition", "good", "bad"),
    [
        (("==", "s0 % 8", "0"), 16, 12),
        (("!=", "s0", "3"), 2, 3),
        (("<", "s0", "s1"), 5, 6),
        (("<=", "2*s0", "s1 + 6"), 6, 7),
    ],
)
def test_conditions_on_sizes(condition, good, bad):
    plan = Plan("p", SYMBOLS, (), (), (), (), (), ())
    check = condition_check([condition], plan)
    check({"s0": good, "s1": 6})
    with pytest.raises(InputError, match="sizes do not fit"):
        check({"s0": bad, "s1": 6})
    scope = {symbol.name: of_atom(symbol) for symbol in SYMBOLS}
    assert Conditions([condition], scope).broken({"s0": good, "s1": 6}) == ""
