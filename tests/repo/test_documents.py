"""Documents: their links lead somewhere, and the Python in them runs."""

import re

import pytest

from kernelmill.artifact.settings import SETTINGS
from tests.repo.source import DOCUMENTS, ROOT, relative

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
PYTHON = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("path", DOCUMENTS, ids=relative)
def test_links_lead_to_files(path):
    targets = [t.partition("#")[0] for t in LINK.findall(path.read_text()) if "://" not in t]
    assert [t for t in targets if not (path.parent / t).exists()] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=relative)
def test_make_targets_exist(path):
    makefile = (ROOT / "Makefile").read_text()
    named = re.findall(r"`make (\w+)", path.read_text())
    assert [target for target in named if f"\n{target}:" not in makefile] == []


WITH_PYTHON = [path for path in DOCUMENTS if PYTHON.search(path.read_text())]


@pytest.mark.parametrize("path", WITH_PYTHON, ids=relative)
def test_python_runs(path, tmp_path, monkeypatch):
    """The blocks of a document, in order, in one namespace."""
    monkeypatch.chdir(tmp_path)
    text = path.read_text()
    namespace = {"__name__": "__main__"}
    for block in PYTHON.finditer(text):
        line = text.count("\n", 0, block.start(1))
        code = compile("\n" * line + block[1], str(path), "exec")
        exec(code, namespace)  # noqa: S102  # our own documents


def test_agents_file_is_short():
    assert len((ROOT / "AGENTS.md").read_text().splitlines()) < 100


def test_every_setting_that_a_call_compares_is_in_its_table():
    rows = "\n".join(f"| {setting.name} | {setting.how} |" for setting in SETTINGS)
    text = (ROOT / "docs" / "cache.md").read_text()
    table = text.partition("<!-- settings -->\n")[2].partition("\n<!-- end of settings -->")[0]
    assert table == f"| setting | changed by |\n|---|---|\n{rows}"
