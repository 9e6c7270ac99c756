"""The page of the Python interface: signatures and docstrings of public names, as Markdown.

`python -m tools.reference` writes it as docs/api.md.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import kernelmill
from kernelmill.aot import AotProgram
from kernelmill.backend import Backend
from kernelmill.inference.cached_method import CachedMethod
from kernelmill.inference.compile_report import CompileReport, ProgramReport
from kernelmill.report.explanation import Explanation

MODULES = {
    "kernelmill": "compile.md",
    "kernelmill.aot": "aot.md",
    "kernelmill.inference": "cache.md",
    "kernelmill.ops": "ops.md",
    "kernelmill.scope": "super_kernels.md",
    "kernelmill.static_kernels": "static_kernels.md",
    "kernelmill.fleet": "fleet.md",
}
"""Modules whose `__all__` is public, with the guide to each. The names of other modules that are
public are in OTHERS."""

OTHERS = {
    "kernelmill.integrations.sentence_transformers": (("compile",), "sentence_transformers.md"),
    "kernelmill.compat": (("install",), "torchair.md"),
    "kernelmill.torch_internals": (("state",), "compatibility.md"),
}

RETURNED = (Backend, CachedMethod, CompileReport, ProgramReport, Explanation)
"""Classes without a public name of their own, whose objects public functions return."""

PRIVATE = {"CompilerConfig": ("ingredients", "warn_other_mode")}
"""Methods that only kernelmill itself calls."""

HEAD = """# Python API

Every public name, with its signature and docstring. Guides with examples are linked in each
section. Other modules of `kernelmill` are [private](versioning.md).

| type | stands for |
|---|---|
| `Gears`, `GivenGears` | `Mapping[str, Mapping[int, Sequence[int]]]`: argument, dim, sizes |
| `Quantize` | `str`, a mapping of patterns of layer names to `str` or `None`, or `None` |
| `Decompositions` | a mapping of operator overloads to functions |
"""

_WIDTH = 88
_ROW = re.compile(r"(?P<names>[\w*]+(?:, [\w*]+)*) {2,}(?P<text>\S.*)")
_NAME = re.compile(r"(?<![`\w./$])(\$?[\w.]*\w_\w[\w.]*\w(?:\(\))?|[A-Z]\w+Error\b)")


def api_page() -> str:
    """Return the text of docs/api.md, without the line that says who wrote it."""
    parts = [HEAD]
    for name, guide in MODULES.items():
        module = import_module(name)
        names = [each for each in module.__all__ if not _is_left_out(module, each)]
        names.sort(key=lambda each: inspect.isclass(getattr(module, each)))
        parts.append(_section(name, module, names, guide))
    for name, (names, guide) in OTHERS.items():
        parts.append(_section(name, import_module(name), names, guide))
    parts.append("\n## Returned objects\n")
    parts += [_entry(each.__name__, each) for each in RETURNED]
    parts.append("\n## Errors\n\n[Errors and metrics](operations.md#errors) lists the messages.\n")
    parts.append("\n| class | also a | raised for |\n|---|---|---|\n")
    parts += _errors()
    return "".join(parts)


def _is_left_out(module: Any, name: str) -> bool:
    """Return True for modules, the version and errors, and for names that have an entry already."""
    value = getattr(module, name)
    if module is not kernelmill and getattr(kernelmill, name, None) is value:
        return True
    error = inspect.isclass(value) and issubclass(value, Exception)
    return inspect.ismodule(value) or error or name == "__version__"


def _section(title: str, module: Any, names: Any, guide: str) -> str:
    about = _first_paragraph(inspect.getdoc(module) or "")
    entries = "".join(_entry(f"{title}.{name}", getattr(module, name)) for name in names)
    return f"\n## {title}\n\n{_prose(about)} [Guide]({guide}).\n{entries}"


def _entry(title: str, value: Any) -> str:
    """Return heading, signature and docstring of a function or class, with a class's methods."""
    path, _, last = title.rpartition(".")
    name = getattr(value, "__name__", last)
    heading = f"\n### {last} {{ #{title} }}\n\n"
    if name != last:
        return f"{heading}Another name of `{path}.{name}`.\n"
    made_by_users = value not in (*RETURNED, AotProgram)
    signature = f"```py\n{_signature(title, value)}\n```\n\n" if made_by_users else ""
    methods = "".join(_methods(value)) if inspect.isclass(value) else ""
    return f"{heading}{signature}{_markdown(value)}\n" + (f"\n{methods}" if methods else "")


def _methods(kind: type) -> Iterator[str]:
    hidden = PRIVATE.get(kind.__name__, ())
    for name, member in vars(kind).items():
        if name.startswith("_") or name in hidden:
            continue
        if isinstance(member, property):
            yield f"- `.{name}`: {_one_line(member)}\n"
        elif inspect.isfunction(member):
            signature = _signature(f".{name}", member).replace("\n", " ")
            yield f"- `{re.sub(r'[(] +', '(', signature)}`: {_one_line(member)}\n"


def _signature(title: str, value: Any) -> str:
    """Return `name(parameters) -> type`, a parameter to a line where one line is too long."""
    if dataclasses.is_dataclass(value) and isinstance(value, type):
        parts, returns = [_field(each) for each in dataclasses.fields(value)], ""
    else:
        signature = inspect.signature(inspect.unwrap(value))
        parts = [str(each).replace("'", '"') for each in signature.parameters.values()]
        parts = [re.sub(r': "([^"]*)"', r": \1", part) for part in parts if part != "self"]
        kinds = [each.kind for name, each in signature.parameters.items() if name != "self"]
        first = next((n for n, k in enumerate(kinds) if k is inspect.Parameter.KEYWORD_ONLY), None)
        if first is not None and inspect.Parameter.VAR_POSITIONAL not in kinds:
            parts.insert(first, "*")
        returns = _returned(value, signature.return_annotation)
    line = f"{title}({', '.join(parts)}){returns}"
    if len(line) <= _WIDTH:
        return line
    return f"{title}(\n" + "".join(f"    {part},\n" for part in parts) + f"){returns}"


def _field(field: dataclasses.Field[Any]) -> str:
    default = "" if field.default is dataclasses.MISSING else f" = {field.default!r}"
    if field.default_factory is not dataclasses.MISSING:
        default = f" = {field.default_factory()!r}"
    return f"{field.name}: {field.type}{default}"


def _returned(value: Any, annotation: Any) -> str:
    if inspect.isclass(value) or annotation is inspect.Signature.empty:
        return ""
    if str(annotation) == "Generator[None]":
        return " -> context manager"
    return f" -> {annotation}"


def _markdown(value: Any) -> str:
    blocks = re.split(r"\n\s*\n", inspect.getdoc(value) or "")
    return "\n\n".join(map(_block, blocks))


def _block(text: str) -> str:
    """Return a paragraph of a docstring: as a list where its lines are arguments, as code where it
    is an example."""
    if text.startswith(">>>"):
        return f"```pycon\n{text}\n```"
    rows: list[list[str]] = []
    for line in text.splitlines():
        found = _ROW.fullmatch(line)
        if found:
            rows.append([found["names"], found["text"]])
        elif rows and line.startswith(" "):
            rows[-1][1] += f" {line.strip()}"
        else:
            return _prose(" ".join(text.split()))
    named = [(", ".join(f"`{n}`" for n in names.split(", ")), about) for names, about in rows]
    return "\n".join(f"- {names}: {_prose(about)}" for names, about in named)


def _one_line(value: Any) -> str:
    return _prose(" ".join((inspect.getdoc(value) or "").split()))


def _first_paragraph(text: str) -> str:
    return " ".join(re.split(r"\n\s*\n", text)[0].split())


def _prose(text: str) -> str:
    """Return text of a docstring as Markdown: names as code, marks of Markdown escaped."""
    parts = re.split(r"(`[^`]*`)", text)
    for index in range(0, len(parts), 2):
        pieces = re.split(_NAME, parts[index])
        pieces[::2] = [re.sub(r"([*<\[])", r"\\\1", piece) for piece in pieces[::2]]
        pieces[1::2] = [f"`{piece}`" for piece in pieces[1::2]]
        parts[index] = "".join(pieces)
    return "".join(parts)


def _errors() -> Iterator[str]:
    for name in kernelmill.__all__:
        kind = getattr(kernelmill, name)
        if inspect.isclass(kind) and issubclass(kind, Exception):
            bases = ", ".join(f"`{base.__name__}`" for base in kind.__bases__)
            yield f"| `{name}` | {bases} | {_one_line(kind)} |\n"
