"""The text of the native entry is what a compiler makes of its C."""

import re

import pytest

from kernelmill.torch_internals import forced, native
from tests.repo.source import PACKAGE, ROOT, relative
from tools.native_entry import TARGETS, TEXT, compiled

SOURCES = sorted((PACKAGE / "runtime" / "native").iterdir())


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return {target: compiled(target) for target in TARGETS}


def test_the_text_is_made_from_the_c(made: dict[str, str]) -> None:
    assert made[TARGETS[0]] == TEXT.read_text(), "run python -m tools.native_entry"


def test_others_are_called_in_the_same_way_on_each_processor(made: dict[str, str]) -> None:
    declared = [re.findall(r"^declare .*", text, re.MULTILINE) for text in made.values()]
    entries = [re.findall(r"^define .*@km_.*", text, re.MULTILINE) for text in made.values()]
    assert len(declared[0]) > 30 and len(entries[0]) == 11
    assert all(lines == declared[0] for lines in declared)
    assert all(lines == entries[0] for lines in entries)


def test_nothing_in_the_text_is_of_one_processor() -> None:
    text = TEXT.read_text()
    assert not re.search(r"target (triple|datalayout)|target-cpu|target-features|x86", text)


def test_entries_that_are_called_without_a_part_call_nothing_of_it() -> None:
    """What was not found has the address 0. Without the part guards have no steps."""
    bodies = re.findall(r"^define .*?@(\w+)\((.*?)^}", TEXT.read_text(), re.MULTILINE | re.DOTALL)
    uses = {name: set(re.findall(r"@([\w.]+)", body)) for name, body in bodies}
    del uses["guards_hold"]
    reached = {"km_validate", "km_launch", "km_repeat", "km_digest"}
    while more := set[str]().union(*(uses.get(name, ()) for name in reached)) - reached:
        reached |= more
    with forced(["native.checks"]):
        missing = {name for name, address in native.provided().items() if not address}
    assert {"aoti_torch_get_layout", "Py_IncRef"} <= missing
    assert {"aoti_torch_get_dim", "PyTuple_GetItem"} <= reached
    assert not reached & missing


def test_the_c_is_as_wide_as_the_rest() -> None:
    wide = [
        f"{relative(path)}:{number}"
        for path in [*SOURCES, ROOT / "tools" / "native_entry.py"]
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > 100
    ]
    assert len(SOURCES) > 4 and wide == []
