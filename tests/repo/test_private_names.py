"""Private names of other packages, and how they lay things in memory, are in one package."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest
import torch

from tests.repo.source import PACKAGE, SOURCES, relative, tree

OWN = PACKAGE / "torch_internals"
OUTSIDE = [path for path in SOURCES if OWN not in path.parents]

OF_TORCH = {
    name
    for kind in (
        torch.Tensor, torch.UntypedStorage, torch.nn.Module, torch.fx.Node, torch.SymInt,
        type(torch.ops.aten.add.Tensor),
    )
    for name in dir(kind)
    if re.match("_[a-z]", name)
}  # fmt: skip
_ALSO_OURS = {"_values"}  # of a group of options, too
_DOCUMENTED = ("_thread",)  # in Python's manual
_LAYOUTS = ("pythonapi", "__from_extern_c__")
_SYMBOL = re.compile(r"_Z[A-Z]+\w*|LLVMPY_\w+|GOMP_[a-z]\w+|_?Py[A-Z][a-z]*_\w+")
_DOTTED = re.compile(r"(torch|llvmlite|tvm_ffi)(\.\w+)*\._[a-z]\w*(\.\w+)*", re.IGNORECASE)


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


@cache
def ours() -> frozenset[str]:
    """Private names that this package defines: functions, classes, attributes, slots."""
    found: set[str] = set()
    for path in OUTSIDE:
        for node in ast.walk(tree(path)):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                found.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                if isinstance(node.value, ast.Name) and node.value.id in ("self", "made"):
                    found.add(node.attr)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            elif isinstance(node, ast.Constant) and path == PACKAGE / "core" / "expr.py":
                found.add(str(node.value))  # its __slots__
    return frozenset(name for name in found if is_private(name))


def options() -> frozenset[str]:
    """Options of TorchAir's whose names begin so."""
    from kernelmill.config import CompilerConfig

    names = (part for name, _, _ in CompilerConfig().options() for part in name.split("."))
    return frozenset(name for name in names if is_private(name))


def is_ours(name: str) -> bool:
    """Whether a private name can only be one of this package's."""
    return name in ours() | options() and name not in OF_TORCH - _ALSO_OURS


def is_operator(node: ast.Attribute) -> bool:
    """Whether an attribute names an operator of torch, which are found by name."""
    return ast.unparse(node.value).startswith(("torch.ops.", "_aten"))


def of_attribute(node: ast.Attribute) -> str | None:
    if node.attr in _LAYOUTS or _SYMBOL.fullmatch(node.attr):
        return node.attr
    if not is_private(node.attr) or is_operator(node):
        return None
    if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
        return None
    return None if is_ours(node.attr) else f"{ast.unparse(node)[-60:]}"


def of_call(node: ast.Call) -> str | None:
    """getattr and its like with a private name."""
    if not isinstance(node.func, ast.Name) or not node.func.id.endswith("attr"):
        return None
    names = [a.value for a in node.args[1:] if isinstance(a, ast.Constant)]
    private = [n for n in names if isinstance(n, str) and is_private(n) and not is_ours(n)]
    return f"{node.func.id} {private[0]}" if private else None


def is_name(text: str) -> bool:
    """Whether a text is a private name by itself."""
    return bool(_SYMBOL.fullmatch(text) or _DOTTED.fullmatch(text))


def is_id(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "id"


def private_in(module: ast.Module) -> Iterator[str]:
    """What a module names of other packages' private parts, with its line."""
    for node in ast.walk(module):
        found = None
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            above = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            parts = [(above + alias.name).split(".") for alias in node.names]
            others = (p for p in parts if p[0] not in ("kernelmill", *_DOCUMENTED))
            private = [p for p in others if any(map(is_private, p))]
            found = ".".join(private[0]) if private else None
        elif isinstance(node, ast.Attribute):
            found = of_attribute(node)
        elif isinstance(node, ast.Call):
            found = of_call(node)
        elif isinstance(node, ast.BinOp) and (is_id(node.left) or is_id(node.right)):
            found = f"an offset: {ast.unparse(node)}"
        elif isinstance(node, ast.Constant) and is_name(str(node.value)):
            found = repr(node.value)
        if found is not None:
            yield f"line {node.lineno}: {found}"


def test_no_private_name_is_outside_of_the_room() -> None:
    found = {relative(path): list(private_in(tree(path))) for path in OUTSIDE}
    assert {name: places for name, places in found.items() if places} == {}


@pytest.mark.parametrize(
    "line",
    [
        "import torch._dynamo",
        "from torch._functorch import config",
        "from torch.overrides import _get_current_function_mode_stack",
        "torch._C._increment_version([])",
        "found = tensor.untyped_storage()._cdata",
        "found = tensor._version",
        "version = getattr(tensor, '_version')",
        "name = '_ZN2at13globalContextEv'",
        "name = '_PyDict_GetItem_KnownHash'",
        "module = sys.modules['torch._C._dynamo.guards']",
        "word = c_int64.from_address(id(owner) + 24)",
        "ctypes.pythonapi.PyDict_Next",
        "library.LLVMPY_ContextCreate()",
        "tvm_ffi.Function.__from_extern_c__(address)",
    ],
)
def test_each_way_to_name_one_is_seen(line: str) -> None:
    assert list(private_in(ast.parse(line)))


@pytest.mark.parametrize(
    "line",
    [
        "self._found = torch.ops.aten._int_mm.default",
        "import kernelmill.core.errors",
        "from __future__ import annotations",
        "for _ in range(3): pass",
        "message = 'set torch._dynamo.config.allow_rnn = True'",
    ],
)
def test_what_is_no_private_name_is_let_through(line: str) -> None:
    assert list(private_in(ast.parse(line))) == []
