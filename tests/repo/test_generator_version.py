"""The generator's version covers every module that decides the bytes of an object."""

from __future__ import annotations

import ast
from pathlib import Path

from kernelmill.core.generator import sources
from tests.repo.source import PACKAGE, tree

CANNOT_MATTER = {
    "core/__init__.py": "an import",
    "core/after_fork.py": "what a forked child puts right",
    "core/dataclass.py": "how classes get their methods",
    "core/digest.py": "names and hashes what is in a key",
    "core/elf.py": "reads objects that are made",
    "core/errors.py": "what is raised, not what is made",
    "core/generator.py": "its digest is an ingredient",
    "core/interpreter.py": "says which Pythons are refused",
    "core/knobs.py": "what it says of the processor is in the target, an ingredient",
    "core/log.py": "says and writes what was done",
    "core/scalar.py": "what a call computes of its sizes; a type to what the generator imports",
    "core/text.py": "reads and writes the text of IRs, which is an ingredient",
    "core/target/__init__.py": "a docstring",
    "core/version.py": "its ABI version is an ingredient",
    "core/workers.py": "which thread does something",
    "kernel/__init__.py": "a docstring",
    "torch_internals/__init__.py": "exports",
    "torch_internals/dispatch.py": "the modes of a caller, outside of which parts are tried",
    "torch_internals/llvm.py": "LLVM's functions, with or without llvmlite's lock around them",
    "torch_internals/registry.py": "says what was found",
}
"""Modules that the generator imports, and why no byte of an object depends on them."""


def _imported(path: Path) -> set[Path]:
    """The modules of kernelmill that a module imports by itself, packages among them."""
    found: set[Path] = set()
    for node in ast.walk(tree(path)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            parts = name.split(".")
            if parts[0] != "kernelmill" or len(parts) == 1:
                continue
            place = PACKAGE.joinpath(*parts[1:])
            found |= {p for p in (place.with_suffix(".py"), place / "__init__.py") if p.is_file()}
    return found


def test_whatever_the_generator_imports_is_in_its_version() -> None:
    reached: set[Path] = set()
    pending = [PACKAGE / "codegen" / "compile.py"]
    while pending:
        path = pending.pop()
        if path not in reached:
            reached.add(path)
            pending += _imported(path)
    names = {str(path.relative_to(PACKAGE)) for path in reached}
    hashed = {str(path.relative_to(PACKAGE)) for path in sources()}
    assert sorted(names - hashed - CANNOT_MATTER.keys()) == []
    assert sorted(CANNOT_MATTER.keys() & hashed) == []
    assert sorted(hashed - names - {n for n in hashed if n.startswith("codegen/")}) == []
    assert {name for name in CANNOT_MATTER if not (PACKAGE / name).is_file()} == set()
