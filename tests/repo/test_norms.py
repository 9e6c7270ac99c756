"""Sizes, names and docstrings that keep the source readable; CONTRIBUTING.md gives the reasons."""

import ast
import re
from collections import Counter
from pathlib import Path

from tests.repo.source import PACKAGE, ROOT, SOURCES, functions, public, relative, tree

FILE_LINES = 600
FUNCTION_LINES = 60
MOST_LINES = {
    ".": 100,
    "aot": 1361,
    "artifact": 5589,
    "backend": 4420,
    "cli": 2782,
    "codegen": 4220,
    "compat": 2740,
    "compiler": 3680,
    "config": 1498,
    "core": 4270,
    "fleet": 1472,
    "frontend": 7240,
    "gears": 730,
    "graph": 3000,
    "inference": 1894,
    "integrations": 270,
    "kernel": 2740,
    "lower": 20460,
    "ops": 490,
    "passes": 2720,
    "plan": 1360,
    "report": 2089,
    "runtime": 7640,
    "scope": 130,
    "static_kernels": 384,
    "store": 2733,
    "superkernel": 1259,
    "torch_internals": 3690,
    "all": 90880,
}
"""The most lines of each package, of the files beside them (".") and of all: only ever lowered."""

UNUSED_LINES = 100
"""So far below its number a package may be before the number is lowered."""

NAMES_THAT_SAY_NOTHING = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}


def test_files_are_short():
    files = [*SOURCES, *sorted((ROOT / "tests").rglob("*.py"))]
    lines = {relative(path): len(path.read_text().splitlines()) for path in files}
    assert {name: count for name, count in lines.items() if count > FILE_LINES} == {}


def test_packages_keep_to_their_number_of_lines():
    lines = Counter[str]()
    for path in PACKAGE.rglob("*.py"):
        package, *inside = path.relative_to(PACKAGE).parts
        count = len(path.read_text().splitlines())
        lines.update({package if inside else ".": count, "all": count})
    assert lines.keys() == MOST_LINES.keys()
    for name, count in lines.items():
        most = MOST_LINES[name]
        assert count <= most, f"{name} has {count} lines, and may have {most}: take some out first"
        lower = (
            f"{name} has {count} lines: lower its number in MOST_LINES to {-(-count // 10) * 10}"
        )
        assert count >= most - UNUSED_LINES, lower


def test_functions_are_short():
    lines = {
        f"{relative(path)}:{f.lineno} {f.name}": f.end_lineno - f.lineno + 1
        for path in SOURCES
        for f in functions(path)
    }
    assert len(lines) > 100
    assert {name: count for name, count in lines.items() if count > FUNCTION_LINES} == {}


def test_names_say_something():
    parts = {p: set(p.relative_to(PACKAGE).with_suffix("").parts) for p in SOURCES}
    assert [relative(p) for p, names in parts.items() if names & NAMES_THAT_SAY_NOTHING] == []


def test_modules_and_public_classes_have_docstrings():
    without = [relative(path) for path in SOURCES if not ast.get_docstring(tree(path))]
    for path in SOURCES:
        classes = [node for node in public(path) if isinstance(node, ast.ClassDef)]
        without += [f"{relative(path)} {c.name}" for c in classes if not ast.get_docstring(c)]
    assert without == []


def test_package_files_hold_a_docstring_and_exports_only():
    def is_export(node, body):
        if isinstance(node, ast.Expr):
            return node is body[0]
        if isinstance(node, ast.Assign):
            return [ast.unparse(target) for target in node.targets] == ["__all__"]
        if isinstance(node, ast.FunctionDef):
            return node.name in ("__getattr__", "__dir__")
        if isinstance(node, ast.If):
            return ast.unparse(node.test) == "TYPE_CHECKING"
        return isinstance(node, (ast.Import, ast.ImportFrom))

    for path in PACKAGE.rglob("__init__.py"):
        body = tree(path).body
        assert [ast.unparse(node) for node in body if not is_export(node, body)] == [], path


def test_whoever_has_a_lock_or_a_thread_says_what_a_fork_does_to_it():
    made = re.compile(
        r"threading\.(R?Lock|Condition|Event|Semaphore|Thread)\(|start_new_thread\(|Queue\(|Queue\[.*\("
    )
    found = [path for path in SOURCES if made.search(path.read_text())]
    says = re.compile("core.after_fork import|register_at_fork")
    assert len(found) > 2
    assert [relative(p) for p in found if not says.search(p.read_text())] == []


def test_commands_print_through_what_escapes_control_characters():
    def prints(path: Path) -> bool:
        calls = [node.func for node in ast.walk(tree(path)) if isinstance(node, ast.Call)]
        names = [ast.unparse(call) for call in calls]
        return any(name in ("print", "typer.echo") or name.endswith(".write") for name in names)

    commands = [path for path in SOURCES if path.is_relative_to(PACKAGE / "cli")]
    assert [path.name for path in commands if prints(path)] == ["output.py"]


def test_threads_that_share_work_are_those_that_do_without_where_the_system_gives_none():
    pools = [path for path in SOURCES if "ThreadPoolExecutor" in path.read_text()]
    assert [relative(path) for path in pools if path.is_relative_to(PACKAGE)] == []
