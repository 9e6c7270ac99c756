"""torch.nn.Module: the dicts of its attributes and hooks; attributes of a class's objects."""

from __future__ import annotations

from types import CodeType, ModuleType
from typing import Any

import torch

from kernelmill.torch_internals.registry import internal


def names_in(function: Any) -> frozenset[str]:
    """Return names of globals and attributes in a Python function, inner functions too."""
    found: set[str] = set()
    codes: list[CodeType] = [function.__code__]
    while codes:
        code = codes.pop()
        found.update(code.co_names)
        codes += [value for value in code.co_consts if isinstance(value, CodeType)]
    return frozenset(found)


def lacking(kind: type, *names: str) -> list[str]:
    """Return the names that are neither attributes of a class nor set by its `__init__`s."""
    known = set(dir(kind)) | set(getattr(kind, "__dataclass_fields__", ()))
    for part in kind.__mro__:
        for maker in ("__init__", "__post_init__"):
            function = vars(part).get(maker)
            if hasattr(function, "__code__"):
                known |= names_in(function)
    return [name for name in names if name not in known]


def check(kind: type, *names: str) -> None:
    """Raise AttributeError for the first name that objects of the class do not have."""
    for name in lacking(kind, *names):
        raise AttributeError(f"{kind.__name__} has no {name}")


_TABLES = ("_parameters", "_buffers", "_modules")
_ORIGINAL = "_orig_mod"


@internal(
    "modules.tables",
    reason="watching the parameters, buffers and modules of a module natively",
    fallback="each call follows them from the module, in Python",
)
def tables_of() -> tuple[str, ...] | None:
    """Return the names of a module's dicts in the order in which attributes are looked up."""
    module = torch.nn.Linear(1, 1, device="meta")
    module.register_buffer("held", torch.empty(1, device="meta"))
    module.add_module("inner", torch.nn.Identity())
    names = ("weight", "held", "inner")
    found: Any = [vars(module)[table] for table in _TABLES]
    pairs = zip(found, names, strict=True)
    right = all(table[name] is getattr(module, name) for table, name in pairs)
    return _TABLES if right and not any(name in vars(module) for name in names) else None


@internal(
    "modules.global_hooks",
    reason="seeing hooks of all modules",
    fallback="cache_compile keeps nothing, since it could not see them",
)
def global_hooks() -> tuple[ModuleType, tuple[str, ...]] | None:
    """Return the module with the dicts of global hooks, which every module calls around its
    forward, and their names."""
    from torch.nn.modules import module

    registers = module.register_module_forward_hook, module.register_module_forward_pre_hook
    names = "_global_forward_hooks", "_global_forward_pre_hooks"
    pairs = zip(names, registers, strict=True)
    right = all(isinstance(vars(module)[n], dict) and n in names_in(its) for n, its in pairs)
    return (module, names) if right else None


def all_have_hooks() -> bool:
    """Return whether there are known global hooks, which every module calls."""
    found = global_hooks.get()
    return found is not None and any(map(vars(found[0]).get, found[1]))


@internal(
    "modules.own_hooks",
    reason="seeing hooks of a module that kernelmill.compile has compiled",
    fallback="kernelmill.compile compiles modules as torch.compile does",
)
def _own_hooks() -> tuple[str, ...] | None:
    module = torch.nn.Identity()
    registers = {
        "_forward_hooks": module.register_forward_hook,
        "_forward_pre_hooks": module.register_forward_pre_hook,
        "_backward_hooks": module.register_full_backward_hook,
        "_backward_pre_hooks": module.register_full_backward_pre_hook,
    }
    for register in registers.values():
        register(lambda *args: None)  # type: ignore[reportArgumentType]
    return tuple(registers) if all(len(vars(module)[n]) == 1 for n in registers) else None


def own_hooks(module: torch.nn.Module) -> tuple[Any, ...] | None:
    """Return the dicts of the hooks that a module calls around its forward and backward; None where
    unknown."""
    names = _own_hooks.get()
    return None if names is None else tuple(vars(module)[name] for name in names)


@internal(
    "modules.original",
    reason="naming the arguments of a compiled model as its own code does",
    fallback="record_shapes names the arguments of compiled models args[0], args[1] and so on",
)
def _original() -> str | None:
    from torch._dynamo.eval_frame import OptimizedModule

    set_at_start = OptimizedModule.__init__.__code__.co_consts
    return _ORIGINAL if _ORIGINAL in set_at_start else None


def is_compiled(model: Any) -> bool:
    """Return whether a model is the result of torch.compile or kernelmill.compile of a module."""
    # torch's own module takes a second to import.
    return type(model).__name__ in ("OptimizedModule", "CompiledModule")


def original_module(model: Any) -> Any:
    """Return the module inside of a compiled one; any other model unchanged."""
    if not is_compiled(model):
        return model
    name = _original.get()
    return model if name is None else getattr(model, name)
