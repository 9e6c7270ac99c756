"""The pages of options and environment variables say what the definitions say."""

import doctest
import re

import pytest
import torch

import kernelmill
from kernelmill.config import CompilerConfig
from kernelmill.core.knobs import KNOBS
from tests.documents import as_reader
from tests.repo.source import ROOT
from tools import reference

PAGES = {
    "options.md": reference.options_page,
    "environment.md": reference.environment_page,
    "cache.md": reference.cache_page,
    "api.md": reference.python_page,
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_its_definitions_make(name):
    committed = (ROOT / "docs" / name).read_text()
    assert committed == PAGES[name](), "run `python -m tools.reference`"


def test_every_option_and_variable_is_on_its_page():
    options, environment = reference.options_page(), reference.environment_page()
    names = [name for name, _, _ in CompilerConfig().options()]
    shown = [{f"| `{name}` |", f"| `{name.rpartition('.')[2]}` |", f"`{name}`: "} for name in names]
    missing = [cells for cells in shown if not any(cell in options for cell in cells)]
    assert missing == []
    assert [knob.name for knob in KNOBS if f"\n## {knob.name}\n" not in environment] == []


def test_every_option_that_does_something_is_a_sentence_with_its_values():
    effective = [(n, o) for n, o, _ in CompilerConfig().options() if not o.no_effect]
    assert len(effective) > 15
    assert [name for name, option in effective if not option.summary.endswith(".")] == []
    assert [name for name, option, _ in CompilerConfig().options() if not option.values()] == []


def test_coming_from_torchair_names_every_option():
    page = (ROOT / "docs" / "torchair.md").read_text()
    heading = "\n## Options without effect\n"
    assert "options.md#options-without-effect" in page
    page += reference.options_page().partition(heading)[2]
    names = [name for name, _, _ in CompilerConfig().options()]
    endings = [
        name.replace("_aclnn_static_shape_kernel_", "_").rpartition(".")[2] for name in names
    ]
    missing = [n for n, last in zip(names, endings, strict=True) if f"{last}`" not in page]
    assert missing == []


def test_examples_of_public_docstrings_are_right(tmp_path, monkeypatch):
    as_reader(monkeypatch, tmp_path / "home", tmp_path / "work")
    names = {"kernelmill": kernelmill, "torch": torch, "CompilerConfig": CompilerConfig}
    blocks = re.findall(r"```pycon\n(.*?)```", reference.python_page(), re.DOTALL)
    failed = []
    for block in blocks:
        test = doctest.DocTestParser().get_doctest(block, dict(names), block, None, 0)
        doctest.DocTestRunner(verbose=False).run(test, out=failed.append)
    assert len(blocks) > 4 and failed == []


def test_every_public_name_has_an_entry():
    page = reference.python_page()
    names = {*kernelmill.__all__} - {"__version__"}
    forms = ("\n## kernelmill.{}\n", "{{ #kernelmill.{} }}", "| `{}` |")
    assert [n for n in names if not any(form.format(n) in page for form in forms)] == []
