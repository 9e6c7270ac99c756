"""What is written down in more than one place says the same in each of them."""

import ast
import re
import subprocess
import sys
import tomllib

import pytest

from kernelmill.config import CompilerConfig
from kernelmill.core import knobs, log
from kernelmill.lower.templates.registry import TEMPLATES
from tests.repo.source import PACKAGE, ROOT, SOURCES, tree

PACKAGES = sorted(p.name for p in PACKAGE.iterdir() if (p / "__init__.py").is_file())


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def layers():
    contracts = project()["tool"]["importlinter"]["contracts"]
    (contract,) = [c for c in contracts if c.get("containers") == ["kernelmill"]]
    assert contract["exhaustive"] is True
    return contract["layers"]


def packages_in(line):
    return sorted(re.findall(r"\w+", line))


def test_every_package_has_a_layer():
    named = [package for line in layers() for package in packages_in(line)]
    assert len(named) == len(set(named))
    assert set(PACKAGES) <= set(named)


def test_the_picture_in_the_document_is_the_contract():
    text = (ROOT / "docs" / "architecture.md").read_text()
    picture = re.search(r"```layers\n(.*?)```", text, re.DOTALL)[1]
    drawn = [packages_in(line.partition("#")[0]) for line in picture.splitlines()]
    assert drawn == [packages_in(line) for line in layers()]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_is_explained_and_can_be_logged(package):
    assert f"| {package} |" in (ROOT / "docs" / "architecture.md").read_text()
    assert package in log.COMPONENTS


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.name)
def test_every_template_has_a_folder_and_a_row_in_the_document(template):
    assert (PACKAGE / "lower" / "templates" / template.name / "template.py").is_file()
    assert f"| {template.name} |" in (ROOT / "docs" / "architecture.md").read_text()


@pytest.mark.parametrize("dependency", project()["project"]["dependencies"])
def test_every_dependency_has_its_reason_in_the_document(dependency):
    name = re.match(r"[\w-]+", dependency)[0]
    assert f"| {name} |" in (ROOT / "docs" / "architecture.md").read_text()


def source_outside(*files):
    skipped = [PACKAGE / file for file in files]
    return "\n".join(p.read_text() for p in SOURCES if p not in skipped)


@pytest.mark.parametrize("knob", knobs.KNOBS, ids=lambda knob: knob.name)
def test_every_knob_is_read(knob):
    (constant,) = [n for n, value in vars(knobs).items() if value is knob]
    assert f"knobs.{constant}." in source_outside("core/knobs.py")


def test_no_option_is_accepted_and_ignored():
    effective = [n for n, o, _ in CompilerConfig().options() if not o.no_effect]
    effective.remove("experimental_config.jit_compile")  # has one value only
    read = {
        node.attr
        for path in SOURCES
        if PACKAGE / "config" not in path.parents
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute)
    }
    # To read debug.graph_dump.type takes a ".graph_dump" and a ".type" somewhere.
    unread = [name for name in effective if not set(name.split(".")[-2:]) <= read]
    assert unread == [], "nothing reads these: they belong to config/accepted.py"


def test_text_is_executed_where_agents_file_says():
    calls = {
        path.relative_to(PACKAGE).as_posix()
        for path in SOURCES
        if PACKAGE in path.parents
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("exec", "eval")
    }
    assert calls == {"core/dataclass.py"}
    for file in ("AGENTS.md", "CONTRIBUTING.md"):
        assert all(name in (ROOT / file).read_text() for name in calls)


TORCH_FREE = ("core", "kernel", "plan", "superkernel", "codegen")
LOADING = ("linking.elf_loader", "layout", "linking.linker")
NO_TORCH = """
import sys
from importlib import import_module
sys.modules["torch"] = None
for name in sys.argv[1:]:
    import_module(name)
"""


def test_kernels_are_compiled_and_placed_where_there_is_no_torch():
    # What runs under an emulator of another processor cannot have it: tools/reach.
    modules = [
        ".".join(("kernelmill", *path.relative_to(PACKAGE).with_suffix("").parts))
        for package in TORCH_FREE
        for path in sorted((PACKAGE / package).rglob("*.py"))
    ]
    assert len(modules) > 60
    loading = [f"kernelmill.runtime.{name}" for name in LOADING]
    command = [sys.executable, "-c", NO_TORCH, *modules, *loading]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
