"""Arguments are taken apart as the manifest says; a manifest reads back as it was."""

import pytest

from kernelmill.aot.arguments import Arguments
from kernelmill.aot.manifest import Leaf, Limit, Manifest, Parameter, Weight, read_manifest
from kernelmill.artifact.fingerprint import fingerprint
from kernelmill.core.errors import InputError, StoreError

NUMBERS = {"list": [{"result": 2}]}
MANIFEST = Manifest(
    name="f",
    parameters=(
        Parameter("x", {"result": 0}),
        Parameter("parts", {"tuple": [{"result": 1}, {"dict": [["a", NUMBERS]]}]}),
        Parameter("mode", {"result": 3}, keyword=True),
    ),
    leaves=(
        Leaf("x", "tensor"), Leaf("parts.0", "tensor"), Leaf("parts.1.a.0", "integer"),
        Leaf("mode", "constant", fingerprint(0.5)),
    ),
    inputs=(("leaf", 0), ("leaf", 1), ("weight", 0), ("size", 0, 1, 2, 0)),
    result={"tuple": [{"result": 0}, {"constant": None}]},
    weights=(Weight("w", "buffer", "float32", (2, 3), (3, 1), 64),),
    limits=(Limit("s0", 2, None, "dim 0 of argument 'x'"),),
    conditions=(("==", "s0 % 2", "0"),),
    objects=(("km_1", 0, 10),),
    options={"mode": "reduce-overhead"},
    ingredients={"torch": "2"},
    updates=(("weight", 0),),
)  # fmt: skip


def test_a_manifest_reads_back():
    assert read_manifest(MANIFEST.text()) == MANIFEST


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"parameters": 3}'])
def test_other_text_is_refused(text):
    with pytest.raises(StoreError, match="no manifest"):
        read_manifest(text)


def test_leaves_are_found_wherever_they_are():
    arguments = Arguments(read_manifest(MANIFEST.text()))
    expected = ["X", "P", 7, 0.5]
    assert arguments.leaves(("X", ("P", {"a": [7]})), {"mode": 0.5}) == expected
    assert arguments.leaves((), {"mode": 0.5, "parts": ("P", {"a": [7]}), "x": "X"}) == expected
    assert not arguments.plain


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        (("X", ("P", {"a": [7]})), {"mode": 1.0}, "'mode': the program was compiled for float"),
        (("X", ("P", {"a": [7]})), {"mode": True}, "'mode': the program was compiled for float"),
        (("X", ("P", {"a": [True]})), {"mode": 0.5}, "'parts.1.a.0': expected an integer"),
        (("X", ("P", {"a": 7})), {"mode": 0.5}, "'parts.1.a': expected a list of 1 values"),
        (("X", ("P", {"a": [7, 8]})), {"mode": 0.5}, "'parts.1.a': expected 1 values"),
        (("X", ("P", {})), {"mode": 0.5}, "'parts.1': expected the keys ['a'], got []"),
        (("X", ("P", [7])), {"mode": 0.5}, "'parts.1': expected a dict, got a list"),
        (("X", ["P", {"a": [7]}]), {"mode": 0.5}, "'parts': expected a tuple"),
        (("X", ("P", {"a": [7]}), 0.5), {}, "takes 2 arguments by position, got 3"),
        (("X",), {"mode": 0.5}, "'parts' is missing"),
        (("X",), {"x": "X"}, "'x' is given twice"),
        ((), {"y": 1}, "'y' was not among"),
    ],
)
def test_what_does_not_fit_is_named(args, kwargs, message):
    with pytest.raises(InputError) as caught:
        Arguments(MANIFEST).leaves(args, kwargs)
    assert message in str(caught.value)
