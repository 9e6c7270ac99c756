"""A sealed file whose contents are not what is written ends in a StoreError, whatever they are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from kernelmill.artifact.container import KMILL, read_artifact
from kernelmill.artifact.manifest import DEEPEST, Effect, read_manifest
from kernelmill.artifact.results import Shaper
from kernelmill.core.errors import StoreError, UnsupportedError
from kernelmill.store.sealed import Damaged, SealedFile, write_sealed
from tests.unit.artifact.test_container import ARTIFACT, MANIFEST, X, Y
from tests.unit.artifact.test_padding import GEARS as PADDED

SHAPES: list[dict[str, Any]] = [
    {"result": 1}, {"item": 0}, {"input": [["argument", "x"], ["item", "q"]]}, {"constant": None},
    {"constant": "0x1.8p+0", "float": True}, {"dtype": "float32"}, {"device": "cpu"},
    {"dict": [["k", {"result": 0}]]}, {"object": "m:C", "fields": [["a", {"result": 0}]]},
    {"named": "m:N", "names": ["a"], "items": [{"list": [{"result": 0}]}]},
]  # fmt: skip
STEPS = [
    ("slice", 0, None, 2), ("key", 0), ("nth", 1), ("type",), ("namespace",), ("field", "a"),
    ("context", 3), ("context",),
]  # fmt: skip
WHOLE = replace(
    MANIFEST,
    spec=replace(
        MANIFEST.spec,
        result={"tuple": SHAPES},
        effects=(
            Effect(X, "attribute", "a", {"result": 0}),
            Effect((*Y, *STEPS), "item", 3, {"tuple": [{"constant": 1}]}),
        ),
    ),
    gears=replace(PADDED, sources=((1, -1),)),
)
"""Has each of what a manifest can have."""


def deep(depth: int) -> Any:
    value: Any = {"result": 0}
    for _ in range(depth):
        value = {"list": [value]}
    return value


WRONG = (
    None, True, -1, 99, 1 << 63, 1 << 70, 2.5, "", "s0 +", "\x1b[2J", [], [[]], {}, {"a": 1},
    [[-1, "attribute", "x"]], deep(DEEPEST + 1),
)  # fmt: skip


def ways(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each value inside of a document."""
    yield way
    if isinstance(value, (dict, list)):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from ways(part, (*way, key))


def changed(text: str, way: tuple[Any, ...], wrong: Any) -> str:
    """The document with another value there; without it where that is ..."""
    document = [json.loads(text)]
    holder: Any = document
    for step in (0, *way)[:-1]:
        holder = holder[step]
    last = (0, *way)[-1]
    if wrong is ...:
        del holder[last]
    else:
        holder[last] = wrong
    return json.dumps(document[0] if document else None)


def test_a_manifest_with_all_that_it_can_have_reads_back():
    assert read_manifest(WHOLE.text()) == WHOLE


def test_a_manifest_with_any_value_changed_is_read_or_refused():
    text, random = WHOLE.text(), Random(0)
    taken = refused = 0
    for way in ways(json.loads(text)):
        for wrong in random.sample((*WRONG, ...), 5):
            try:
                read_manifest(changed(text, way, wrong)).text()
                taken += 1
            except StoreError:
                refused += 1
    assert refused > 3 * taken  # other texts and numbers are right as well


def test_manifests_with_many_values_changed_are_read_or_refused():
    for seed in range(100):
        random, text = Random(seed), WHOLE.text()
        for _ in range(random.randint(2, 6)):
            found = [*ways(json.loads(text))][1:]
            text = changed(text, random.choice(found or [()]), random.choice(WRONG))
        with suppress(StoreError):
            read_manifest(text)


@pytest.mark.parametrize(
    "text",
    ["[" * 200_000 + "]" * 200_000, '{"a":' * 200_000, "", "1", "nan", '"\\ud800"', "1" * 10_000],
    ids=lambda text: text[:8],
)
@pytest.mark.parametrize("section", ["manifest", "kernels", "plan", "graph"])
def test_a_section_that_is_no_document_is_refused(tmp_path, section, text):
    parts = {**ARTIFACT.sections(), section: [text.encode()]}
    if section == "manifest":
        with pytest.raises(StoreError):
            read_manifest(text)
    write_sealed(str(tmp_path / "a.kmill"), KMILL, parts)
    if section in ("plan", "graph"):  # read when they are used
        artifact = read_artifact(SealedFile(tmp_path / "a.kmill", KMILL))
        assert getattr(artifact, f"{section}s") == text
        return
    with pytest.raises(Damaged, match="compile it again"):
        read_artifact(SealedFile(tmp_path / "a.kmill", KMILL))


@pytest.mark.parametrize("missing", ARTIFACT.sections())
def test_a_file_without_one_of_its_sections_is_refused(tmp_path, missing):
    parts = {name: part for name, part in ARTIFACT.sections().items() if name != missing}
    write_sealed(str(tmp_path / "a.kmill"), KMILL, parts)
    with pytest.raises(Damaged, match=f"has no section '{missing}'"):
        SealedFile(tmp_path / "a.kmill", KMILL)


@pytest.mark.parametrize(
    "objects", [(("km_1", 0, 99),), (("km_1", -3, 3),), (("km_1", 3, -1),), (("km_1", 1 << 62, 3),)]
)
def test_machine_code_outside_of_its_section_is_refused(tmp_path, objects):
    text = replace(MANIFEST, objects=objects).text().encode()
    write_sealed(str(tmp_path / "a.kmill"), KMILL, {**ARTIFACT.sections(), "manifest": [text]})
    with pytest.raises(Damaged, match="outside of a section"):
        read_artifact(SealedFile(tmp_path / "a.kmill", KMILL))


def test_what_nests_as_deep_as_files_hold_is_kept_and_deeper_is_not():
    value: Any = []
    for _ in range(DEEPEST - 1):
        value = [value]
    spec = replace(MANIFEST.spec, result=Shaper([], {}).describe(value))
    read_manifest(replace(MANIFEST, spec=spec).text())
    with pytest.raises(UnsupportedError, match="nests deeper"):
        Shaper([], {}).describe([value])
    value = []
    value.append(value)
    with pytest.raises(UnsupportedError, match="nests deeper"):
        Shaper([], {}).describe(value)
