"""Documents: their links lead somewhere, and the Python in them runs."""

import ast
import json
import re
import shlex

import pytest
import typer

from kernelmill.cli.main import build_app
from tests.documents import as_reader, languages, run_blocks
from tests.repo.source import DOCUMENTS, ROOT, SOURCES, relative, tree

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def test_links_lead_to_files():
    lost = []
    for path in DOCUMENTS:
        prose = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
        targets = [t.partition("#")[0] for t in LINK.findall(prose) if "://" not in t]
        lost += [(relative(path), t) for t in targets if not (path.parent / t).exists()]
    assert not lost


NAMED = re.compile(r"[`( ]((?:[a-z_0-9]+/)+[a-z_0-9]+\.py)\b|\(([a-z_0-9]+\.py)\)")
KNOWN = {relative(path) for folder in ("src", "tests", "tools", "examples")
         for path in (ROOT / folder).rglob("*.py")}  # fmt: skip


def test_files_that_are_named_exist():
    """In pages, and in comments of sources. Records may name what there was."""
    pages = [path for path in DOCUMENTS if path.parent.name != "lab"]
    named = {
        (relative(path), name)
        for path in (*pages, *SOURCES)
        for name in map("".join, NAMED.findall(path.read_text()))
        if not name.startswith(("torch/", "package/"))
    }
    ends = {
        known[at:] for known in KNOWN for at in [0, *(m.end() for m in re.finditer("/", known))]
    }
    assert {each for each in named if each[1] not in ends} == set()


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    named = [
        (relative(path), target)
        for path in DOCUMENTS
        for target in re.findall(r"`make ([\w-]+)", path.read_text())
    ]
    assert [each for each in named if f"\n{each[1]}:" not in makefile] == []


WITH_PYTHON = [path for path in DOCUMENTS if set(languages(path)) == {"python"}]


@pytest.fixture(scope="module")
def readers_home(tmp_path_factory):
    """One for all documents, so that they share kernels."""
    return tmp_path_factory.mktemp("home")


@pytest.mark.parametrize("path", WITH_PYTHON, ids=relative)
def test_python_runs(path, tmp_path, readers_home, monkeypatch):
    """The blocks of a document, in order, in one namespace. Documents with commands too are run by
    tests/e2e/test_tutorials.py."""
    as_reader(monkeypatch, readers_home, tmp_path)
    run_blocks(path)


BLOCK = re.compile(r"^```.*?^```|^    .*?$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(?:    |\$ )?(kernelmill [a-z]+(?: [^\n|]*)?)(?:\|.*)?$", re.MULTILINE)
COMMANDS = sorted({
    line for path in DOCUMENTS for block in BLOCK.findall(path.read_text())
    for line in COMMAND.findall(block)
})  # fmt: skip


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_that_are_shown_are_understood(line):
    """Also those that are not run here, since they need a server or a file of the reader's."""
    command, words = typer.main.get_command(build_app()), shlex.split(line, comments=True)[1:]
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    command.make_context(command.name, words)


def _pages():
    """Those in the menu of the site, and those that are left out of it, below docs/."""
    settings = (ROOT / "mkdocs.yml").read_text()
    left_out, menu = settings.partition("\nnot_in_nav: |\n")[2].split("\nnav:")
    patterns = [line.strip().lstrip("/") for line in left_out.splitlines() if line.strip()]
    docs = ROOT / "docs"
    outside = [page for pattern in patterns for page in docs.glob(pattern)]
    return [docs / page for page in re.findall(r": (\S+\.md)\n", menu)], outside


def test_every_page_is_in_the_menu_of_the_site_or_left_out_of_it():
    menu, outside = _pages()
    assert len(menu) == len(set(menu)) and not set(menu) & set(outside)
    missing = {*(ROOT / "docs").rglob("*.md")} - {*menu} - {*outside}
    assert missing == set(), "add it to mkdocs.yml"


def test_pages_outside_of_the_menu_are_listed_as_records():
    records = ROOT / "docs" / "lab" / "index.md"
    listed = {(records.parent / target).resolve() for target in LINK.findall(records.read_text())}
    assert {*_pages()[1]} <= listed


WORDS = 44_000
"""In the pages of the menu, at most. It only goes down."""


FROM_DOCSTRINGS = {"api.md"}
"""Not counted: its text is that of the sources. The pages of options and variables are counted."""


def test_the_pages_of_the_menu_are_short():
    counted = [page for page in _pages()[0] if page.name not in FROM_DOCSTRINGS]
    assert sum(len(page.read_text().split()) for page in counted) <= WORDS


def test_models_that_are_known_to_work_are_those_that_were_run():
    rows = json.loads((ROOT / "docs" / "libraries.json").read_text())
    page = (ROOT / "docs" / "models.md").read_text()
    libraries = {row.partition(":")[0] for row in rows}
    assert [name for name in sorted(libraries) if f"\n| {name} | " not in page] == []


def test_agents_file_is_short():
    assert len((ROOT / "AGENTS.md").read_text().splitlines()) < 100


def _template(node):
    """The text of a string expression, with "…" for what is put in; "" for other expressions."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(getattr(part, "value", "…") if isinstance(part, ast.Constant) else "…"
                       for part in node.values)  # fmt: skip
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _template(node.left) + _template(node.right)
    return ""


def _explained_messages():
    """Of the tables of the page of operations: those with one of these titles."""
    page = (ROOT / "docs" / "operations.md").read_text()
    tables = re.findall(r"^\| (?:message|warning) \|.*\n\|.*\n((?:\|.*\n)+)", page, re.MULTILINE)
    messages = re.findall(r"^\| `(.+?)` \|", "".join(tables), re.MULTILINE)
    assert len(tables) > 5 and len(messages) > 120
    return [re.compile(re.sub("…+", ".*", re.escape(message))) for message in messages]


def test_messages_that_the_page_of_operations_explains_are_those_of_the_source():
    texts = {_template(node) for path in SOURCES for node in ast.walk(tree(path))}
    # Formats of logging have % marks where messages have braces.
    texts = "\n".join(re.sub(r"%[-.\d]*[sdrf]", "…", text) for text in texts if " " in text)
    unknown = [one.pattern for one in _explained_messages() if not one.search(texts)]
    assert unknown == []


ERRORS = {
    "KernelmillError", "ConfigError", "ConfigTypeError", "ConfigPathError", "PaddingError",
    "InputError", "GearError", "GearTypeError", "StoreError",
}  # fmt: skip
SAY_IT_THEMSELVES = ("cli/", "compat/", "core/", "graph/interpreter.py", "torch_internals/")
"""What the command line and scripts for torch_npu are told, and checks between parts of the
compiler."""


def test_every_error_is_explained_on_the_page_of_operations():
    known, lacking = _explained_messages(), set()
    for path in SOURCES:
        if relative(path).removeprefix("src/kernelmill/").startswith(SAY_IT_THEMSELVES):
            continue
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ERRORS and node.args:
                text = _template(node.args[0])
                if re.search(r"[a-z] ", text) and not any(one.search(text) for one in known):
                    lacking.add(f"{relative(path)}: {text}")
    assert lacking == set()
