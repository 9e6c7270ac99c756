"""Errors that users can meet are of the tree in core/errors.py."""

import ast
from collections import Counter

from tests.repo.source import PACKAGE

BUILTIN = {
    "ArithmeticError", "AttributeError", "Exception", "FileExistsError", "FileNotFoundError",
    "ImportError", "IndexError", "IsADirectoryError", "KeyError", "LookupError",
    "NotADirectoryError",
    "OSError", "PermissionError", "RuntimeError", "TimeoutError", "TypeError", "ValueError",
}  # fmt: skip

INTERPRETERS = "what an interpreter of the tests refuses, or eager raises for the same values"
PROTOCOL = "Python asks for this class: of an attribute that is not there, of an import"
CAUGHT = "its caller catches it and raises one of the tree, or does without"
FAULT = "a fault of kernelmill, which no user's code can bring about"

ELSEWHERE = {
    "graph/eager.py": INTERPRETERS,
    "kernel/interpreter.py": INTERPRETERS,
    "kernel/numeric.py": INTERPRETERS,
    "__init__.py": PROTOCOL,
    "aot/__init__.py": PROTOCOL,
    "fleet/__init__.py": PROTOCOL,
    "inference/__init__.py": PROTOCOL,
    "compat/install.py": PROTOCOL,
    "torch_internals/modules.py": PROTOCOL,
    "artifact/guard_kinds.py": CAUGHT,
    "artifact/manifest.py": CAUGHT,
    "artifact/paths.py": CAUGHT,
    "compiler/calibration.py": CAUGHT,
    "core/elf.py": CAUGHT,
    "core/target/isa.py": CAUGHT,
    "core/knobs.py": CAUGHT,
    "core/target/machine.py": CAUGHT,
    "core/text.py": CAUGHT,
    "plan/text.py": CAUGHT,
    "runtime/linking/elf_loader.py": CAUGHT,
    "runtime/weights/page_scan.py": CAUGHT,
    "runtime/linking/linker.py": CAUGHT,
    "store/folder.py": CAUGHT,
    "store/upkeep.py": CAUGHT,
    "codegen/compile.py": FAULT,
    "core/digest.py": FAULT,
    "core/workers.py": FAULT,
    "graph/builder.py": FAULT,
    "kernel/builder.py": FAULT,
    "runtime/memory/dims.py": FAULT,
    "store/entry.py": FAULT,
}


def _raised(text: str) -> list[str]:
    calls = [node.exc for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Raise)]
    names = [call.func if isinstance(call, ast.Call) else call for call in calls]
    return [name.id for name in names if isinstance(name, ast.Name) and name.id in BUILTIN]


def test_errors_outside_of_the_tree_are_raised_where_no_user_meets_them():
    found = Counter[str]()
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith("lower/templates/"):  # schedules that do not fit: a fault
            found[name] += len(_raised(path.read_text()))
    assert {name for name, count in found.items() if count} - ELSEWHERE.keys() == set()
    assert {name for name in ELSEWHERE if not found[name]} == set()
