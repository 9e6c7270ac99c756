"""What processors can do stands in isa.py, families.py and dot_units.py of core/target, and their
instructions in codegen/targets: no other file may name a feature or ask for one."""

import ast
import re

from kernelmill.core.target.isa import NAMED
from tests.repo.source import PACKAGE, SOURCES, relative, tree

FEATURE = re.compile(
    r"avx|amx|sse\d|vnni|pmadd|vpdp|dpbf|neon|sve\b|asimd|dotprod|i8mm|sdot", re.IGNORECASE
)
CORE = (PACKAGE / "core" / "target" / f"{name}.py" for name in ("isa", "families", "dot_units"))
HOME = (*CORE, *(PACKAGE / "codegen" / "targets").glob("*.py"))
OTHERS = [path for path in SOURCES if path not in HOME]


def docstrings(path):
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    return {
        id(node.body[0].value)
        for node in ast.walk(tree(path))
        if isinstance(node, kinds) and node.body and isinstance(node.body[0], ast.Expr)
    }


def named_features(path):
    """Strings, names and attributes that name a feature; prose does not count."""
    prose = docstrings(path)
    for node in ast.walk(tree(path)):
        text = ""
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            text = node.value
        elif isinstance(node, (ast.Name, ast.Attribute)):
            text = node.id if isinstance(node, ast.Name) else node.attr
        if FEATURE.search(text) or (isinstance(node, ast.Attribute) and text == "features"):
            yield f"line {node.lineno}: {text}"


def test_no_other_file_names_a_feature():
    found = {relative(path): list(named_features(path)) for path in OTHERS}
    assert {path: features for path, features in found.items() if features} == {}


def test_features_are_found_where_they_are():
    assert any(list(named_features(path)) for path in HOME)


def test_levels_are_named_in_texts_for_people_only():
    """An ISA is asked what it has, not what it is called."""
    names = {name for name in NAMED if name.count("-") == 2}
    for path in OTHERS:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Compare):
                told = {c.value for c in ast.walk(node) if isinstance(c, ast.Constant)}
                assert not told & names, f"{relative(path)}:{node.lineno}"
